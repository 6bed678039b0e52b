package pipelines

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// G39 of the published systems' defects: scripts that call files which are not there.
// Every job that make, CI, the documents and the Kubernetes template call exists, and
// so does every file that a document links to.
func TestG39WhatIsCalledIsThere(t *testing.T) {
	job := regexp.MustCompile(`(?:^|[\s"'(@` + "`" + `])bin/([a-z][a-z0-9-]*)`)
	link := regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`)
	code := regexp.MustCompile("`[^`\\n]*`")
	var files []string
	for _, pattern := range []string{"../Makefile", "*.mk", "../.ci/run", "../*.md", "../docs/*.md", "kubernetes/*"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no file (%v)", pattern, err)
		}
		files = append(files, found...)
	}
	calls, links := 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range job.FindAllStringSubmatch(string(text), -1) {
			if calls++; !isDir(filepath.Join("../jobs", m[1])) {
				t.Errorf("%s calls bin/%s, and there is no jobs/%s", file, m[1], m[1])
			}
		}
		if filepath.Ext(file) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.HasPrefix(m[1], "http") {
				continue
			}
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", file, m[1], err)
			}
		}
	}
	if calls < 30 || links < 30 {
		t.Errorf("%d calls and %d links were found", calls, links)
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
