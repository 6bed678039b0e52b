package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// Options of Make.
type Options struct {
	Servers  []Server
	Attempts int           // so many attempts at a shard that bring it no further, and it is given up
	Latency  time.Duration // how long a file that a task has written may take to be seen here
	KeepLogs bool          // keep the tasks' output of a stage that ended well
}

// lost is how many times a shard may be lost with its node, without coming any
// further, before it is given up.
const lost = 10

// maker makes one dataset.
type maker struct {
	r   *job.Run
	s   Stage
	l   Launcher
	opt Options
	st  state
	dir string

	retry   bool         // --retry-failed, until the first round is over
	tries   map[int]*try // of the missing shards
	given   map[int]bool // up
	because fail.Kind    // the worst reason why
	words   []string
	stops   []func()
}

// try is what was tried at one shard.
type try struct {
	Failed  int   `json:"failed,omitempty"` // attempts since it last came further
	Lost    int   `json:"lost,omitempty"`   // likewise, with the node
	Journal int64 `json:"journal,omitempty"`
}

// Make makes the dataset of a stage. Its error says which shards are missing and
// why, with the kind of the worst of the reasons; run again it goes on.
func Make(ctx context.Context, r *job.Run, s Stage, l Launcher, opt Options) error {
	if len(s.Command) == 0 {
		return fail.WithHint(fail.New(fail.Usage, "", "", "no job to launch"), "add -- and its command line")
	}
	m := &maker{r: r, s: s, l: l, opt: opt, tries: map[int]*try{}, given: map[int]bool{}, because: fail.Interrupted}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-r.Stopping():
			cancel()
		case <-ctx.Done():
		}
	}()
	said := m.s.take("fresh", "retry-failed", "dry-run", "n", "json")
	m.retry = said["retry-failed"]
	for i, a := range m.s.Command { // the command is also carried out elsewhere, and by other programs
		if name, ok := strings.CutPrefix(a, "@"); ok && i > 0 {
			for _, sv := range opt.Servers {
				if sv.Name == name {
					m.s.Command[i] = "@" + m.serverFile(name)
				}
			}
		}
	}
	if r.DryRunFlag || said["dry-run"] || said["n"] {
		return m.plan(ctx, said["fresh"])
	}
	defer l.Close()
	return m.make(ctx, said["fresh"])
}

// serverFile is where the addresses of servers are; before the dataset's folder is
// known, the command is taken at its word.
func (m *maker) serverFile(name string) string {
	for i, a := range m.s.Command {
		if a == "--out" && i+1 < len(m.s.Command) {
			dir, err := filepath.Abs(Dir(m.s.Command[i+1]))
			if err == nil {
				return filepath.Join(dir, "servers-"+name)
			}
		}
	}
	return name
}

// flags are for one round of tasks and for the question before it.
func (m *maker) flags() []string {
	if m.retry {
		return []string{"--retry-failed"}
	}
	return nil
}

// array is the next round.
func (m *maker) array(ctx context.Context, round int, todo []int) (*Array, error) {
	room, err := m.l.Room(ctx, m.s.Needs)
	if err != nil {
		return nil, err
	}
	s := m.s
	s.Command = append(slices.Clone(s.Command), m.flags()...)
	return &Array{Stage: s, Out: m.st.out, N: m.st.n, Round: round, Tasks: group(todo, each(len(todo), room, m.s.Needs.Shards))}, nil
}

// plan prints what would be done.
func (m *maker) plan(ctx context.Context, fresh bool) error {
	flags := m.flags()
	if fresh {
		flags = append(flags, "--fresh")
	}
	if err := m.s.direct(ctx, append(slices.Clone(flags), "--dry-run", "--trust")...); err != nil {
		return err
	}
	var err error
	if m.st, err = m.s.ask(ctx, flags...); err != nil || m.st.complete {
		return err
	}
	a, err := m.array(ctx, 1, m.st.missing)
	if err != nil || len(m.st.missing) == 0 {
		return err
	}
	lines, err := m.l.Check(ctx, a)
	for _, line := range lines {
		fmt.Fprintln(m.r.Out, "  "+line)
	}
	return err
}

func (m *maker) make(ctx context.Context, fresh bool) (err error) {
	if m.st, err = m.s.ask(ctx, m.flags()...); err != nil {
		return err
	}
	m.dir = Dir(m.st.out)
	if m.st.complete && !fresh {
		m.leftOver()
		return m.s.direct(ctx)
	}
	release, holder, err := job.TryLock(filepath.Join(m.dir, "lock"))
	if err != nil {
		return err
	}
	if release == nil {
		m.r.Log.Info("the stage is being launched by "+holder, "dataset", m.st.out)
		return nil
	}
	defer release()
	if err := os.MkdirAll(Logs(m.st.out), 0o777); err != nil {
		return fail.Wrap(fail.Disk, "make folder", m.dir, err)
	}
	defer func() { // in any case
		for _, stop := range m.stops {
			stop()
		}
	}()
	m.recall()
	if err := m.l.Attach(ctx, &Array{Stage: m.s, Out: m.st.out, N: m.st.n}); err != nil {
		return err
	}
	if fresh {
		if err := startOver(m.st.out); err != nil {
			return err
		}
	}
	if m.st, err = m.s.ask(ctx, m.flags()...); err != nil {
		return err
	}
	if err := m.rounds(ctx); err != nil {
		return err
	}
	if err = m.s.direct(ctx, "--progress", "none"); err == nil || fail.KindOf(err) == fail.Bound {
		m.over()
	}
	return err
}

// over removes what was needed until now.
func (m *maker) over() {
	list, _ := filepath.Glob(m.st.out + ".summary-*-of-*.json")
	for _, f := range list {
		os.Remove(f)
	}
	if !m.opt.KeepLogs {
		os.RemoveAll(m.dir)
	}
}

// leftOver removes what a launcher left that was killed after its last shard was made.
func (m *maker) leftOver() {
	if _, err := os.Stat(m.dir); err != nil {
		return
	}
	if release, _, err := job.TryLock(filepath.Join(m.dir, "lock")); err == nil && release != nil {
		m.over()
		release()
	}
}

func (m *maker) rounds(ctx context.Context) (err error) {
	p := m.r.Progress("shards", int64(m.st.n))
	defer p.Done()
	p.Skip(int64(m.st.n - len(m.st.missing)))
	for round := 1; ; round++ {
		todo := slices.DeleteFunc(slices.Clone(m.st.missing), func(i int) bool { return m.given[i] })
		if len(todo) == 0 {
			break
		}
		if err := m.serve(ctx); err != nil {
			return err
		}
		a, err := m.array(ctx, round, todo)
		if err != nil {
			return err
		}
		m.r.Log.Info("launching", "job", m.s.Job, "round", round, "shards", numbers(todo, m.st.n), "tasks", len(a.Tasks))
		for _, i := range todo {
			m.try(i).Journal = m.journal(i)
			os.Remove(m.summary(i))
		}
		m.note()
		before := len(m.st.missing)
		ends, err := m.l.Run(ctx, a)
		if err != nil {
			return err
		}
		m.retry = false
		if err := m.settle(ctx, a, ends); err != nil {
			return err
		}
		p.Add(int64(before-len(m.st.missing)), 0)
		m.verdicts(a, ends)
		m.note()
	}
	if len(m.st.missing) == 0 {
		return nil
	}
	return &fail.Error{Kind: m.because, Op: m.s.Job, Path: m.st.out,
		Err:  fmt.Errorf("shards %s are missing: %s", numbers(m.st.missing, m.st.n), strings.Join(m.words, "; ")),
		Hint: "what is finished is kept; the tasks' output is in " + Logs(m.st.out)}
}

// serve starts the servers that the stage needs, once.
func (m *maker) serve(ctx context.Context) error {
	if len(m.stops) > 0 {
		return nil
	}
	for _, sv := range m.opt.Servers {
		stop, err := m.l.Serve(ctx, sv, m.st.out, m.serverFile(sv.Name))
		if err != nil {
			return err
		}
		m.stops = append(m.stops, stop)
	}
	return nil
}

// settle asks what is missing now. A task that ended well has made its shards: when
// they cannot be seen here, the file system may need a moment.
func (m *maker) settle(ctx context.Context, a *Array, ends map[int]End) error {
	deadline := time.Now().Add(m.opt.Latency)
	for {
		st, err := m.s.ask(ctx)
		if err != nil {
			return err
		}
		m.st = st
		late, where := m.late(a, ends)
		if len(late) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			if where == "" {
				return nil // held by another process, perhaps: the next round shows
			}
			return fail.WithHint(fail.New(fail.Service, "wait for the file system", where, "its manifest is here, and it is not, after %v", m.opt.Latency),
				"run again when the file system shows it")
		}
		if err := Sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// late are the shards of tasks that ended well and cannot be seen; where is a file
// of theirs that a manifest names and that is not there.
func (m *maker) late(a *Array, ends map[int]End) (late []int, where string) {
	for t, set := range a.Tasks {
		for _, i := range set {
			if ends[t].Fate != Done || !slices.Contains(m.st.missing, i) {
				continue
			}
			late = append(late, i)
			path := filepath.Join(m.st.out, shard.Spec{I: i, N: m.st.n}.Name("part", "json"))
			if pm, err := manifest.Read(path); err == nil {
				for _, p := range pm.Parts {
					f := filepath.Join(m.st.out, filepath.FromSlash(p.Name))
					if info, err := os.Stat(f); err != nil || info.Size() != p.Bytes {
						where = f
					}
				}
			}
		}
	}
	return late, where
}

// verdicts decides which missing shards are worth another attempt.
func (m *maker) verdicts(a *Array, ends map[int]End) {
	for _, t := range slices.Sorted(maps.Keys(a.Tasks)) {
		end := ends[t]
		told := m.told(a.Tasks[t][0])
		for _, i := range a.Tasks[t] {
			if !slices.Contains(m.st.missing, i) {
				delete(m.tries, i)
				continue
			}
			y := m.try(i)
			if m.journal(i) > y.Journal {
				y.Failed, y.Lost = 0, 0
			} else if end.Fate == Lost {
				y.Lost++
			} else {
				y.Failed++
			}
			k := fail.Interrupted
			if told != nil {
				k, _ = fail.OfExit(told.Exit)
			}
			name, why := fmt.Sprintf("shard %d", i), m.reason(end, told)
			switch {
			case told != nil && (k == fail.BadInput || k == fail.Usage):
				m.give(i, k, name+": "+why)
			case end.Fate == Cancelled:
				m.give(i, fail.Interrupted, name+" was cancelled")
			case y.Failed >= max(1, m.opt.Attempts):
				if told == nil { // it kills its process each time
					k = fail.Bug
				}
				m.give(i, k, fmt.Sprintf("%s failed %d times without coming any further: %s", name, y.Failed, why))
			case y.Lost >= lost:
				m.give(i, fail.Interrupted, fmt.Sprintf("%s was lost %d times without coming any further: %s", name, y.Lost, why))
			default:
				m.r.Log.Warn("a shard was not finished and is tried again", "shard", fmt.Sprintf("%d/%d", i, m.st.n), "because", why, "log", end.Log)
			}
		}
	}
}

// give gives a shard up. Its attempts are forgotten: whoever runs the stage again
// has changed something.
func (m *maker) give(i int, k fail.Kind, why string) {
	m.given[i] = true
	delete(m.tries, i)
	if severity(k) > severity(m.because) {
		m.because = k
	}
	if len(m.words) < 5 {
		m.words = append(m.words, why)
	}
}

// severity orders the kinds by how little another run would help.
func severity(k fail.Kind) int {
	return slices.Index([]fail.Kind{fail.Interrupted, fail.Service, fail.Disk, fail.Bug, fail.BadInput, fail.Usage}, k)
}

func (m *maker) reason(end End, told *job.Summary) string {
	if told != nil && told.Error != "" {
		return told.Error
	}
	how := end.How
	if how == "" {
		how = "its task is gone"
	}
	if text := lastOf(end.Log); text != "" {
		how += ", its last words: " + text
	}
	return how
}

// lastOf is the last line of a file.
func lastOf(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 4096 {
		f.Seek(-4096, 2)
	}
	text := make([]byte, 4096)
	n, _ := f.Read(text)
	return lastLine(text[:n])
}

// told is the summary of the task that made shard i first.
func (m *maker) told(i int) *job.Summary {
	text, err := os.ReadFile(m.summary(i))
	s := new(job.Summary)
	if err != nil || json.Unmarshal(text, s) != nil || s.Exit == 0 {
		return nil
	}
	return s
}

func (m *maker) summary(i int) string {
	return job.SummaryPath(m.st.out, shard.Spec{I: i, N: m.st.n})
}

// journal is how far a shard has come: the bytes of its journal, or of what lies
// under the trainer's folder for a dataset of named files.
func (m *maker) journal(i int) (n int64) {
	info, err := os.Stat(job.JournalPath(m.st.out, shard.Spec{I: i, N: m.st.n}))
	if err == nil {
		return info.Size()
	}
	if m.st.n == 1 { // training states come and go: the newest file tells
		filepath.WalkDir(filepath.Join(m.st.out, "trainer"), func(_ string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				if info, err := d.Info(); err == nil {
					n = max(n, info.ModTime().UnixNano())
				}
			}
			return nil
		})
	}
	return n
}

func (m *maker) try(i int) *try {
	if m.tries[i] == nil {
		m.tries[i] = &try{}
	}
	return m.tries[i]
}

// note keeps what was tried, for a launcher that is killed and run again.
func (m *maker) note() {
	text, _ := json.Marshal(m.tries)
	if err := atomicfile.WriteFile(filepath.Join(m.dir, "tries.json"), text); err != nil {
		m.r.Log.Warn("what was tried is not kept", "because", err)
	}
}

func (m *maker) recall() {
	text, err := os.ReadFile(filepath.Join(m.dir, "tries.json"))
	if err == nil && json.Unmarshal(text, &m.tries) != nil || m.tries == nil {
		m.tries = map[int]*try{}
	}
}

// startOver takes the manifests and journals of a dataset away, as --fresh wants:
// nothing of it counts as made any more.
func startOver(out string) error {
	list := []string{manifest.Path(out)}
	for _, pattern := range []string{"part-*-of-*.json", ".work/*.journal"} {
		found, _ := filepath.Glob(filepath.Join(out, pattern))
		list = append(list, found...)
	}
	for _, f := range list {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fail.Wrap(fail.Disk, "start over", f, err)
		}
	}
	return nil
}
