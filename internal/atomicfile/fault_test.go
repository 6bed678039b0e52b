//go:build fault

package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"searchloop/internal/fail"
)

// F7: what has been written and cannot be renamed is kept, and named.
func TestF7RenameFails(t *testing.T) {
	for i, errno := range []string{"EDQUOT", "EXDEV", "EACCES"} {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		// The points are counted for the whole process: each round's is the first of its name.
		t.Setenv("SEARCHLOOP_FAIL_AT", "atomicfile.rename:"+string(rune('1'+i))+":"+errno)
		err := WriteFile(path, []byte("precious"))
		if fail.KindOf(err) != fail.Disk || fail.ExitCode(err) != 74 {
			t.Fatalf("%s: %v", errno, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: the file was published", errno)
		}
		kept, _ := filepath.Glob(filepath.Join(dir, ".x*"))
		if len(kept) != 1 || !strings.Contains(err.Error(), kept[0]) {
			t.Fatalf("%s: kept %v, the message is %v", errno, kept, err)
		}
		if text, _ := os.ReadFile(kept[0]); string(text) != "precious" {
			t.Errorf("%s: %q", errno, text)
		}
	}
}
