package job

import (
	"bytes"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/internal/secret"
)

// Run is one execution of a command: its flags, its streams, and what it has made
// so far. Its methods are safe for concurrent use.
type Run struct {
	Flags
	Name string
	Log  *slog.Logger
	Out  io.Writer // results, for programs and people; stdout

	began    time.Time
	stopping chan struct{}
	stopOnce sync.Once
	screen   *screen

	mu       sync.Mutex
	datasets []*Dataset
	progress []*Progress
	result   any
}

// NewRun makes a Run without a process around it. Log lines go to log. It handles
// no signals: Stop does what the first signal would.
func NewRun(name string, f Flags, out, log io.Writer) *Run {
	if f.ProgressMode == "" {
		f.ProgressMode = "auto"
	}
	s := newScreen(log)
	return &Run{
		Flags: f, Name: name, Out: secret.Scrubber(out), Log: slog.New(slog.NewTextHandler(secret.Scrubber(s), nil)),
		began: time.Now(), stopping: make(chan struct{}), screen: s,
	}
}

// TB is the part of testing.TB that Testing needs.
type TB interface {
	Helper()
	Logf(format string, args ...any)
}

// Testing makes a Run for a test: logs and results go to the test's log, no
// progress is shown. Set its Flags before the first call of Dataset.
func Testing(t TB) *Run {
	t.Helper()
	return NewRun("test", Flags{ProgressMode: "none"}, testLog{t}, testLog{t})
}

type testLog struct{ t TB }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Helper()
	l.t.Logf("%s", bytes.TrimRight(p, "\n"))
	return len(p), nil
}

// Stopping is closed at the first SIGTERM or SIGINT: take no new samples, end
// those in flight, return.
func (r *Run) Stopping() <-chan struct{} { return r.stopping }

// Stop closes Stopping.
func (r *Run) Stop() { r.stopOnce.Do(func() { close(r.stopping) }) }

// Stopped says whether Stopping is closed.
func (r *Run) Stopped() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}

// Interrupted is the error of a job that ends early because of Stopping, and nil
// when nothing asked it to.
func (r *Run) Interrupted() error {
	if !r.Stopped() {
		return nil
	}
	return &fail.Error{Kind: fail.Interrupted, Hint: "what is finished is kept; run the same command again to continue"}
}

// Recipe loads the recipe that --recipe and --set say. The caller's Params should
// hold only the sections that its output depends on.
func (r *Run) Recipe() (*recipe.Recipe, error) {
	if r.RecipePath == "" {
		return nil, fail.WithHint(fail.New(fail.Usage, "", "", "no recipe"), "add --recipe NAME, for example --recipe demo")
	}
	return recipe.Load(r.RecipePath, r.Set)
}

// Result records what the job found out. With --json it is printed on stdout as
// JSON when the job ends; it is kept in the summary either way.
func (r *Run) Result(v any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.result = v
}

// recipeFiles are the files that a recipe named by --recipe can be made of.
func (r *Run) recipeFiles() []string {
	if r.RecipePath == "" {
		return nil
	}
	if !strings.ContainsAny(r.RecipePath, "/.") {
		return []string{filepath.Join(recipe.Dir, r.RecipePath+".yaml")}
	}
	return []string{r.RecipePath}
}
