//go:build fault

package train

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// The process dies, or the disk is full, at every point where that makes a
// difference; the next run ends with the bytes of a quiet one.
func TestEveryFaultPoint(t *testing.T) {
	w := newToyWorld(t, t.TempDir(), 4, nil)
	set := []string{"grpo.updates=2", "grpo.passes=1", "grpo.old_logprobs=recompute", "grpo.pack_tokens=400"}
	quiet := mustGRPO(t, w, "quiet", set...)
	path := filepath.Join(w.root, "toy.yaml")
	if err := os.WriteFile(path, []byte(toyRecipe), 0o666); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := func(out, extra string) error {
		c := exec.Command(exe, "-test.run=^$")
		c.Env = append(os.Environ(), childEnv+"="+path+"|"+w.root+"|"+out+"|"+strings.Join(set, " "))
		if extra != "" {
			c.Env = append(c.Env, extra)
		}
		text, err := c.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !(errors.As(err, &exit) && (exit.ExitCode() == -1 || exit.ExitCode() == fail.Disk.ExitCode())) {
			t.Errorf("%s: %v\n%s", extra, err, text)
		}
		return err
	}
	for _, variable := range []string{"SEARCHLOOP_KILL_AT", "SEARCHLOOP_FAIL_AT"} {
		t.Run(variable, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				out := fmt.Sprintf("%s-%d", variable, n)
				over := child(out, fmt.Sprintf("%s=*:%d", variable, n)) == nil
				if !over {
					if err := child(out, ""); err != nil {
						t.Fatalf("point %d: the second run failed", n)
					}
				}
				sameCheckpoint(t, quiet, w.at(out))
				if over {
					if n < 20 {
						t.Errorf("%d points only", n)
					}
					return
				}
			}
		})
	}
}
