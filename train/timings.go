package train

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"searchloop/internal/fail"
)

// timingsLog is timings.jsonl: what each step took. It is not part of the
// checkpoint, because no two runs agree on it; a run that continues appends.
type timingsLog struct{ f *os.File }

func openTimings(dir string) (*timingsLog, error) {
	path := filepath.Join(dir, timingsName)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fail.Wrap(fail.Disk, "open timings", path, err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open timings", path, err)
	}
	return &timingsLog{f}, nil
}

// add writes a line. Its loss would be no loss: errors are not reported.
func (t *timingsLog) add(line *Line, took time.Duration, rate float64) {
	text, err := json.Marshal(struct {
		Step   int64   `json:"step"`
		Secs   float64 `json:"seconds"`
		Rate   float64 `json:"tokens_per_second"`
		Memory int64   `json:"peak_memory_bytes,omitempty"`
	}{line.Step, took.Seconds(), rate, peakMemory()})
	if err == nil {
		t.f.Write(append(text, '\n'))
	}
}

func (t *timingsLog) close() { t.f.Close() }

// peakMemory is the process's greatest resident size, 0 where the system does
// not say.
func peakMemory() int64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			f := strings.Fields(rest)
			if len(f) == 2 {
				n, _ := strconv.ParseInt(f[0], 10, 64)
				return n << 10
			}
		}
	}
	return 0
}

// short is a number as people read it.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 4, 64) }
