// Command merge makes one file of what the benchmark programs wrote and prints
// it as a table.
//
//	go run ./internal/bench/merge --out build/bench.json build/bench/*.json
//
// The exit status is 3 when a ratio is below its bound, after everything has
// been written.
package main

import (
	"flag"
	"fmt"
	"os"

	"searchloop/internal/bench"
	"searchloop/internal/fail"
)

func main() {
	out := flag.String("out", "build/bench.json", "the merged file")
	flag.Parse()
	if err := run(*out, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "merge:", err)
		os.Exit(fail.ExitCode(err))
	}
}

func run(out string, paths []string) error {
	rows, err := bench.Merge(paths)
	if err != nil {
		return err
	}
	if err := bench.Write(out, rows); err != nil {
		return err
	}
	if err := bench.Table(os.Stdout, rows); err != nil {
		return err
	}
	below := 0
	for _, r := range rows {
		if r.Below() {
			below++
		}
	}
	if below > 0 {
		return fail.New(fail.Bound, "compare with bounds", out, "%d of %d figures are below their bound", below, len(rows))
	}
	return nil
}
