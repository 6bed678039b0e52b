package survey

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
)

// build makes a dataset of four shards below root, from an input file: so many of them
// are done, and of the next one two samples are in the journal.
func build(t *testing.T, root, name string, done int) (dir string, sh *job.Shard) {
	t.Helper()
	dir, input := filepath.Join(root, name), filepath.Join(root, "input.txt")
	if _, err := os.Stat(input); err != nil {
		if err := os.WriteFile(input, []byte("input"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := job.Testing(t)
	r.Shards = 4
	d, err := r.Dataset(job.Spec{Dir: dir, Schema: "toy", Version: 1, Ext: "jsonl", Inputs: map[string]string{"in": input}})
	if err != nil {
		t.Fatal(err)
	}
	for i, spec := range d.Todo() {
		s, err := d.Begin(spec)
		if err != nil {
			t.Fatal(err)
		}
		if i == done {
			j, err := s.Journal()
			if err != nil {
				t.Fatal(err)
			}
			j.Append("a", nil)
			j.Append("b", nil)
			return dir, s
		}
		w, err := s.Part()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(w, "{\"i\":%d}\n", i)
		if err := s.Commit(1, manifest.Counts{In: 1, OK: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Seal(nil); err != nil {
		t.Fatal(err)
	}
	return dir, nil
}

func TestStatesOfARun(t *testing.T) {
	root := t.TempDir()
	build(t, root, "epoch-0/whole", 4)
	_, sh := build(t, root, "epoch-1/half", 2)
	state := func() Dataset {
		t.Helper()
		list, err := Look(root)
		if err != nil || len(list) != 2 || list[0].State != Done || list[0].Rows != 4 {
			t.Fatalf("%+v %v", list, err)
		}
		return list[1]
	}
	if d := state(); d.State != Running || d.Shards != "0-1 of 4" || d.Begun != 2 || d.Rows != 2 || d.By == "" {
		t.Errorf("while it is made: %+v", d)
	}
	sh.Discard()
	if d := state(); d.State != Unfinished || d.Begun != 2 || d.By != "" {
		t.Errorf("when nobody makes it: %+v", d)
	}
	if _, err := Look(filepath.Join(root, "nowhere")); err == nil {
		t.Error("a folder that is not there")
	}
}

func TestVerify(t *testing.T) {
	root := t.TempDir()
	whole, _ := build(t, root, "whole", 4)
	_, sh := build(t, root, "half", 1)
	sh.Discard()
	verify := func() *Report {
		t.Helper()
		rep, err := Verify(t.Context(), root, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	if rep := verify(); rep.Datasets != 1 || rep.Files != 4 || len(rep.Damaged)+len(rep.Stale) != 0 || len(rep.Unfinished) != 1 {
		t.Errorf("%+v", rep)
	}
	// One bit, and one file that is gone.
	name := func(i int) string { return filepath.Join(whole, shard.Spec{I: i, N: 4}.Name("part", "jsonl")) }
	text, _ := os.ReadFile(name(1))
	text[3] ^= 1
	os.WriteFile(name(1), text, 0o644)
	os.Remove(name(2))
	rep := verify()
	if len(rep.Damaged) != 1 || rep.Damaged[0].Shards != "1-2 of 4" || len(rep.Damaged[0].Bad) != 2 || !strings.Contains(rep.Damaged[0].Redo, whole+"/manifest.json") {
		t.Fatalf("%+v", rep.Damaged)
	}
	// It is made again as the message says.
	os.Remove(manifest.Path(whole))
	build(t, root, "whole", 4)
	if rep := verify(); len(rep.Damaged) != 0 {
		t.Errorf("made again: %+v", rep.Damaged)
	}
	os.WriteFile(filepath.Join(root, "input.txt"), []byte("another"), 0o644)
	if rep := verify(); len(rep.Stale) != 1 || !strings.Contains(rep.Stale[0].Inputs[0], "has changed") {
		t.Errorf("%+v", rep.Stale)
	}
	os.WriteFile(manifest.Path(whole), []byte("{"), 0o644)
	if rep := verify(); len(rep.Damaged) != 1 {
		t.Errorf("a broken manifest: %+v", rep)
	}
}
