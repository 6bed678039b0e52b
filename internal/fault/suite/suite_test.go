package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every number from first to last is there once and has a test, and every test that the
// list names is there: a renamed one would else be found only when the suite runs.
func TestEveryNumberHasItsTests(t *testing.T) {
	list, err := numbered("../../..")
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for _, kind := range []struct {
		letter string
		n      int
	}{{"F", 35}, {"G", 43}, {"T", 24}} {
		for n := 1; n <= kind.n; n++ {
			if want := fmt.Sprint(kind.letter, n); i >= len(list) || list[i].id != want {
				t.Fatalf("place %d is not that of %s", i, want)
			}
			i++
		}
	}
	if i != len(list) {
		t.Errorf("%d numbers more", len(list)-i)
	}
	text := map[string]string{} // of a package's tests
	for _, f := range list {
		if len(f.tests) == 0 {
			t.Errorf("no test has the number %s: %s", f.id, f.name)
		}
		for _, full := range f.tests {
			pkg, name := split(full)
			if text[pkg] == "" {
				files, _ := filepath.Glob(filepath.Join("../../..", pkg, "*_test.go"))
				for _, file := range files {
					b, _ := os.ReadFile(file)
					text[pkg] += string(b)
				}
			}
			if !strings.Contains(text[pkg], "\nfunc "+name+"(") {
				t.Errorf("%s: there is no %s", f.id, full)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	for only, want := range map[string]int{"": 102, "F1,F33": 2, "G": 43, "T,F2": 25} {
		if list, err := choose("../../..", only); err != nil || len(list) != want {
			t.Errorf("%q: %d %v", only, len(list), err)
		}
	}
	if _, err := choose("../../..", "F1,F99"); err == nil {
		t.Error("F99 is there")
	}
}

func TestVerdicts(t *testing.T) {
	list := []fault{{"F1", "a", []string{"p.TestA", "p.TestB"}, ""}, {"F2", "b", []string{"p.TestA"}, "n"}, {"F3", "c", []string{"p.TestC"}, ""}, {"F4", "d", []string{"p.TestD"}, ""}, {id: "G1", name: "e"}}
	got := judge(list, map[string]verdict{"p.TestA": {"pass", ""}, "p.TestB": {"skip", "no disk"}, "p.TestC": {"fail", "boom"}})
	for i, want := range []bool{false, true, false, false, false} {
		if got[i].Pass != want {
			t.Errorf("%+v", got[i])
		}
	}
}
