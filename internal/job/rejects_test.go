package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/secret"
	"searchloop/internal/shard"
)

// Rejects come in any order and leave sorted, also when they do not fit in memory.
func TestRejectsAreSorted(t *testing.T) {
	for _, n := range []int{0, 1, 100, 2*runLength + 17} {
		r := newRejects()
		for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
			r.add(fmt.Sprint("file", i%3), int64(i/3+1), fmt.Sprint("s", i), errors.New("no <image> & more"))
		}
		var b bytes.Buffer
		if err := r.writeTo(&b); err != nil {
			t.Fatal(err)
		}
		r.close()
		if len(r.buf) > runLength {
			t.Errorf("%d rejects in memory", len(r.buf))
		}
		var list []Rejected
		for d := json.NewDecoder(&b); d.More(); {
			var x Rejected
			if err := d.Decode(&x); err != nil {
				t.Fatal(err)
			}
			list = append(list, x)
		}
		if len(list) != n || !sort.SliceIsSorted(list, func(i, j int) bool { return list[i].less(list[j]) }) {
			t.Fatalf("%d of %d rejects, sorted: no", len(list), n)
		}
	}
}

func TestLongReasonsAreCut(t *testing.T) {
	r := newRejects()
	r.add("f", 1, "", errors.New(strings.Repeat("é", reasonBytes)))
	if got := r.buf[0].Reason; len(got) > reasonBytes+len("…") || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes, ends in %q", len(got), got[len(got)-6:])
	}
}

type leaky struct {
	Flags
	Out string
}

func (c *leaky) Run(_ context.Context, r *Run) error {
	key := secret.New("sk-live-0123456789")
	d, err := r.Dataset(Spec{Dir: c.Out, Schema: "x", Version: 1, Ext: "txt"})
	if err != nil {
		return err
	}
	s, err := d.Begin(d.Todo()[0])
	if err != nil {
		return err
	}
	r.Log.Info("calling", "header", "Bearer "+key.Reveal(), "key", key)
	s.Reject("http://h", 1, "", fail.New(fail.Service, "call", "", "server said: bad key %s", key.Reveal()))
	w, err := s.Part()
	if err != nil {
		return err
	}
	fmt.Fprintln(w, "data")
	if err := s.Commit(1, manifest.Counts{In: 2, OK: 1}); err != nil {
		return err
	}
	r.Result("the key is " + key.Reveal())
	return fail.New(fail.Bound, "judge", "", "the judge quoted %s", key.Reveal())
}

// A secret that a server throws back at us reaches no stream and no file.
func TestSecretsStayInside(t *testing.T) {
	dir := t.TempDir()
	var o, e bytes.Buffer
	if code := Exec("leaky", "", new(leaky), []string{"--json", "--out", filepath.Join(dir, "d")}, &o, &e); code != 3 {
		t.Fatalf("exit %d\n%s", code, e.String())
	}
	all := o.String() + e.String()
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			text, _ := os.ReadFile(p)
			all += string(text)
		}
		return err
	})
	if strings.Contains(all, "0123456789") {
		t.Errorf("the secret leaks:\n%s", all)
	}
	if strings.Count(all, "***") < 5 {
		t.Errorf("masked only %d times:\n%s", strings.Count(all, "***"), all)
	}
}

// Shards of one dataset may be made side by side in one process.
func TestParallelShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	r := Testing(t)
	r.Shards = 8
	d, err := r.Dataset(Spec{Dir: dir, Schema: "x", Version: 1, Ext: "txt"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, sh := range d.Todo() {
		s, err := d.Begin(sh)
		if err != nil || s == nil {
			t.Fatal(s, err)
		}
		wg.Go(func() {
			defer s.Discard()
			w, err := s.Part()
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 1000 {
				fmt.Fprintln(w, sh.I, i)
				if i%100 == 0 {
					s.Reject("in", int64(i), "", nil)
					s.Use(manifest.Usage{Requests: 1})
				}
			}
			if err := s.Commit(1000, manifest.Counts{In: 1010}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := d.Seal(nil); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Open(dir)
	if err != nil || m.Rows() != 8000 || m.Counts.Rejected != 80 || m.Usage == nil || m.Usage.Requests != 80 || m.Verify(dir) != nil {
		t.Fatalf("%+v %v", m, err)
	}
	if _, s, _, ok := shard.FromName(m.Data()[3].Name); !ok || s.I != 3 {
		t.Error("parts are out of order")
	}
}
