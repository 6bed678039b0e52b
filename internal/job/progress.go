package job

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

const (
	lineEvery = 30 * time.Second // without a terminal
	jsonEvery = 5 * time.Second
	barEvery  = 100 * time.Millisecond
)

// Progress counts what one loop of a job has done and shows it. Its methods are
// safe for concurrent use and cheap enough for every row.
type Progress struct {
	run   *Run
	what  string
	total int64
	began time.Time
	bar   *progressbar.ProgressBar
	stop  chan struct{}
	once  sync.Once

	mu      sync.Mutex
	ok      int64
	failed  int64
	skipped int64 // of ok and failed: finished by an earlier attempt, so no measure of speed
	keys    []string
	notes   map[string]any
}

// Progress begins a count of total things named what ("trajectories"); total < 1
// means unknown. It is shown as a bar on a terminal, as a line every 30 seconds
// elsewhere, or as --progress says.
func (r *Run) Progress(what string, total int64) *Progress {
	p := &Progress{run: r, what: what, total: total, began: time.Now(), stop: make(chan struct{}), notes: map[string]any{}}
	mode := r.ProgressMode
	if mode == "auto" {
		mode = "line"
		if r.screen.terminal() {
			mode = "bar"
		}
	}
	if mode == "bar" {
		p.bar = newBar(r.screen, what, total)
		if !r.screen.show(p.bar) {
			p.bar, mode = nil, "line"
		}
	}
	r.mu.Lock()
	r.progress = append(r.progress, p)
	r.mu.Unlock()
	switch mode {
	case "line":
		go p.every(lineEvery, func() { r.Log.Info(p.line()) })
	case "json":
		go p.every(jsonEvery, p.printJSON)
	case "bar":
		go p.every(barEvery, p.draw)
	}
	return p
}

func newBar(s *screen, what string, total int64) *progressbar.ProgressBar {
	if total < 1 {
		total = -1 // a spinner
	}
	return progressbar.NewOptions64(total, progressbar.OptionSetWriter(s.w), progressbar.OptionSetDescription(what),
		progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetWidth(24), progressbar.OptionClearOnFinish())
}

func (p *Progress) every(d time.Duration, show func()) {
	t := time.NewTicker(d)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-t.C:
			show()
		}
	}
}

// Add counts things that ended well and things that failed.
func (p *Progress) Add(ok, failed int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ok, p.failed = p.ok+ok, p.failed+failed
}

// Skip counts things that an earlier attempt had finished.
func (p *Progress) Skip(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ok, p.skipped = p.ok+n, p.skipped+n
}

// Note shows v under key from now on: tokens/s, in flight, loss.
func (p *Progress) Note(key string, v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.notes[key]; !ok {
		p.keys = append(p.keys, key)
	}
	p.notes[key] = v
}

// Done ends the display. Further calls do nothing.
func (p *Progress) Done() {
	p.once.Do(func() {
		close(p.stop)
		p.run.screen.hide(p.bar)
		switch p.run.ProgressMode {
		case "none":
		case "json":
			p.printJSON()
		default:
			p.run.Log.Info(p.line())
		}
	})
}

// rate is things a second in this run and the time that is left; 0 when unknown.
func (p *Progress) rate() (perSecond float64, left time.Duration) {
	elapsed := time.Since(p.began).Seconds()
	done := p.ok + p.failed
	if fresh := done - p.skipped; fresh > 0 && elapsed > 0 {
		perSecond = float64(fresh) / elapsed
		if rest := p.total - done; rest > 0 {
			left = time.Duration(float64(rest) / perSecond * float64(time.Second)).Round(time.Second)
		}
	}
	return perSecond, left
}

func (p *Progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	done := p.ok + p.failed
	fmt.Fprintf(&b, "%s %d", p.what, done)
	if p.total > 0 {
		fmt.Fprintf(&b, "/%d (%.0f%%)", p.total, 100*float64(done)/float64(p.total))
	}
	if p.failed > 0 {
		fmt.Fprintf(&b, ", %d failed", p.failed)
	}
	if p.skipped > 0 {
		fmt.Fprintf(&b, ", %d from before", p.skipped)
	}
	perSecond, left := p.rate()
	if perSecond > 0 {
		fmt.Fprintf(&b, ", %.3g/s", perSecond)
	}
	if left > 0 {
		fmt.Fprintf(&b, ", %v left", left)
	}
	for _, k := range p.keys {
		fmt.Fprintf(&b, ", %s %v", k, p.notes[k])
	}
	return b.String()
}

// draw moves the bar to where the counts are.
func (p *Progress) draw() {
	p.mu.Lock()
	done, failed := p.ok+p.failed, p.failed
	text := p.what
	if failed > 0 {
		text += fmt.Sprintf(", %d failed", failed)
	}
	for _, k := range p.keys {
		text += fmt.Sprintf(", %s %v", k, p.notes[k])
	}
	p.mu.Unlock()
	p.run.screen.mu.Lock()
	defer p.run.screen.mu.Unlock()
	if p.run.screen.bar != p.bar {
		return
	}
	p.bar.Describe(text)
	if p.total > 0 {
		done = min(done, p.total-1) // the bar takes itself off at the total; Done does that here
	}
	p.bar.Set64(done)
}

func (p *Progress) printJSON() {
	p.mu.Lock()
	perSecond, left := p.rate()
	v := map[string]any{"progress": p.what, "done": p.ok + p.failed, "failed": p.failed, "skipped": p.skipped, "total": max(p.total, 0),
		"per_second": perSecond, "seconds_left": left.Seconds(), "seconds": time.Since(p.began).Seconds(), "notes": p.notes}
	b, err := json.Marshal(v)
	p.mu.Unlock()
	if err == nil {
		p.run.screen.Write(append(b, '\n'))
	}
}

// printProgress logs the state of every count that is not done.
func (r *Run) printProgress() {
	r.mu.Lock()
	list := append([]*Progress(nil), r.progress...)
	r.mu.Unlock()
	for _, p := range list {
		select {
		case <-p.stop:
		default:
			r.Log.Info(p.line())
		}
	}
}
