//go:build !hf

package main

// hfBuilt says whether Hugging Face's encoder is in this build.
const hfBuilt = false
