package device

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]struct {
		class   string
		ordinal int
	}{"": {"cpu", 0}, "cpu": {"cpu", 0}, "auto": {"auto", 0}, "cuda": {"cuda", 0}, "cuda:3": {"cuda", 3}} {
		class, ordinal, err := Parse(name)
		if err != nil || class != want.class || ordinal != want.ordinal {
			t.Errorf("%q: %s, %d, %v", name, class, ordinal, err)
		}
	}
	for _, name := range []string{"gpu", "cuda:", "cuda:-1", "cuda:01", "cuda:x", "cpu:0", "auto:1"} {
		if _, _, err := Parse(name); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "want cpu, cuda") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Where there is no GPU, asking for one is an error and auto is the CPU.
func TestWithoutGPU(t *testing.T) {
	if _, err := cuda.Open(0); err == nil {
		t.Skip("there is a GPU")
	}
	var log bytes.Buffer
	l := slog.New(slog.NewTextHandler(&log, nil))
	if _, err := Open("cuda", l); fail.KindOf(err) != fail.Usage {
		t.Errorf("cuda: %v", err)
	}
	for _, name := range []string{"auto", "cpu", ""} {
		g, err := Open(name, l)
		if err != nil || g != nil || g.Identity() != "" {
			t.Errorf("%s: %v, %v", name, g, err)
		}
	}
	if !strings.Contains(log.String(), "computing on the CPU") {
		t.Errorf("auto says nothing: %s", log.String())
	}
}
