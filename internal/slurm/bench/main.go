// Command bench measures what launching costs: 64 shards of one second on a Slurm
// cluster of two CPUs, against the time that two CPUs need for them, and the plan of
// 10,000 shards of which half are made. Without Slurm it measures the plan alone.
//
//	go run ./internal/slurm/bench --out build/bench/launch.json
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"searchloop/internal/bench"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/launch"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/shard"
	"searchloop/internal/slurm"
	"searchloop/internal/slurm/slurmtest"
)

const (
	shards = 64
	cpus   = 2
	many   = 10000
)

// sleeper is a job whose shards take a second each.
type sleeper struct {
	job.Flags
	Out string
}

func (c *sleeper) Run(_ context.Context, r *job.Run) error {
	d, err := r.Dataset(job.Spec{Dir: c.Out, Schema: "sleep", Version: 1, Ext: "jsonl"})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	err = d.Each(func(s *job.Shard) error {
		if r.Stopped() {
			return r.Interrupted()
		}
		if c.Shards < many {
			time.Sleep(time.Second)
		}
		return one(s)
	})
	if err != nil {
		return err
	}
	return d.Seal(nil)
}

func one(s *job.Shard) error {
	w, err := s.Part()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "{\"shard\":%d}\n", s.Shard.I); err != nil {
		return fail.Wrap(fail.Disk, "write", "", err)
	}
	return s.Commit(1, manifest.Counts{In: 1, OK: 1})
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sleeper" {
		os.Exit(job.Exec("sleeper", "a job that sleeps", &sleeper{}, os.Args[2:], os.Stdout, os.Stderr))
	}
	out := flag.String("out", "build/bench/launch.json", "file of the figures")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	dir, err := os.MkdirTemp("", "launch-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	plan, err := planned(filepath.Join(dir, "many"), exe)
	if err != nil {
		return err
	}
	rows := []bench.Row{plan}
	if why := slurmtest.Missing(); why != "" {
		fmt.Fprintln(os.Stderr, "bench: Slurm is left out:", why)
	} else {
		row, err := launched(filepath.Join(dir, "out"), exe)
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return bench.Write(out, rows)
}

// launched is the time from the command to the finished dataset.
func launched(out, exe string) (bench.Row, error) {
	_, stop, err := slurmtest.Start(cpus, 1001)
	if err != nil {
		return bench.Row{}, err
	}
	defer stop()
	r := job.NewRun("launch", job.Flags{ProgressMode: "none"}, io.Discard, os.Stderr)
	l, err := slurm.New(r, slurm.Options{})
	if err != nil {
		return bench.Row{}, err
	}
	s := launch.Stage{Job: "sleeper", Command: []string{exe, "sleeper", "--shards", strconv.Itoa(shards), "--out", out}, Needs: recipe.Task{CPUs: 1, MemoryGB: 0.1, Minutes: 10}}
	began := time.Now()
	if err := launch.Make(context.Background(), r, s, l, launch.Options{Attempts: 3, Latency: 30 * time.Second}); err != nil {
		return bench.Row{}, err
	}
	took := time.Since(began).Seconds()
	return bench.Row{Name: "64 shards of 1 s on two CPUs of Slurm", Unit: "s", Ours: took, Peer: shards / cpus, PeerName: "ideal", Bound: 1 / 1.3, Note: "sbatch to manifest"}, nil
}

// planned is the processor time of one plan: the job's look at the folder, groups and
// the list of shards.
func planned(out, exe string) (bench.Row, error) {
	r := job.NewRun("sleeper", job.Flags{Shards: many, ProgressMode: "none"}, io.Discard, io.Discard)
	d, err := r.Dataset(job.Spec{Dir: out, Schema: "sleep", Version: 1, Ext: "jsonl"})
	if err != nil {
		return bench.Row{}, err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return bench.Row{}, err
	}
	text := []byte("{}\n")
	for i := 0; i < many; i += 2 { // as shards are published, without the fsyncs
		sh := shard.Spec{I: i, N: many}
		m := fmt.Appendf(nil, `{"manifest":1,"schema":"sleep","version":1,"shard":%q,"spec":%q,"parts":[{"name":%q,"rows":1,"bytes":%d,"sha256":%q}],"counts":{"in":1,"ok":1,"failed":0,"rejected":0}}`,
			sh, d.Digest(), sh.Name("part", "jsonl"), len(text), manifest.Hash(text))
		for name, data := range map[string][]byte{sh.Name("part", "jsonl"): text, sh.Name("part", "json"): m} {
			if err := os.WriteFile(filepath.Join(out, name), data, 0o644); err != nil {
				return bench.Row{}, err
			}
		}
	}
	s := launch.Stage{Job: "sleeper", Command: []string{exe, "sleeper", "--shards", strconv.Itoa(many), "--out", out}}
	before := processor()
	n, err := launch.Planned(context.Background(), s)
	if err != nil || n != many/2 {
		return bench.Row{}, fmt.Errorf("%d shards planned: %w", n, err)
	}
	return bench.Row{Name: "plan of 10,000 shards", Unit: "s", Ours: processor() - before, Peer: 1, PeerName: "bound", Bound: 1, Note: "processor time"}, nil
}

// processor is the processor time of this process and of those it has waited for.
func processor() (s float64) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		syscall.Getrusage(who, &u)
		s += float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
	}
	return s
}
