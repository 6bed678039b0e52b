package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedFileIsCurrent(t *testing.T) {
	got, err := os.ReadFile("../dots_amd64.s")
	if err != nil || !bytes.Equal(got, generate()) {
		t.Errorf("dots_amd64.s is not what this command writes; run go generate (%v)", err)
	}
}
