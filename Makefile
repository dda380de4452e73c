SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

# Addresses of `make run`.
API   ?= 127.0.0.1:8080
ADMIN ?= 127.0.0.1:8081
NATS  ?= 127.0.0.1:4222
# More flags for it: make run DEMO="--strategy RANDOM --workers 5"
DEMO  ?=

GOLANGCI_LINT := v2.15.0
TMP           := $(CURDIR)/.tmp
TOKENIZER     := $(TMP)/llama-3.1/tokenizer.json
VERSION       := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the programs into bin/
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.stamped=$(VERSION)' -o bin/ ./cmd/...

.PHONY: run
run: build $(TOKENIZER) ## Run a whole small fleet on this machine, and print a curl line to try
	@exec bin/warmroute demo --tokenizer $(TOKENIZER) --dir $(TMP)/demo \
		--listen $(API) --admin-listen $(ADMIN) --nats-listen $(NATS) $(DEMO)

# The vocabulary is not ours to give away: it is derived from the file that a
# module in go.mod ships for its tests.
$(TOKENIZER): | build
	@go mod download github.com/daulet/tokenizers
	@bin/warmroute derive-llama31 --to $@ \
		--from "$$(go list -m -f '{{.Dir}}' github.com/daulet/tokenizers)/test/data/Meta-Llama-3-8B-Instruct.json"

.PHONY: test
test: vet lint tidy-check test-hf test-go ## Everything that CI runs

.PHONY: vet
vet: ## go vet
	go vet ./...

.PHONY: lint
lint: $(TMP)/bin/golangci-lint-$(GOLANGCI_LINT) ## golangci-lint
	$< run ./...

$(TMP)/bin/golangci-lint-$(GOLANGCI_LINT):
	GOBIN=$(TMP)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)
	mv $(TMP)/bin/golangci-lint $@

.PHONY: tidy-check
tidy-check: ## go.mod and go.sum say what the code imports
	go mod tidy -diff

.PHONY: test-go
test-go: ## The Go tests under the race detector
	go test -race -shuffle=on -timeout 15m ./...

.PHONY: hf
hf: $(TMP)/hf/libtokenizers.a ## Build the library behind the tag hf (needs cargo and a C compiler)

$(TMP)/hf/libtokenizers.a:
	tokenize/hf/build.sh $(TMP)/hf

.PHONY: test-hf
test-hf: hf ## Compare the native encoder with Hugging Face's
	CGO_ENABLED=1 CGO_LDFLAGS="-L$(TMP)/hf" go test -tags hf -timeout 10m ./tokenize/...

# How long each fuzz target runs, and how many texts the encoders are compared on.
FUZZTIME ?= 30s
DIFF     ?= 1200000

.PHONY: fuzz
fuzz: hf ## Compare the encoders on DIFF random texts, then run every fuzz target for FUZZTIME
	WARMROUTE_DIFF=$(DIFF) WARMROUTE_SEED=$${SEED:-$$RANDOM} CGO_ENABLED=1 CGO_LDFLAGS="-L$(TMP)/hf" \
		go test -tags hf -count=1 -v -timeout 6h -run 'HF' ./tokenize
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
			echo "== $$(dirname $$file) $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
		done; \
	done

.PHONY: bench-tokens
bench-tokens: hf $(TOKENIZER) ## Measure the token path beside daulet/tokenizers; writes bench/out/tokens.json
	CGO_ENABLED=1 CGO_LDFLAGS="-L$(TMP)/hf" go run -tags hf ./bench/tokens -tokenizer $(TOKENIZER)

.PHONY: bench-index
bench-index: ## Measure the tree; writes bench/out/index.json
	go run ./bench/index

.PHONY: fmt
fmt: $(TMP)/bin/golangci-lint-$(GOLANGCI_LINT) ## Format the code
	$< fmt ./...

.PHONY: clean
clean: ## Remove what the targets made
	rm -rf bin .tmp bench/out
