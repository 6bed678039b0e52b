package secret

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const canary = "sk-canary/4711+ä\"x"

func TestNeverPrints(t *testing.T) {
	v := New(canary + "\n")
	if v.Reveal() != canary {
		t.Fatalf("Reveal is %q", v.Reveal())
	}
	type holder struct {
		Key  Value
		Keys []Value
		Ptr  *Value
	}
	h := holder{v, []Value{v}, &v}
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "key", v, "holder", h)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", v, "holder", h)
	j, _ := json.Marshal(h)
	all := fmt.Sprintf("%v %+v %#v %s %q %x %d", h, h, h, v, v, v, v) + log.String() + string(j) + v.String() + v.GoString()
	for _, leak := range []string{"canary", "4711", "63616e617279"} {
		if strings.Contains(all, leak) {
			t.Errorf("%q leaks: %s", leak, all)
		}
	}
	if !strings.Contains(all, mask) {
		t.Error("no mask")
	}
	if (Value{}).String() != "" || !(Value{}).IsZero() || v.IsZero() {
		t.Error("the zero value is not empty")
	}
}

func TestScrubber(t *testing.T) {
	New(canary)
	New("abcdefgh")
	New("abcdefghij") // contains the other
	New("a1b")        // short: masked as a word only
	quoted, _ := json.Marshal(canary)
	var out bytes.Buffer
	w := Scrubber(&out)
	for _, line := range []string{
		"Bearer " + canary + "\n", string(quoted) + "\n", "https://h/?key=sk-canary%2F4711%2B%C3%A4%22x&b\n",
		"abcdefghij abcdefgh\n", "key=a1b, but a1bc and xa1b are words\n", "harmless\n",
	} {
		if n, err := w.Write([]byte(line)); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	got := out.String()
	if strings.Contains(got, "canary") || strings.Contains(got, "abcdefgh") {
		t.Errorf("leaks:\n%s", got)
	}
	if !strings.Contains(got, "*** ***\n") || !strings.Contains(got, "key=***, but a1bc and xa1b are words") || !strings.HasSuffix(got, "harmless\n") {
		t.Errorf("got\n%s", got)
	}
}

func TestSources(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	os.WriteFile(path, []byte("from-file-1\n"), 0o644)
	if _, err := FromFile(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Fatal("a file that others may read was accepted: ", err)
	}
	os.Chmod(path, 0o600)
	t.Setenv("SEARCHLOOP_TEST_KEY_FILE", path)
	if v := FromEnv("SEARCHLOOP_TEST_KEY"); v.Reveal() != "from-file-1" {
		t.Fatal(v.Reveal())
	}
	t.Setenv("SEARCHLOOP_TEST_KEY", "from-env-1")
	if v := FromEnv("SEARCHLOOP_TEST_KEY"); v.Reveal() != "from-env-1" {
		t.Fatal(v.Reveal())
	}
	if v := FromEnv("SEARCHLOOP_TEST_NONE"); !v.IsZero() {
		t.Fatal("a secret from nothing")
	}
}
