package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"searchloop/internal/fail"
	"searchloop/internal/secret"
)

// Main parses the command line, runs cmd and ends the process with the exit code
// that docs/jobs.md promises. help is one sentence.
func Main(name, help string, cmd Command) {
	os.Exit(Exec(name, help, cmd, os.Args[1:], os.Stdout, os.Stderr))
}

// Exec is Main without the end of the process: it returns the exit code. It
// handles the process's signals while it runs.
func Exec(name, help string, cmd Command, args []string, stdout, stderr io.Writer) int {
	errs := secret.Scrubber(stderr)
	f, done, err := parse(name, help, cmd, args, stdout)
	if done {
		return 0
	}
	if err != nil {
		tell(errs, name, err)
		return fail.ExitCode(err)
	}
	r := NewRun(name, *f, stdout, stderr)
	if r.PrintRecipe {
		err = r.printRecipe()
	} else {
		var stop func()
		var ctx context.Context
		ctx, stop = r.handleSignals(errs)
		err = r.call(ctx, cmd)
		stop()
		err = r.finish(err)
	}
	r.screen.close()
	if err != nil {
		tell(errs, name, err)
	}
	return fail.ExitCode(err)
}

// tell prints the last line of a job that did not end well.
func tell(w io.Writer, name string, err error) {
	if fail.KindOf(err) == fail.Disk {
		err = fail.WithHint(err, "free space or mend the disk and run the same command again: what is finished is kept")
	}
	fmt.Fprintf(w, "%s: %s\n", name, strings.TrimPrefix(err.Error(), name+": "))
}

// parse fills cmd and says when only help was asked for.
func parse(name, help string, cmd Command, args []string, stdout io.Writer) (f *Flags, done bool, err error) {
	carrier, ok := cmd.(interface{ flags() *Flags })
	if !ok {
		return nil, false, fail.New(fail.Bug, name, "", "%T does not embed job.Flags", cmd)
	}
	type exit struct{}
	defer func() {
		if p := recover(); p != nil {
			if _, ok := p.(exit); !ok {
				panic(p)
			}
			f, done, err = nil, true, nil
		}
	}()
	parser, err := kong.New(cmd, kong.Name(name), kong.Description(help), kong.Writers(stdout, stdout),
		kong.Exit(func(int) { panic(exit{}) }), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 120}))
	if err != nil {
		return nil, false, fail.Wrap(fail.Bug, name, "", err)
	}
	if _, ok := cmd.(interface{ serves() }); ok {
		for _, f := range parser.Model.Flags {
			f.Hidden = f.Hidden || slices.Contains(ofDatasets, f.Name)
		}
	}
	if _, err := parser.Parse(doubleDashes(args, parser.Model)); err != nil {
		if flag, _, ok := strings.Cut(err.Error(), ": expected "); ok && strings.HasSuffix(err.Error(), "(<EOL>)") {
			err = errors.New(flag + " needs a value")
		}
		return nil, false, &fail.Error{Kind: fail.Usage, Err: err, Hint: "see " + name + " --help"}
	}
	f = carrier.flags()
	if f.ShowVersion {
		fmt.Fprintln(stdout, name, Version)
		return nil, true, nil
	}
	if f.Grace < 0 {
		return nil, false, fail.New(fail.Usage, "--grace", "", "%v is negative", f.Grace)
	}
	return f, false, nil
}

// doubleDashes turns -dry-run into --dry-run: a single dash before the full name
// of a flag is accepted too, as Go programs do.
func doubleDashes(args []string, model *kong.Application) []string {
	known := map[string]bool{}
	for _, group := range model.AllFlags(false) {
		for _, f := range group {
			known[f.Name] = true
			if f.Tag.Negatable != "" {
				known["no-"+f.Name] = true
			}
		}
	}
	out := make([]string, 0, len(args))
	for i, a := range args {
		if a == "--" {
			return append(out, args[i:]...)
		}
		long, _, _ := strings.Cut(strings.TrimPrefix(a, "-"), "=")
		if strings.HasPrefix(a, "-") && len(long) > 1 && known[long] {
			a = "-" + a
		}
		out = append(out, a)
	}
	return out
}

// call runs the command and turns a panic into an error, so that the summary is
// written and the code is 1 and not Go's 2.
func (r *Run) call(ctx context.Context, cmd Command) (err error) {
	defer func() {
		if p := recover(); p != nil {
			r.Log.Error("panic", "stack", string(debug.Stack()))
			err = fail.New(fail.Bug, r.Name, "", "panic: %v", p)
		}
	}()
	return cmd.Run(ctx, r)
}

// finish closes what the command left open, decides the final error, and writes
// summaries and the result.
func (r *Run) finish(err error) error {
	if r.Stopped() && (err == nil && r.unfinished() || errors.Is(err, context.Canceled) || fail.KindOf(err) == fail.Interrupted) {
		err = r.Interrupted()
	}
	for _, d := range r.datasets {
		d.close()
	}
	for _, p := range r.progress {
		p.Done()
	}
	complete := err == nil || fail.KindOf(err) == fail.Bound
	if r.JSON && r.result != nil && complete {
		if perr := r.Print(r.result); err == nil {
			err = perr
		}
	}
	if serr := r.summarise(err); err == nil {
		err = serr
	}
	return err
}

// Print prints v as results are printed: JSON, indented.
func (r *Run) Print(v any) error {
	e := json.NewEncoder(r.Out)
	e.SetIndent("", "  ")
	return fail.Wrap(fail.Disk, "print result", "stdout", e.Encode(v))
}

// unfinished says whether a dataset of this run lacks shards that are its own.
func (r *Run) unfinished() bool {
	for _, d := range r.datasets {
		if !d.DryRun() && !d.settled() {
			return true
		}
	}
	return false
}

func (r *Run) printRecipe() error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	text, err := rec.YAML()
	if err != nil {
		return fail.Wrap(fail.Bug, "print recipe", "", err)
	}
	_, err = r.Out.Write(text)
	return fail.Wrap(fail.Disk, "print recipe", "stdout", err)
}
