package shard

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"searchloop/internal/fail"
)

func TestParse(t *testing.T) {
	if s, err := Parse("3/16"); err != nil || s != (Spec{3, 16}) || s.String() != "3/16" {
		t.Fatal(s, err)
	}
	for _, bad := range []string{"", "3", "3/", "/3", "3/3", "-1/3", "0/0", "a/b", "1/2/3", "0/100001", " 0/1"} {
		if _, err := Parse(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// The assignment is part of the file format: these values, computed with Python's
// hashlib, never change.
func TestOwnsIsStable(t *testing.T) {
	for key, want := range map[string]int{"": 4, "fvqa_train_0": 4, "q#1": 11, "é": 3} {
		for i := range 16 {
			if (Spec{i, 16}).Owns(key) != (i == want) {
				t.Errorf("shard %d of 16 is wrong about %q, which belongs to %d", i, key, want)
			}
		}
	}
}

func TestEveryKeyHasOneOwner(t *testing.T) {
	for _, n := range []int{1, 2, 7, 64} {
		load := make([]int, n)
		for k := range 6000 {
			owners := 0
			for i := range n {
				if (Spec{i, n}).Owns(fmt.Sprint("key", k)) {
					owners++
					load[i]++
				}
			}
			if owners != 1 {
				t.Fatalf("key %d has %d owners of %d", k, owners, n)
			}
		}
		for i, l := range load {
			if mean := 6000 / n; l < mean*5/10 || l > mean*15/10 {
				t.Errorf("shard %d of %d has %d keys, the mean is %d", i, n, l, mean)
			}
		}
	}
}

func TestRangesCoverAll(t *testing.T) {
	for n := 1; n < 20; n++ {
		for rows := range int64(100) {
			next := int64(0)
			for i := range n {
				lo, hi := Spec{i, n}.Range(rows)
				if lo != next || hi < lo || hi-lo > rows/int64(n)+1 {
					t.Fatalf("shard %d of %d over %d rows: [%d, %d)", i, n, rows, lo, hi)
				}
				next = hi
			}
			if next != rows {
				t.Fatalf("%d shards cover %d of %d rows", n, next, rows)
			}
		}
	}
}

func TestNames(t *testing.T) {
	s := Spec{3, 16}
	if got := s.Name("part", "parquet"); got != "part-00003-of-00016.parquet" {
		t.Fatal(got)
	}
	for _, prefix := range []string{"part", "with-dash"} {
		p, back, ext, ok := FromName(s.Name(prefix, "tar.gz"))
		if !ok || p != prefix || back != s || ext != "tar.gz" {
			t.Fatal(p, back, ext, ok)
		}
	}
	for _, bad := range []string{"part-3-of-16.parquet", "part-00016-of-00016.x", "manifest.json", "part-00000-00001.x", "00000-of-00001.x"} {
		if _, _, _, ok := FromName(bad); ok {
			t.Errorf("%q was taken for a part", bad)
		}
	}
}

func TestRanges(t *testing.T) {
	for want, in := range map[string][]int{"": nil, "0": {0}, "1,3-7": {1, 3, 4, 5, 6, 7}, "0-1,9": {0, 1, 9}} {
		if got := Ranges(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}

func TestListsAreReadAsWritten(t *testing.T) {
	dir := t.TempDir()
	want := List{0: {0, 1, 2}, 7: {9}, 3: {4, 6, 7}}
	path := filepath.Join(dir, "list")
	if err := os.WriteFile(path, want.Text(10), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := ReadList(path, 10)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatal(got, err)
	}
	for _, bad := range []string{"", "shards 10\n", "shards 9\n0 1\n", "0 1\n", "shards 10\nx 1\n", "shards 10\n0 10\n", "shards 10\n0 1\n0 2\n",
		"shards 10\n0 \n", "shards 10\n0 3-1\n", "shards 10\n0 1,1\n", "shards 10\n0 -1\n", "shards 10\n-1 1\n", "shards 10\n0 0-99999999999\n"} {
		if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
			t.Fatal(err)
		}
		if l, err := ReadList(path, 10); err == nil || fail.KindOf(err) != fail.BadInput {
			t.Errorf("%q: %v %v", bad, l, err)
		}
	}
}
