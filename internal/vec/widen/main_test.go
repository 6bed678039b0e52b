package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	want, err := generate("..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../simd_exp_avx512.go")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("simd_exp_avx512.go is not what widen writes; run go generate (%v)", err)
	}
}
