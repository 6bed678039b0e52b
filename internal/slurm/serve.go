package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"searchloop/internal/fail"
	"searchloop/internal/launch"
)

// Serve runs servers as an array of their own, which ends with the stage. One that
// is gone is started again; file then has its new address.
func (c *Cluster) Serve(ctx context.Context, s launch.Server, out, file string) (func(), error) {
	dir, err := filepath.Abs(launch.Dir(out))
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "find folder", out, err)
	}
	st := begin(&launch.Array{Out: out})
	st.path = filepath.Join(dir, "slurm-"+s.Name+".json")
	sv := &servers{c: c, s: s, dir: dir, file: file, name: fmt.Sprintf("sl-%s-%s", s.Name, st.Run), run: st.Run}
	// Servers that a killed submitter has left are nobody's.
	if old, err := recallAt(st.path); err == nil && old != nil {
		for _, x := range old.Arrays {
			c.cancel([]string{x.Name})
		}
	}
	st.Arrays = []array{{Name: sv.name, Size: s.N}}
	if err := st.save(); err != nil {
		return nil, err
	}
	var all []int
	for i := range s.N {
		all = append(all, i)
	}
	if err := sv.start(ctx, all); err != nil {
		c.cancel([]string{sv.name})
		return nil, err
	}
	if err := launch.Gather(ctx, sv.places(), file, c.opt.Patience); err != nil {
		c.cancel([]string{sv.name})
		return nil, fail.WithHint(err, "its output is in "+launch.Logs(out))
	}
	c.r.Log.Info("servers are up", "name", s.Name, "number", s.N, "addresses", file)
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { sv.keep(ctx) })
	return func() {
		cancel()
		wg.Wait()
		c.cancel([]string{sv.name})
		os.Remove(st.path)
	}, nil
}

type servers struct {
	c         *Cluster
	s         launch.Server
	dir, file string
	name, run string
	restarts  int
}

func (v *servers) place(i int) string { return fmt.Sprintf("%s.%d", v.file, i) }

func (v *servers) places() (list []string) {
	for i := range v.s.N {
		list = append(list, v.place(i))
	}
	return list
}

// start submits the servers of those numbers.
func (v *servers) start(ctx context.Context, which []int) error {
	for _, i := range which {
		os.Remove(v.place(i))
	}
	flags, err := v.c.flags("serve", v.s.Needs)
	if err != nil {
		return err
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fail.Wrap(fail.Disk, "find the working folder", "", err)
	}
	text, err := script(cwd, v.s.Command, []string{"--addr", "0.0.0.0:0", "--addr-file", v.file + "." + taskNumber})
	if err != nil {
		return err
	}
	path := filepath.Join(v.dir, v.name+".sh")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return fail.Wrap(fail.Disk, "write script", path, err)
	}
	o := order{name: v.name, run: v.run, indices: which, script: path, log: filepath.Join(v.dir, "logs", "server-"+v.s.Name+"-%A_%a.log"), flags: flags}
	_, err = v.c.submit(ctx, &o)
	return err
}

// keep starts servers again that are gone, ten times at most.
func (v *servers) keep(ctx context.Context) {
	for launch.Sleep(ctx, v.c.opt.Poll*2) == nil {
		list, err := v.c.queue(ctx, []string{v.name})
		if err != nil {
			continue
		}
		var gone []int
		for i := range v.s.N {
			if !slices.ContainsFunc(list, func(t task) bool { return t.index == i && t.live() }) {
				gone = append(gone, i)
			}
		}
		if len(gone) == 0 || ctx.Err() != nil {
			continue
		}
		if v.restarts++; v.restarts > 10 {
			v.c.r.Log.Error("servers end again and again; no more are started", "name", v.s.Name, "see", filepath.Join(v.dir, "logs"))
			return
		}
		v.c.r.Log.Warn("a server is gone; starting it again", "name", v.s.Name, "which", gone)
		if err := v.start(ctx, gone); err != nil {
			v.c.r.Log.Warn("a server could not be started", "because", err)
			continue
		}
		if err := launch.Gather(ctx, v.places(), v.file, v.c.opt.Patience); err != nil && ctx.Err() == nil {
			v.c.r.Log.Warn("a server did not come up", "because", err)
		}
	}
}
