package slurm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/launch"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/secret"
	"searchloop/internal/shard"
)

// toy is a job of rows that take their time, journaled one by one. It writes down
// every row it works on, so that a test sees what was done twice.
type toy struct {
	job.Flags
	Out    string
	Seen   string // file that every row worked on is appended to
	Rows   int    `default:"3"` // a shard
	Row    time.Duration
	Poison int    `default:"-1"` // this shard kills its process
	Broken int    `default:"-1"` // this one has bad input
	Server string // @FILE: asked for every row
	Secret string // digest that POLICY_API_KEY must have
}

func (c *toy) Run(ctx context.Context, r *job.Run) error {
	d, err := r.Dataset(job.Spec{Dir: c.Out, Schema: "toy", Version: 1, Ext: "jsonl", Params: map[string]int{"rows": c.Rows}})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	if err := d.Each(func(s *job.Shard) error { return c.shard(r, s) }); err != nil {
		return err
	}
	return d.Seal(nil)
}

func (c *toy) shard(r *job.Run, s *job.Shard) error {
	i := s.Shard.I
	switch {
	case i == c.Broken:
		return fail.New(fail.BadInput, "read", "input", "it is no good")
	case c.Secret != "" && manifest.Hash([]byte(secret.FromEnv("POLICY_API_KEY").Reveal())) != c.Secret:
		return fail.New(fail.Usage, "look for the key", "", "it is not there")
	}
	j, err := s.Journal()
	if err != nil {
		return err
	}
	w, err := s.Part()
	if err != nil {
		return err
	}
	for k := range c.Rows {
		key := fmt.Sprintf("%d/%d", i, k)
		if !j.Has(key) {
			if r.Stopped() {
				return r.Interrupted()
			}
			if i == c.Poison {
				fmt.Fprintln(os.Stderr, "about to die")
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
			}
			if err := c.work(key); err != nil {
				return err
			}
			if err := j.Append(key, []byte("{}")); err != nil {
				return err
			}
			if err := note(c.Seen, "end "+key); err != nil {
				return err
			}
		}
		fmt.Fprintf(w, "{\"row\": %q}\n", key)
	}
	return s.Commit(int64(c.Rows), manifest.Counts{In: int64(c.Rows), OK: int64(c.Rows)})
}

func (c *toy) work(key string) error {
	if err := note(c.Seen, fmt.Sprintf("row %s %d gpu=%s", key, os.Getpid(), os.Getenv("CUDA_VISIBLE_DEVICES"))); err != nil {
		return err
	}
	if c.Server != "" {
		text, err := os.ReadFile(strings.TrimPrefix(c.Server, "@"))
		if err != nil {
			return fail.Wrap(fail.Service, "find server", c.Server, err)
		}
		urls := strings.Fields(string(text))
		res, err := http.Get(urls[os.Getpid()%len(urls)] + "/row")
		if err != nil {
			return fail.Wrap(fail.Service, "ask server", "", err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "served" {
			return fail.New(fail.Service, "ask server", "", "it said %q", body)
		}
	}
	time.Sleep(c.Row)
	return nil
}

func note(path, line string) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}

// server is a server of the toy's.
type server struct {
	job.Serving
	Addr, AddrFile string
}

func (c *server) Run(_ context.Context, r *job.Run) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/row", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "served") })
	l, err := listen(c.Addr)
	if err != nil {
		return err
	}
	go http.Serve(l, mux)
	if err := job.Announce(c.AddrFile, "http://"+l.Addr().String()); err != nil {
		return err
	}
	<-r.Stopping()
	return nil
}

// submitter is a process that launches the toy: tests kill it.
type submitter struct {
	job.Flags
	Sbatch  []string `sep:"none"`
	Needs   string   // CPUs,minutes,GPUs,shards
	Servers int
	Command []string `arg:"" optional:"" passthrough:""`
}

func (c *submitter) Run(ctx context.Context, r *job.Run) error {
	f := strings.Split(c.Needs, ",")
	n := func(i int) int { v, _ := strconv.Atoi(f[i]); return v }
	l, err := New(r, Options{Flags: c.Sbatch, Secrets: []string{"POLICY_API_KEY"}, Poll: 300 * time.Millisecond, PollMost: time.Second, Patience: 2 * time.Minute,
		Signal: 30 * time.Second, Keys: filepath.Join(filepath.Dir(c.Command[len(c.Command)-1]), "keys")})
	if err != nil {
		return err
	}
	s := launch.Stage{Job: "toy", Command: c.Command, Needs: recipe.Task{CPUs: n(0), Minutes: n(1), GPUs: n(2), Shards: n(3), MemoryGB: 0.05}}
	if len(s.Command) > 0 && s.Command[0] == "--" {
		s.Command = s.Command[1:]
	}
	opt := launch.Options{Attempts: 3, Latency: 5 * time.Second, KeepLogs: true}
	if c.Servers > 0 {
		opt.Servers = []launch.Server{{Name: "toys", N: c.Servers, Command: []string{s.Command[0], "serve"}, Needs: recipe.Task{CPUs: 1, Minutes: 5, MemoryGB: 0.05}}}
	}
	return launch.Make(ctx, r, s, l, opt)
}

// rows counts how often each row of n shards was begun.
func rows(seen string) (begun map[string]int, ended map[string]int) {
	begun, ended = map[string]int{}, map[string]int{}
	text, _ := os.ReadFile(seen)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) >= 2 && f[0] == "row" {
			begun[f[1]]++
		} else if len(f) == 2 {
			ended[f[1]]++
		}
	}
	return begun, ended
}

// whole says what is wrong with a toy's dataset.
func whole(out string, n, perShard int) error {
	m, err := manifest.Open(out)
	if err != nil {
		return err
	}
	if err := m.Verify(out); err != nil {
		return err
	}
	if m.Rows() != int64(n*perShard) || len(m.Data()) != n {
		return fmt.Errorf("%d rows in %d parts", m.Rows(), len(m.Data()))
	}
	for i, p := range m.Data() {
		text, err := os.ReadFile(filepath.Join(out, p.Name))
		if err != nil {
			return err
		}
		var want strings.Builder
		for k := range perShard {
			fmt.Fprintf(&want, "{\"row\": \"%d/%d\"}\n", i, k)
		}
		if string(text) != want.String() || p.Name != (shard.Spec{I: i, N: n}).Name("part", "jsonl") {
			return fmt.Errorf("%s holds %q", p.Name, text)
		}
	}
	return nil
}
