package job

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

// out is a buffer for many goroutines.
type out struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *out) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *out) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func TestProgressLine(t *testing.T) {
	var o out
	r := NewRun("j", Flags{ProgressMode: "line"}, io.Discard, &o)
	p := r.Progress("rows", 200)
	p.Skip(50)
	p.Add(40, 10)
	p.Note("tokens/s", 1200)
	p.Note("in flight", 3)
	p.Note("tokens/s", 1300)
	p.began = time.Now().Add(-10 * time.Second)
	line := p.line()
	// 50 of 100 were made in 10 s: 5/s, and 100 are left.
	for _, want := range []string{"rows 100/200 (50%), 10 failed, 50 from before, 5/s, 20s left, tokens/s 1300, in flight 3"} {
		if line != want {
			t.Errorf("%q, want %q", line, want)
		}
	}
	p.Done()
	p.Done()
	if n := strings.Count(o.String(), "rows 100/200"); n != 1 {
		t.Errorf("the last line was printed %d times:\n%s", n, o.String())
	}
}

func TestProgressJSON(t *testing.T) {
	var o out
	r := NewRun("j", Flags{ProgressMode: "json"}, io.Discard, &o)
	p := r.Progress("rows", -1)
	p.Add(3, 1)
	p.Note("loss", 0.5)
	p.Done()
	var v struct {
		Progress            string
		Done, Failed, Total int64
		Notes               map[string]float64
	}
	if err := json.Unmarshal([]byte(o.String()), &v); err != nil || v.Progress != "rows" || v.Done != 4 || v.Failed != 1 || v.Total != 0 || v.Notes["loss"] != 0.5 {
		t.Fatalf("%v %+v from %s", err, v, o.String())
	}
}

// Log lines stay whole beside a bar, and the bar is gone in the end.
func TestProgressBar(t *testing.T) {
	var o out
	r := NewRun("j", Flags{ProgressMode: "bar"}, io.Discard, &o)
	p := r.Progress("rows", 100)
	second := r.Progress("others", 10) // only one bar at a time
	if p.bar == nil || second.bar != nil {
		t.Fatal("not one bar")
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				p.Add(1, 0)
				r.Log.Info("a line")
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	wg.Wait()
	p.draw()
	p.Done()
	second.Done()
	text := o.String()
	if n := strings.Count(text, "msg=\"a line\"\n"); n != 100 {
		t.Errorf("%d of 100 log lines are whole", n)
	}
	if !strings.Contains(text, "(99/100") {
		t.Error("no bar was drawn")
	}
	if end := text[strings.LastIndex(text, "a line"):]; !strings.Contains(end, "rows 100/100 (100%)") {
		t.Errorf("the end is %q", end)
	}
}
