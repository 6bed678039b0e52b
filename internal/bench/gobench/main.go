// Command gobench runs Go benchmarks and writes their figures as rows without a
// peer: those per second where a benchmark reports some, else the time of one
// operation.
//
//	go run ./internal/bench/gobench --out build/bench/go.json ./internal/gemm ./internal/vec
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strconv"
	"strings"

	"searchloop/internal/bench"
	"searchloop/internal/fail"
)

func main() {
	out := flag.String("out", "build/bench/go.json", "file of the figures")
	each := flag.String("benchtime", "1s", "time of each benchmark, as go test takes it")
	flag.Parse()
	if err := run(*out, *each, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "gobench:", err)
		os.Exit(fail.ExitCode(err))
	}
}

func run(out, each string, packages []string) error {
	cmd := exec.Command("go", append([]string{"test", "-run", "^$", "-bench", ".", "-benchtime", each}, packages...)...)
	cmd.Stderr = os.Stderr
	text, err := cmd.StdoutPipe()
	if err != nil {
		return fail.Wrap(fail.Bug, "run benchmarks", "", err)
	}
	if err := cmd.Start(); err != nil {
		return fail.Wrap(fail.Usage, "run benchmarks", "go", err)
	}
	rows, err := parse(io.TeeReader(text, os.Stderr))
	if err != nil {
		return fail.Wrap(fail.Bug, "read benchmarks", "", err)
	}
	if err := cmd.Wait(); err != nil {
		return fail.Wrap(fail.Bug, "run benchmarks", strings.Join(packages, " "), err)
	}
	return bench.Write(out, rows)
}

// parse reads what go test prints: "pkg: PATH" before the benchmarks of a
// package, then lines of a name, a count, and pairs of value and unit.
func parse(r io.Reader) ([]bench.Row, error) {
	processors := fmt.Sprintf("-%d", runtime.GOMAXPROCS(0)) // ends every name where there is more than one
	var rows []bench.Row
	pkg := ""
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) == 2 && f[0] == "pkg:" {
			pkg = path.Base(f[1])
		}
		if len(f) < 4 || len(f)%2 != 0 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := pkg + " " + strings.TrimSuffix(strings.TrimPrefix(f[0], "Benchmark"), processors)
		var rates []bench.Row
		var cost bench.Row
		for i := 2; i < len(f); i += 2 {
			value, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", lines.Text(), err)
			}
			row := bench.Row{Name: name, Unit: f[i+1], Ours: value}
			switch {
			case row.Rate():
				rates = append(rates, row)
			case row.Unit == "ns/op":
				cost = row
			}
		}
		if len(rates) == 0 {
			rates = []bench.Row{cost}
		}
		rows = append(rows, rates...)
	}
	return rows, lines.Err()
}
