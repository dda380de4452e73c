#!/usr/bin/env bash
# Builds the static library of github.com/daulet/tokenizers that the build tag
# hf links against:
#
#     tokenize/hf/build.sh OUTDIR
#     CGO_LDFLAGS=-LOUTDIR go test -tags hf ./tokenize/...
#
# Needs cargo, gcc and g++. Does nothing when OUTDIR already holds the library
# of the module version in go.mod. One to four minutes when nothing is cached.
set -euo pipefail

out=${1:?usage: build.sh OUTDIR}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

module=github.com/daulet/tokenizers
version=$(go list -m -f '{{.Version}}' $module)
if [[ -s $out/libtokenizers.a && $(cat "$out/version" 2>/dev/null) == "$version" ]]; then
	exit 0
fi
go mod download $module
source=$(go list -m -f '{{.Dir}}' $module)

# The module cache is read-only, and cargo writes beside its Cargo.toml.
scratch=$(mktemp -d "$out/build.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cp -r "$source/src" "$source/Cargo.toml" "$source/benches" "$scratch/"
chmod -R u+w "$scratch"
# Upstream takes tiktoken-rs from a git branch, which a build that reaches only
# a crates registry cannot follow. The released crate has what it uses.
sed -i.orig -E 's|^tiktoken-rs = .*$|tiktoken-rs = "0.7"|' "$scratch/Cargo.toml"

CARGO_TARGET_DIR="$out/target" cargo build --quiet --release --lib --manifest-path "$scratch/Cargo.toml"
# Renamed into place, so that a reader never sees half a library.
cp "$out/target/release/libtokenizers.a" "$scratch/libtokenizers.a"
mv "$scratch/libtokenizers.a" "$out/libtokenizers.a"
printf '%s\n' "$version" >"$out/version"
