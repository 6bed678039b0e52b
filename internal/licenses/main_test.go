package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	isc = "Permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted, provided that the above copyright notice and this permission notice appear in all copies.\n\n" +
		"THE SOFTWARE IS PROVIDED \"AS IS\" AND THE AUTHOR DISCLAIMS ALL WARRANTIES WITH REGARD TO THIS SOFTWARE INCLUDING ALL IMPLIED WARRANTIES OF MERCHANTABILITY AND FITNESS. IN NO EVENT SHALL THE AUTHOR BE LIABLE FOR ANY SPECIAL, DIRECT, INDIRECT, OR CONSEQUENTIAL DAMAGES OR ANY DAMAGES WHATSOEVER RESULTING FROM LOSS OF USE, DATA OR PROFITS, WHETHER IN AN ACTION OF CONTRACT, NEGLIGENCE OR OTHER TORTIOUS ACTION, ARISING OUT OF OR IN CONNECTION WITH THE USE OR PERFORMANCE OF THIS SOFTWARE."
	agpl = "This program is free software: you can redistribute it and/or modify it under the terms of the GNU Affero General Public License as published by the Free Software Foundation, either version 3 of the License, or (at your option) any later version."
)

// What is not allowed, not recognised or not there is an error that names it; a licence
// in a folder counts for that folder's packages alone.
func TestLicenses(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // licences, or a part of the error
		bad   bool
	}{
		"allowed":           {map[string]string{"LICENSE": isc}, "ISC", false},
		"another spelling":  {map[string]string{"Licence.md": isc}, "ISC", false},
		"forbidden":         {map[string]string{"COPYING": agpl}, "AGPL-3.0-or-later is not among", true},
		"beside an allowed": {map[string]string{"LICENSE": isc, "used/LICENSE": agpl}, "AGPL-3.0-or-later is not among", true},
		"of other packages": {map[string]string{"LICENSE": isc, "unused/LICENSE": agpl}, "ISC", false},
		"unknown":           {map[string]string{"LICENSE": "You may use this on Tuesdays."}, "LICENSE: its text is not that of a known licence", true},
		"none":              {map[string]string{"README.md": isc}, "has no licence", true},
	} {
		dir := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(dir, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		os.MkdirAll(filepath.Join(dir, "used", "deep"), 0o755)
		m := module{Path: "x.org/m", Dir: dir, folders: map[string]bool{filepath.Join(dir, "used", "deep"): true}}
		ids, _, err := m.licenses()
		if got := strings.Join(ids, " "); c.bad != (err != nil) || !c.bad && got != c.want || c.bad && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, _, err := (&module{Path: "x.org/gone"}).licenses(); err == nil || !strings.Contains(err.Error(), "go mod download") {
		t.Error(err)
	}
}

// Packages of one module are one line, a replaced module is what it is replaced by, and
// neither the standard library nor our own packages are listed.
func TestParse(t *testing.T) {
	const list = `{"ImportPath":"fmt","Dir":"/go/fmt"}
{"ImportPath":"searchloop/eval","Dir":"/s/eval","Module":{"Path":"searchloop","Main":true}}
{"ImportPath":"x.org/a","Dir":"/m/a","Module":{"Path":"x.org/a","Version":"v1.0.0","Dir":"/m/a"}}
{"ImportPath":"x.org/a/b","Dir":"/m/a/b","Module":{"Path":"x.org/a","Version":"v1.0.0","Dir":"/m/a"}}
{"ImportPath":"x.org/c","Dir":"/m/d","Module":{"Path":"x.org/c","Version":"v1.0.0","Replace":{"Path":"x.org/d","Version":"v2.0.0","Dir":"/m/d"}}}`
	mods, err := parse(strings.NewReader(list))
	if err != nil || len(mods) != 2 || len(mods["x.org/a"].folders) != 2 || mods["x.org/c"].Dir != "/m/d" || mods["x.org/c"].Version != "x.org/d v2.0.0" {
		t.Error(fmt.Sprint(mods), err)
	}
	if _, err := parse(strings.NewReader("{")); err == nil {
		t.Error("half a list")
	}
}

// A choice of licences is taken only while the text offers it.
func TestChoice(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string][]string{
		"Use of the Freetype-Go software is subject to your choice of exactly one of\nthe following two licenses:\n  * The FreeType License, which": {"FTL"},
		agpl: nil,
	} {
		if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		ids, _, err := (&module{Path: "github.com/golang/freetype", Dir: dir}).licenses()
		if (err == nil) != (want != nil) || want != nil && !slices.Equal(ids, want) {
			t.Errorf("%.30s: %v %v", text, ids, err)
		}
	}
}
