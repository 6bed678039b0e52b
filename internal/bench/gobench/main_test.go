package main

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/bench"
)

func TestRatesBeforeCosts(t *testing.T) {
	cpus := ""
	if n := runtime.GOMAXPROCS(0); n > 1 {
		cpus = fmt.Sprintf("-%d", n)
	}
	rows, err := parse(strings.NewReader(strings.ReplaceAll(`goos: linux
pkg: searchloop/internal/gemm
BenchmarkProduct/avx2/NT/8x8#        	     100	     12345 ns/op	        12.50 GFLOP/s	         6.25 GFLOP/s-core
PASS
ok  	searchloop/internal/gemm	1.2s
pkg: searchloop/internal/vec
BenchmarkDot#  	 5000000	       210.5 ns/op	      16 B/op	       1 allocs/op
BenchmarkStarted
PASS
`, "#", cpus)))
	if err != nil {
		t.Fatal(err)
	}
	want := []bench.Row{{Name: "gemm Product/avx2/NT/8x8", Unit: "GFLOP/s", Ours: 12.5}, {Name: "gemm Product/avx2/NT/8x8", Unit: "GFLOP/s-core", Ours: 6.25},
		{Name: "vec Dot", Unit: "ns/op", Ours: 210.5}}
	if !slices.Equal(rows, want) {
		t.Fatalf("%+v", rows)
	}
	if _, err := parse(strings.NewReader("BenchmarkDot 5 many ns/op\n")); err == nil {
		t.Fatal("a value that is no number was taken")
	}
}
