package nightly

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"searchloop/eval/report"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/launch"
	"searchloop/internal/manifest"
	"searchloop/internal/secret"
	"searchloop/internal/shard"
)

// Options of Run.
type Options struct {
	Run     string   // folder of the run
	Epochs  []int    // checkpoints
	Benches []string // default: what the recipe says, or else Bench
	Bench   string
	Night   string   // folder's name; "": the day
	Start   string   // folder of the user's that is the policy of epoch 0, if any
	Served  bool     // a server plays the policy: no checkpoint is needed
	Live    bool     // searches live and records; else a recipe that searches live needs Frozen
	Frozen  string   // record that answers live searches
	Against string   // night to compare with; "": the last good one
	MaxDrop *float64 // nil: what the recipe says
	Make    []string // command line of make that knows the run's variables
	Webhook secret.Value
}

// Result is result.json, what the webhook gets, and the line that is printed: a
// night's end. Its keys are a contract; see docs/nightly.md.
type Result struct {
	Schema     int       `json:"schema"` // 1
	Night      string    `json:"night"`
	Run        string    `json:"run"`
	Search     string    `json:"search"`
	Exit       int       `json:"exit"` // 0, 3 with a regression, another code when the night was given up
	Regression bool      `json:"regression"`
	Error      string    `json:"error,omitempty"` // of a night that was given up
	Outcomes   []Outcome `json:"outcomes"`
	Seconds    float64   `json:"seconds"` // of the firing that ended it
	Page       string    `json:"page"`
}

// Run finishes nights that were cut off and then holds tonight's. One that runs
// already is let run: that is said, and no error.
func Run(ctx context.Context, r *job.Run, o Options) error {
	o.Benches = benches(r, &o)
	if err := o.check(r); err != nil {
		return err
	}
	dir := filepath.Join(o.Run, "nights")
	release, holder, err := job.TryLock(filepath.Join(dir, ".lock"))
	if err != nil {
		return err
	}
	if release == nil {
		fmt.Fprintf(r.Out, "nightly: the last one is still running (%s)\n", holder)
		return nil
	}
	defer release()
	if err := atomicfile.Sweep(dir); err != nil {
		return err
	}
	h := &house{Options: o, r: r, dir: dir}
	all, err := nights(dir)
	if err != nil {
		return err
	}
	if h.rows, err = ReadHistory(dir); err != nil {
		return err
	}
	if err := h.mend(all); err != nil {
		return err
	}
	plan, err := planned(&o, time.Now())
	if err != nil {
		return err
	}
	var tonight *night
	for _, n := range all {
		last := n == all[len(all)-1]
		switch {
		case n.result != nil && last && n.Night == today(&o, n) && n.Plan.equal(plan) && !r.Fresh:
			r.Log.Info("nothing to do: this night has ended", "night", n.Night)
			return h.tell(n)
		case n.result != nil:
		case last && n.Night == today(&o, n) && n.Plan.equal(plan):
			tonight = n
		default:
			r.Log.Info("finishing a night that was cut off", "night", n.Night)
			if err := h.old(ctx, n); err != nil {
				return err
			}
		}
	}
	if tonight == nil {
		if tonight, err = begin(dir, plan, time.Now()); err != nil {
			return err
		}
	} else {
		r.Log.Info("going on with a night that was cut off", "night", tonight.Night)
	}
	if err := h.hold(ctx, tonight); err != nil {
		if !r.Stopped() && ctx.Err() == nil {
			h.notify(ctx, &Result{Schema: 1, Night: tonight.Night, Run: tonight.Run, Search: tonight.Search, Exit: fail.ExitCode(err), Error: secret.Scrub(err.Error()), Outcomes: []Outcome{}})
		}
		return err
	}
	return h.tell(tonight)
}

// today is the name that a night must have to be this firing's.
func today(o *Options, n *night) string {
	if o.Night != "" {
		return o.Night
	}
	if day := time.Now().Format(time.DateOnly); n.Night == day || strings.HasPrefix(n.Night, day+".") {
		return n.Night
	}
	return ""
}

func benches(r *job.Run, o *Options) []string {
	if len(o.Benches) > 0 {
		return o.Benches
	}
	if rec, err := r.Recipe(); err == nil && len(rec.Eval.Nightly.Benchmarks) > 0 {
		return rec.Eval.Nightly.Benchmarks
	}
	return []string{o.Bench}
}

// check refuses what no night could do, and fills in what the recipe says.
func (o *Options) check(r *job.Run) error {
	rec, err := r.Recipe()
	if err != nil {
		return err
	}
	if o.MaxDrop == nil && rec.Eval.Nightly.MaxDrop > 0 {
		o.MaxDrop = &rec.Eval.Nightly.MaxDrop
	}
	live := rec.Retrieval.Web != "" || rec.Retrieval.Images != "" || rec.Retrieval.Lens != "" || rec.Retrieval.Crops != "" || rec.Retrieval.Pages != ""
	switch {
	case len(o.Make) == 0:
		return fail.WithHint(fail.New(fail.Usage, "", "", "no command line of make"), "make nightly gives it")
	case len(o.Epochs) == 0 || slices.Min(o.Epochs) < 0:
		return fail.New(fail.Usage, "", "", "--epoch is needed, from 0 on")
	case strings.ContainsAny(o.Night, "/ ") || strings.HasPrefix(o.Night, "."):
		return fail.New(fail.Usage, "", "", "--night %q is no name of a folder", o.Night)
	case o.Live && o.Frozen != "":
		return fail.New(fail.Usage, "", "", "a night searches live or is frozen, not both")
	case live && !o.Live && o.Frozen == "":
		return fail.WithHint(fail.New(fail.Usage, "", "", "the recipe searches live, and a night is frozen"), "LIVE=1 lets it search and records it; FROZEN=RUN/nights/NIGHT/tape answers from such a record")
	case !live && o.Live:
		return fail.New(fail.Usage, "", "", "the recipe searches nothing live")
	}
	return nil
}

// house is what the nights of one firing share.
type house struct {
	Options
	r    *job.Run
	dir  string
	rows []Row
}

// old finishes a night that an earlier firing began. What stands in its way stood
// there twice then: the night is given up, so that it does not hold up all later ones.
func (h *house) old(ctx context.Context, n *night) error {
	err := h.hold(ctx, n)
	if err == nil || h.r.Stopped() || ctx.Err() != nil || fail.KindOf(err) == fail.Disk {
		return err
	}
	h.r.Log.Warn("the night is given up", "night", n.Night, "because", err)
	n.result = &Result{Schema: 1, Night: n.Night, Run: n.Run, Search: n.Search, Exit: fail.ExitCode(err), Error: secret.Scrub(err.Error()), Outcomes: []Outcome{}}
	return h.write(n)
}

// hold makes all evaluations of a night and ends it.
func (h *house) hold(ctx context.Context, n *night) error {
	began := time.Now()
	res := &Result{Schema: 1, Night: n.Night, Run: n.Run, Search: n.Search, Outcomes: []Outcome{}, Page: filepath.Join(h.dir, "trends.html")}
	var errs []error
	for _, b := range n.Benches {
		for _, e := range n.Epochs {
			if err := h.r.Interrupted(); err != nil {
				return err
			}
			if err := h.make(ctx, n, b, e); err != nil {
				if h.r.Stopped() || ctx.Err() != nil {
					return h.r.Interrupted()
				}
				h.r.Log.Error("an evaluation of the night failed", "bench", b, "epoch", e, "error", err)
				errs = append(errs, err)
				continue
			}
			o, err := h.enter(n, b, e)
			if err != nil {
				return err
			}
			res.Outcomes = append(res.Outcomes, *o)
			res.Regression = res.Regression || o.Regression
		}
	}
	if len(errs) > 0 { // the other benchmarks are in the history; the next firing takes these again
		return errs[0]
	}
	for _, b := range n.Benches {
		if err := h.page(ctx, n, b); err != nil {
			return err
		}
	}
	res.Seconds = time.Since(began).Seconds()
	if res.Regression {
		res.Exit = fail.Bound.ExitCode()
	}
	n.result = res
	if err := h.trends(n); err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(n.dir, "summary.txt"), []byte(secret.Scrub(summary(n, h.MaxDrop)))); err != nil {
		return err
	}
	h.notify(ctx, res) // before the end is written: a night that is cut off here is told twice, not never
	return h.write(n)
}

// enter adds the row of a finished evaluation to the history.
func (h *house) enter(n *night, bench string, epoch int) (*Outcome, error) {
	row, err := rowOf(n, bench, epoch)
	if err != nil {
		return nil, err
	}
	o, err := compare(h.Options.Run, row, baseline(h.Options.Run, h.rows, row, h.Against), h.MaxDrop)
	if err != nil {
		return nil, err
	}
	h.rows, err = add(h.dir, h.rows, row)
	return o, err
}

// mend enters what finished nights have and the history lacks: it was moved away.
func (h *house) mend(all []*night) error {
	for _, n := range all {
		if n.result == nil || n.result.Error != "" {
			continue
		}
		for _, b := range n.Benches {
			for _, e := range n.Epochs {
				if _, err := os.Stat(manifest.Path(n.eval(b, e))); err != nil {
					continue // its folder was removed
				}
				if _, err := h.enter(n, b, e); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// write ends a night: result.json is one line.
func (h *house) write(n *night) error {
	text, err := json.Marshal(n.result)
	if err != nil {
		return fail.Wrap(fail.Bug, "end the night", n.dir, err)
	}
	return atomicfile.WriteFile(filepath.Join(n.dir, resultFile), append(text, '\n'))
}

// tell prints a night's summary and its line, and says with the code what it found.
func (h *house) tell(n *night) error {
	h.r.Result(n.result)
	if !h.r.JSON {
		text, err := os.ReadFile(filepath.Join(n.dir, "summary.txt"))
		if err == nil {
			h.r.Out.Write(text)
		}
		line, err := os.ReadFile(filepath.Join(n.dir, resultFile))
		if err != nil {
			return fail.Wrap(fail.Disk, "read the night", n.dir, err)
		}
		h.r.Out.Write(line)
	}
	for _, o := range n.result.Outcomes {
		if o.Regression {
			return o.Comparison.Bound(o.MaxDrop)
		}
	}
	return nil
}

// make has make play, judge and score one benchmark. Its output is in the night's
// folder.
func (h *house) make(ctx context.Context, n *night, bench string, epoch int) error {
	// launch.Process: it ends with the thread that began it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	log := filepath.Join(n.dir, fmt.Sprintf("%s-epoch-%d.log", bench, epoch))
	f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return fail.Wrap(fail.Disk, "begin an evaluation", log, err)
	}
	defer f.Close()
	args := []string{"V=" + n.bench(bench), "BENCH=" + bench, fmt.Sprint("EPOCH=", epoch)}
	if n.Search == Live {
		args = append(args, "RECORD="+filepath.Join(n.dir, "tape"))
	}
	// The checkpoint is taken as it is: a recipe that has changed since must not train it again.
	args = append(args, "-o", manifest.Path(checkpoint(h.Options.Run, epoch)), manifest.Path(n.eval(bench, epoch)))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-h.r.Stopping():
			stop()
		case <-ctx.Done():
		}
	}()
	for again := false; ; again = true {
		h.r.Log.Info("evaluating", "night", n.Night, "bench", bench, "epoch", epoch, "output", log)
		cmd := launch.Process(ctx, h.Make, args...)
		cmd.Stdout, cmd.Stderr = f, f
		err := cmd.Run()
		if err == nil {
			return nil
		}
		kind, why := stageError(n.eval(bench, epoch))
		// A stage that is complete and broke its own bound stops make once; the next one goes on behind it.
		if kind == fail.Bound && !again && ctx.Err() == nil {
			h.r.Log.Warn("a stage broke its bound, and the night goes on", "bench", bench, "epoch", epoch, "because", why)
			continue
		}
		return fail.WithHint(fail.New(kind, "evaluate "+bench, n.eval(bench, epoch), "%s", why), "see "+log)
	}
}

// stageError is the end of the stage that make stopped at, as its summary has it.
func stageError(dir string) (fail.Kind, string) {
	for _, d := range []string{dir, filepath.Join(dir, "judged"), filepath.Join(dir, "rollouts")} {
		var s job.Summary
		text, err := os.ReadFile(job.SummaryPath(d, shard.Spec{N: 1}))
		if err != nil || json.Unmarshal(text, &s) != nil || s.Exit == 0 {
			continue
		}
		if k, ok := fail.OfExit(s.Exit); ok {
			return k, s.Error
		}
	}
	return fail.BadInput, "make failed"
}

// page is the samples of a benchmark this night, beside those of the night it is
// compared with.
func (h *house) page(ctx context.Context, n *night, bench string) error {
	o := report.Options{Run: n.dir, Bench: bench, Out: filepath.Join(n.dir, bench+".html"), Images: report.Stores(h.Options.Run)}
	for i := range h.rows {
		r := &h.rows[i]
		if other := filepath.Join(h.dir, r.Against); r.Night == n.Night && r.Bench == bench && r.Against != "" && !slices.Contains(o.Also, other) {
			o.Also = append(o.Also, other)
		}
	}
	quiet := job.NewRun("nightly", job.Flags{RecipePath: h.r.RecipePath, Set: h.r.Set, JSON: true}, io.Discard, io.Discard)
	return report.Write(ctx, quiet, o) // its table of epochs is not for this night's output
}
