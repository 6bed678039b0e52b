// Package arch holds the import arrows of the repository: jobs use the
// stages, stages use internal, and sideways only what is listed here. It contains
// this test and nothing else.
package arch

import (
	"bufio"
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "searchloop/"

// stages are the five packages of the loop, and synth, which makes data for it and
// which none of them knows; allowed says which others each may
// reach, directly or not.
var allowed = map[string][]string{
	"corpus":  {},
	"indexer": {"corpus"},
	"rollout": {"indexer", "corpus"},
	"train":   {"rollout/trajectory"},
	"eval":    {"rollout", "indexer", "corpus"},
	"synth":   {"rollout", "indexer", "corpus"},
}

// imports are all our packages, tests left out, with everything they depend on.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	cmd.Dir = filepath.Join("..", "..")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	deps := map[string][]string{}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		pkg := strings.TrimPrefix(f[0], module)
		deps[pkg] = nil
		for _, d := range f[1:] {
			if ours, ok := strings.CutPrefix(d, module); ok {
				deps[pkg] = append(deps[pkg], ours)
			}
		}
	}
	if len(deps) < 10 {
		t.Fatalf("only %d packages found", len(deps))
	}
	return deps
}

func under(pkg, folder string) bool { return pkg == folder || strings.HasPrefix(pkg, folder+"/") }

func TestArrows(t *testing.T) {
	for pkg, deps := range imports(t) {
		top, _, _ := strings.Cut(pkg, "/")
		for _, d := range deps {
			if why := refuse(pkg, top, d); why != "" {
				t.Errorf("%s depends on %s: %s", pkg, d, why)
			}
		}
	}
}

// refuse says why pkg may not depend on d, or "".
func refuse(pkg, top, d string) string {
	dtop, _, _ := strings.Cut(d, "/")
	switch {
	case dtop == "jobs":
		return "nothing depends on a job"
	case under(pkg, "internal/fail"):
		return "fail depends on nothing of ours"
	case top == "internal" && dtop != "internal":
		return "internal is below the stages"
	case top == dtop || dtop == "internal" || top == "jobs":
		return ""
	}
	for _, ok := range allowed[top] {
		if under(d, ok) {
			return ""
		}
	}
	return "not one of the arrows in docs and CONTRIBUTING.md"
}

// The kit has levels of its own, so that it has no cycles to grow into.
func TestKitLevels(t *testing.T) {
	below := map[string][]string{
		"fault":      {},
		"secret":     {"fail"},
		"shard":      {"fail"},
		"untar":      {"fail"},
		"atomicfile": {"fail", "fault"},
		"journal":    {"fail", "fault", "atomicfile"},
		"manifest":   {"fail", "fault", "atomicfile"},
		"table":      {"fail", "fault", "atomicfile", "manifest"},
		"kv":         {"fail", "secret"},
		"retry":      {"fault"},
		"tape":       {"fail", "fault", "atomicfile", "manifest", "secret", "retry"},
		"lookup":     {"fail", "fault", "atomicfile", "manifest", "secret", "retry", "kv", "tape"},
		"job":        {"fail", "fault", "atomicfile", "manifest", "journal", "shard", "secret", "recipe"},
	}
	deps := imports(t)
	for kit, may := range below {
		for _, d := range deps["internal/"+kit] {
			ok := false
			for _, m := range may {
				ok = ok || under(d, "internal/"+m)
			}
			if !ok {
				t.Errorf("internal/%s depends on %s", kit, d)
			}
		}
	}
}

// C and assembly have their places: everything builds without a C compiler, so
// that a job is one static file.
func TestNoCgo(t *testing.T) {
	cmd := exec.Command("go", "list", "-e", "-f", `{{if .CgoFiles}}{{.ImportPath}}{{end}}`, "./...")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		t.Errorf("%s needs cgo without a build tag", pkg)
	}
}
