// Command suite runs the fault tests and says which of the numbered faults the
// toolkit stands: a table on stdout and, for programs, a JSON list of
// {id, name, pass, note, tests}. F1 to F35 are faults of a night (faults.go), G1 to G43
// defects of the published systems and T1 to T24 those of trainers (defects.go). A
// test belongs to a number that its name has, and to those that faults.go lists it
// for; one that is not there, or is skipped, is no pass.
//
//	go run ./internal/fault/suite --out build/fault.json [--only F1,F33,G]
//	go run ./internal/fault/suite --list
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"searchloop/internal/atomicfile"
)

// result is one line of the list.
type result struct {
	ID    string   `json:"id"`
	Name  string   `json:"name"`
	Pass  bool     `json:"pass"`
	Note  string   `json:"note"`
	Tests []string `json:"tests"`
}

func main() {
	out := flag.String("out", "build/fault.json", "file of the list")
	only := flag.String("only", "", "some faults alone: F1,F33, or G for all of G")
	list := flag.Bool("list", false, "print which tests belong to which number, and run none")
	timeout := flag.String("timeout", "20m", "of one package")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	chosen, err := choose(".", *only)
	switch {
	case err == nil && *list:
		for _, f := range chosen {
			fmt.Printf("%-4s %-62s %s\n", f.id, f.name, strings.Join(f.tests, " "))
		}
	case err == nil:
		err = run(ctx, chosen, *out, *timeout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

// choose is the list of what only names, each with all of its tests.
func choose(root, only string) ([]fault, error) {
	list, err := numbered(root)
	if err != nil || only == "" {
		return list, err
	}
	want := strings.Split(only, ",")
	for _, w := range want {
		if !slices.ContainsFunc(list, func(f fault) bool { return f.id == w || f.id[:1] == w }) {
			return nil, fmt.Errorf("no fault is named %s", w)
		}
	}
	return slices.DeleteFunc(list, func(f fault) bool { return !slices.Contains(want, f.id) && !slices.Contains(want, f.id[:1]) }), nil
}

func run(ctx context.Context, list []fault, out, timeout string) error {
	verdicts := map[string]verdict{}
	for _, pkg := range packages(list) {
		names := testsOf(list, pkg)
		fmt.Fprintf(os.Stderr, "%s: %d tests\n", pkg, len(names))
		if err := test(ctx, pkg, names, timeout, verdicts); err != nil {
			return err
		}
	}
	results, failed := judge(list, verdicts), 0
	for _, r := range results {
		mark := "pass"
		if !r.Pass {
			mark = "FAIL"
			failed++
		}
		fmt.Printf("%-4s %s  %-62s %s\n", r.ID, mark, r.Name, strings.Join(r.Tests, " "))
		if r.Note != "" {
			fmt.Printf("            %s\n", r.Note)
		}
	}
	fmt.Printf("%d of %d stood\n", len(results)-failed, len(results))
	text, err := json.MarshalIndent(results, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(out), 0o777)
	}
	if err == nil {
		err = atomicfile.WriteFile(out, append(text, '\n'))
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d are not stood", failed)
	}
	return err
}

// verdict is what became of a test.
type verdict struct {
	action string // pass, fail, skip
	why    string // the last lines it printed
}

// judge gives each fault its line.
func judge(list []fault, verdicts map[string]verdict) []result {
	var out []result
	for _, f := range list {
		r := result{ID: f.id, Name: f.name, Tests: f.tests}
		var bad []string
		for _, t := range f.tests {
			v, ok := verdicts[t]
			switch {
			case !ok:
				bad = append(bad, t+" was not run")
			case v.action == "skip":
				bad = append(bad, t+" was skipped: "+v.why)
			case v.action != "pass":
				bad = append(bad, t+" failed: "+v.why)
			}
		}
		if len(f.tests) == 0 {
			bad = append(bad, "no test has this number")
		}
		r.Pass, r.Note = len(bad) == 0, strings.Join(bad, "; ")
		if r.Pass {
			r.Note = f.note
		}
		out = append(out, r)
	}
	return out
}

// A test is written PACKAGE.NAME.
func split(test string) (pkg, name string) {
	i := strings.LastIndex(test, ".")
	return test[:i], test[i+1:]
}

func packages(list []fault) (out []string) {
	for _, f := range list {
		for _, t := range f.tests {
			if pkg, _ := split(t); !slices.Contains(out, pkg) {
				out = append(out, pkg)
			}
		}
	}
	return out
}

func testsOf(list []fault, pkg string) (out []string) {
	for _, f := range list {
		for _, t := range f.tests {
			if p, name := split(t); p == pkg && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// event is a line of go test -json.
type event struct{ Action, Test, Output string }

// test runs tests of a package with the fault points compiled in.
func test(ctx context.Context, pkg string, names []string, timeout string, verdicts map[string]verdict) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-tags=nodynamic,fault", "-timeout", timeout, "-run", "^("+strings.Join(names, "|")+")$", "./"+pkg)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said, all := map[string][]string{}, []string{}
	lines := bufio.NewScanner(pipe)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue
		}
		top, _, _ := strings.Cut(e.Test, "/")
		switch e.Action {
		case "output":
			if text := strings.TrimSpace(e.Output); text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
				said[top], all = append(said[top], text), append(all, text)
			}
		case "pass", "fail", "skip":
			if e.Test == top && top != "" {
				verdicts[pkg+"."+top] = verdict{e.Action, strings.Join(last(said[top], 3), " | ")}
			}
		}
	}
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintln(os.Stderr, strings.Join(last(all, 40), "\n"))
	}
	return lines.Err()
}

func last(list []string, n int) []string { return list[max(0, len(list)-n):] }
