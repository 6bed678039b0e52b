package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// toy is a job that writes one line for each key its shard owns, journaled key by
// key: small enough to see through, and like the real ones in every promise.
type toy struct {
	Flags
	In    string  `help:"Input file."`
	Out   string  `help:"Output folder."`
	Rows  int     `default:"12"`
	LR    float64 `default:"1e-6"`
	Sleep time.Duration
	Hang  bool   // never end a row: wait for ctx
	Deaf  bool   // never end a row and do not even look at ctx
	Gate  string // do not begin a row before this file is there

	made   int // keys worked on in this run
	stopAt int // Stop after so many rows
}

func (c *toy) Run(ctx context.Context, r *Run) error {
	d, err := r.Dataset(Spec{Dir: c.Out, Schema: "toy", Version: 1, Ext: "jsonl",
		Inputs: map[string]string{"source": c.In}, Params: map[string]any{"rows": c.Rows, "grpo": map[string]any{"lr": c.LR}}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	p := r.Progress("rows", int64(c.Rows))
	defer p.Done()
	for _, sh := range d.Todo() {
		if err := c.shard(ctx, r, d, sh, p); err != nil {
			return err
		}
	}
	return d.Seal(map[string]int{"rows": c.Rows})
}

func (c *toy) shard(ctx context.Context, r *Run, d *Dataset, sh shard.Spec, p *Progress) error {
	s, err := d.Begin(sh)
	if s == nil || err != nil {
		return err
	}
	defer s.Discard()
	j, err := s.Journal()
	if err != nil {
		return err
	}
	var keys []string
	var counts manifest.Counts
	for i := range c.Rows {
		key := fmt.Sprintf("k%03d", i)
		if !sh.Owns(key) {
			continue
		}
		counts.In++
		if i%5 == 4 {
			s.Reject(c.In, int64(i+1), key, fail.New(fail.BadInput, "read", "", "every fifth is bad"))
			continue
		}
		keys = append(keys, key)
		if j.Has(key) {
			counts.Reused++
			p.Skip(1)
			continue
		}
		if r.Stopped() {
			return r.Interrupted()
		}
		for c.Gate != "" {
			if _, err := os.Stat(c.Gate); err == nil {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if c.Deaf || c.Hang {
			os.WriteFile(c.Out+".hangs", nil, 0o644)
		}
		if c.Deaf {
			select {}
		}
		if c.Hang {
			<-ctx.Done()
			return fail.Wrap(fail.Service, "call", "http://x", ctx.Err())
		}
		select {
		case <-time.After(c.Sleep):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := j.Append(key, fmt.Appendf(nil, "{\"key\":%q,\"v\":%d}\n", key, i*i)); err != nil {
			return err
		}
		c.made++
		p.Add(1, 0)
		if c.made == c.stopAt {
			r.Stop()
		}
	}
	part, err := s.Part()
	if err != nil {
		return err
	}
	for _, k := range keys {
		row, ok := j.Get(k)
		if !ok {
			return fail.New(fail.Bug, "toy", "", "no %s", k)
		}
		if _, err := part.Write(row); err != nil {
			return err
		}
	}
	extra, err := s.Extra(sh.Name("notes", "txt"))
	if err != nil {
		return err
	}
	fmt.Fprintf(extra, "%d keys\n", len(keys))
	counts.OK = int64(len(keys))
	return s.Commit(int64(len(keys)), counts)
}

// world is a folder with an input file.
func world(t *testing.T) (in, out string) {
	t.Helper()
	dir := t.TempDir()
	in, out = filepath.Join(dir, "in.txt"), filepath.Join(dir, "data", "out")
	old := time.Now().Add(-time.Hour)
	if err := os.WriteFile(in, []byte("input"), 0o644); err != nil {
		t.Fatal(err)
	}
	os.Chtimes(in, old, old)
	return in, out
}

// exec runs the toy as a process would and returns the exit code and its streams.
func exec(t *testing.T, c *toy, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Exec("toy", "A toy.", c, args, &o, &e)
	return code, o.String(), e.String()
}

func mustRun(t *testing.T, args ...string) *toy {
	t.Helper()
	c := new(toy)
	if code, _, stderr := exec(t, c, args...); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	return c
}

// tree is path → digest of every file below dir but those whose content may
// differ between equal runs.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		if filepath.Ext(p) == ".json" {
			m, err := manifest.Read(p)
			if err != nil {
				return err
			}
			files[rel] = m.Content()
			return nil
		}
		text, err := os.ReadFile(p)
		files[rel] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func sameTree(t *testing.T, a, b map[string]string) {
	t.Helper()
	var diff []string
	for k, v := range a {
		if b[k] != v {
			diff = append(diff, k+" differs or is missing")
		}
	}
	for k := range b {
		if _, ok := a[k]; !ok {
			diff = append(diff, k+" is too much")
		}
	}
	sort.Strings(diff)
	if len(diff) > 0 {
		t.Fatalf("the folders differ:\n%s", strings.Join(diff, "\n"))
	}
}

func TestMakesADataset(t *testing.T) {
	in, out := world(t)
	c := mustRun(t, "--in", in, "--out", out, "--shards", "3")
	m, err := manifest.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Verify(out); err != nil {
		t.Fatal(err)
	}
	if c.made != 10 || m.Rows() != 10 || m.Counts != (manifest.Counts{In: 12, OK: 10, Rejected: 2}) {
		t.Fatalf("made %d, %d rows, %+v", c.made, m.Rows(), m.Counts)
	}
	if len(m.Data()) != 3 || string(m.Meta) != "{\n    \"rows\": 12\n  }" && string(manifest.Canonical(m.Meta)) != `{"rows":12}` {
		t.Fatalf("%v %s", m.Data(), m.Meta)
	}
	if _, err := os.Stat(filepath.Join(out, ".work")); err == nil {
		t.Error(".work is left")
	}
	var rejects []string
	for _, p := range m.Parts {
		if strings.HasPrefix(p.Name, "rejects-") {
			text, _ := os.ReadFile(filepath.Join(out, p.Name))
			rejects = append(rejects, strings.Split(strings.TrimSpace(string(text)), "\n")...)
		}
	}
	sort.Strings(rejects)
	want := fmt.Sprintf(`{"path":%q,"row":10,"sample":"k009","kind":"bad input","reason":"read: every fifth is bad"}`, in)
	if len(rejects) != 2 || rejects[0] != want {
		t.Errorf("rejects %q, want first %s", rejects, want)
	}
}

// Sum of all runs' summaries is what make cannot tell.
func summary(t *testing.T, path string) (s Summary) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNothingToDo(t *testing.T) {
	in, out := world(t)
	mustRun(t, "--in", in, "--out", out)
	before, _ := os.Stat(manifest.Path(out))
	started := time.Now()
	c := new(toy)
	code, _, stderr := exec(t, c, "--in", in, "--out", out)
	if code != 0 || c.made != 0 || !strings.Contains(stderr, "nothing to do") {
		t.Fatalf("exit %d, made %d\n%s", code, c.made, stderr)
	}
	if d := time.Since(started); d > 10*time.Second {
		t.Errorf("took %v", d)
	}
	after, _ := os.Stat(manifest.Path(out))
	if !after.ModTime().Equal(before.ModTime()) {
		t.Error("the manifest was touched although nothing is newer")
	}
	s := summary(t, out+".summary.json")
	if s.Exit != 0 || s.Kind != "complete" || s.Counts.OK != 10 || s.Job != "toy" {
		t.Errorf("%+v", s)
	}
}

// A touched but equal input makes make run the job once more, and never again.
func TestTouchedInput(t *testing.T) {
	in, out := world(t)
	mustRun(t, "--in", in, "--out", out)
	text, _ := os.ReadFile(manifest.Path(out))
	past := time.Now().Add(-10 * time.Second)
	os.Chtimes(manifest.Path(out), past, past)
	os.Chtimes(in, past.Add(time.Second), past.Add(time.Second))
	if c := mustRun(t, "--in", in, "--out", out); c.made != 0 {
		t.Fatal("equal input was taken for another")
	}
	i, _ := os.Stat(in)
	m, _ := os.Stat(manifest.Path(out))
	if !m.ModTime().After(i.ModTime()) {
		t.Error("the manifest is still older than its input")
	}
	if again, _ := os.ReadFile(manifest.Path(out)); !bytes.Equal(text, again) {
		t.Error("the content was rewritten")
	}
}

func TestStaleReasons(t *testing.T) {
	in, out := world(t)
	mustRun(t, "--in", in, "--out", out)
	code, stdout, _ := exec(t, new(toy), "--in", in, "--out", out, "-dry-run", "-lr=2e-6")
	if code != 0 || !strings.Contains(stdout, "params changed: grpo.lr (0.000001 → 0.000002)") && !strings.Contains(stdout, "params changed: grpo.lr (1e-06 → 2e-06)") {
		t.Fatalf("exit %d\n%s", code, stdout)
	}
	if _, err := manifest.Open(out); err != nil {
		t.Fatal("a dry run changed the folder: ", err)
	}
	os.WriteFile(in, []byte("other"), 0o644)
	code, stdout, _ = exec(t, new(toy), "--in", in, "--out", out, "-n", "--json")
	var plans []Plan
	if err := json.Unmarshal([]byte(stdout), &plans); err != nil || code != 0 {
		t.Fatalf("exit %d, %v\n%s", code, err, stdout)
	}
	p := plans[0]
	if p.Complete || len(p.Stale) != 1 || p.Stale[0] != "input source changed" || p.Shards[0].State != "stale" {
		t.Fatalf("%+v", p)
	}
	c := mustRun(t, "--in", in, "--out", out)
	if c.made != 10 {
		t.Errorf("made %d", c.made)
	}
}

// Another number of shards is another layout: nothing of the old one stays.
func TestOtherLayout(t *testing.T) {
	in, out := world(t)
	mustRun(t, "--in", in, "--out", out, "--shards", "3")
	mustRun(t, "--in", in, "--out", out) // N not said: what is there is fine
	mustRun(t, "--in", in, "--out", out, "--shards", "2")
	_, fresh := world(t)
	mustRun(t, "--in", in, "--out", fresh, "--shards", "2")
	sameTree(t, tree(t, fresh), tree(t, out))
}

func TestShardsShareNothing(t *testing.T) {
	in, out := world(t)
	for _, i := range []int{2, 0, 1} {
		if _, err := manifest.Open(out); err == nil {
			t.Fatal("finished too early")
		}
		mustRun(t, "--in", in, "--out", out, "--shard", fmt.Sprintf("%d/3", i))
	}
	_, whole := world(t)
	mustRun(t, "--in", in, "--out", whole, "--shards=3")
	sameTree(t, tree(t, whole), tree(t, out))
	if s := summary(t, out+".summary-00001-of-00003.json"); s.Shard != "1/3" || s.Exit != 0 {
		t.Errorf("%+v", s)
	}
}

func TestArrayIndexFromEnvironment(t *testing.T) {
	in, out := world(t)
	t.Setenv("SLURM_ARRAY_TASK_ID", "1")
	mustRun(t, "--in", in, "--out", out, "--shards", "2")
	if _, err := os.Stat(filepath.Join(out, "part-00001-of-00002.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(out, "part-00000-of-00002.json")); err == nil {
		t.Fatal("made another task's shard")
	}
	t.Setenv("SLURM_ARRAY_TASK_ID", "2")
	if code, _, stderr := exec(t, new(toy), "--in", in, "--out", out, "--shards", "2"); code != 2 || !strings.Contains(stderr, "0-1") {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	_, alone := world(t) // without --shards the environment means nothing
	mustRun(t, "--in", in, "--out", alone)
}

// A run that stops after any number of rows goes on where it stopped, and ends
// with the same bytes as a quiet one.
func TestStopAndContinue(t *testing.T) {
	in, quiet := world(t)
	mustRun(t, "--in", in, "--out", quiet, "--shards", "2")
	want := tree(t, quiet)
	for stop := 1; stop <= 10; stop++ {
		_, out := world(t)
		c := &toy{stopAt: stop}
		code, _, stderr := exec(t, c, "--in", in, "--out", out, "--shards", "2")
		if stop < 10 && (code != 75 || !strings.Contains(stderr, "run the same command again")) {
			t.Fatalf("stop at %d: exit %d\n%s", stop, code, stderr)
		}
		if s := summary(t, out+".summary.json"); s.Exit != code || stop < 10 && !s.Resumable {
			t.Fatalf("%+v", s)
		}
		if stop < 10 {
			if _, err := manifest.Open(out); err == nil {
				t.Fatal("an unfinished dataset has a manifest")
			}
		}
		if again := mustRun(t, "--in", in, "--out", out, "--shards", "2"); again.made+c.made != 10 {
			t.Fatalf("stop at %d: %d and then %d rows made", stop, c.made, again.made)
		}
		sameTree(t, want, tree(t, out))
	}
}

func TestFresh(t *testing.T) {
	in, out := world(t)
	exec(t, &toy{stopAt: 4}, "--in", in, "--out", out)
	if c := mustRun(t, "--in", in, "--out", out, "--fresh"); c.made != 10 {
		t.Errorf("--fresh kept %d rows of the journal", 10-c.made)
	}
	if c := mustRun(t, "--in", in, "--out", out, "--fresh"); c.made != 10 {
		t.Errorf("--fresh made %d rows of a finished dataset", c.made)
	}
}

// Going back to earlier parameters finds the journal of the time.
func TestJournalOfOtherParams(t *testing.T) {
	in, out := world(t)
	exec(t, &toy{stopAt: 4}, "--in", in, "--out", out)
	exec(t, &toy{stopAt: 2}, "--in", in, "--out", out, "--lr=1")
	if c := mustRun(t, "--in", in, "--out", out); c.made != 6 {
		t.Errorf("made %d rows, want the missing 6", c.made)
	}
}

func TestUsage(t *testing.T) {
	in, out := world(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--no-such-flag"}, 2, "toy --help"},
		{[]string{"--shard", "3/3", "--in", in, "--out", out}, 2, "0 <= I < N"},
		{[]string{"--shard", "1/3", "--shards", "4", "--in", in, "--out", out}, 2, "contradicts"},
		{[]string{"--progress", "loud"}, 2, "must be one of"},
		{[]string{"--in", in}, 2, "no output folder"},
		{[]string{"--grace=-1s"}, 2, "negative"},
		{[]string{"--in", filepath.Join(out, "nothing"), "--out", out}, 65, "no such file"},
		{[]string{"--in", filepath.Dir(in), "--out", out}, 65, "no manifest.json"},
		{[]string{"--print-recipe"}, 2, "--recipe"},
	} {
		code, _, stderr := exec(t, new(toy), c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, want %d with %q:\n%s", c.args, code, c.code, c.want, stderr)
		}
		if n := strings.Count(stderr, "\n"); n != 1 {
			t.Errorf("%v: the error takes %d lines:\n%s", c.args, n, stderr)
		}
	}
	if code, stdout, _ := exec(t, new(toy), "--help"); code != 0 || !strings.Contains(stdout, "--dry-run") || !strings.Contains(stdout, "A toy.") {
		t.Errorf("help: exit %d\n%s", code, stdout)
	}
	if code, stdout, _ := exec(t, new(toy), "-version"); code != 0 || stdout != "toy "+Version+"\n" {
		t.Errorf("version: exit %d %q", code, stdout)
	}
}

type panicky struct{ Flags }

func (*panicky) Run(context.Context, *Run) error { panic("oh") }

type giver struct {
	Flags
	Out string
}

func (c *giver) Run(_ context.Context, r *Run) error {
	r.Result(map[string]float64{"accuracy": 0.5})
	_, err := r.Dataset(Spec{Dir: c.Out, Schema: "x"})
	if err != nil {
		return err
	}
	return &fail.Error{Kind: fail.Bound, Err: errors.New("too many rejects")}
}

func TestPanicIsABug(t *testing.T) {
	var e bytes.Buffer
	if code := Exec("p", "", new(panicky), nil, io.Discard, &e); code != 1 || !strings.Contains(e.String(), "panic: oh") {
		t.Fatalf("exit %d\n%s", code, e.String())
	}
}

func TestResult(t *testing.T) {
	out := filepath.Join(t.TempDir(), "d")
	var o bytes.Buffer
	if code := Exec("g", "", new(giver), []string{"--json", "--out", out}, &o, io.Discard); code != 3 {
		t.Fatalf("exit %d", code)
	}
	if s := summary(t, out+".summary.json"); s.Exit != 3 || s.Kind != "bound" || fmt.Sprint(s.Result) != "map[accuracy:0.5]" {
		t.Fatalf("%+v", s)
	}
}
