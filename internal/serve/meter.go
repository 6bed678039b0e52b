package serve

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// meter counts what the server does.
type meter struct {
	codes   [600]atomic.Int64 // finished requests by status
	prompt  atomic.Int64      // prompt tokens read by the model
	reused  atomic.Int64      // prompt tokens found in caches
	sampled atomic.Int64
	model   atomic.Int64 // nanoseconds in the model
	kept    atomic.Int64 // tokens in the caches of ended turns

	mu     sync.Mutex
	recent [window]struct{ second, tokens int64 }
	turns  [window]struct{ second, turns int64 }
}

const window = 16 // seconds; rates are over the last window-1 whole ones

func (m *meter) request(status int) {
	if status > 0 && status < len(m.codes) {
		m.codes[status].Add(1)
	}
}

// add counts sampled tokens.
func (m *meter) add(n int) {
	m.sampled.Add(int64(n))
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Unix()
	r := &m.recent[now%window]
	if r.second != now {
		r.second, r.tokens = now, 0
	}
	r.tokens += int64(n)
}

// ended counts finished turns.
func (m *meter) ended() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Unix()
	r := &m.turns[now%window]
	if r.second != now {
		r.second, r.turns = now, 0
	}
	r.turns++
}

// rates are sampled tokens and ended turns a second over the last ten seconds.
func (m *meter) rates() (tokens, turns float64) {
	const span = 10
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now().Unix()
	for i := range m.recent {
		if r := m.recent[i]; r.second < now && r.second >= now-span {
			tokens += float64(r.tokens) / span
		}
		if r := m.turns[i]; r.second < now && r.second >= now-span {
			turns += float64(r.turns) / span
		}
	}
	return
}

// write writes the metrics in Prometheus's text format.
func (m *meter) write(w io.Writer, queued, running int) {
	metric := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP searchloop_%s %s\n# TYPE searchloop_%s %s\n", name, help, name, kind)
	}
	one := func(name, kind, help string, v any) {
		metric(name, kind, help)
		fmt.Fprintf(w, "searchloop_%s %v\n", name, v)
	}
	metric("requests_total", "counter", "Finished requests by HTTP status.")
	for code := range m.codes {
		if n := m.codes[code].Load(); n > 0 {
			fmt.Fprintf(w, "searchloop_requests_total{code=\"%d\"} %d\n", code, n)
		}
	}
	tokens, _ := m.rates()
	one("prompt_tokens_total", "counter", "Prompt tokens read by the model.", m.prompt.Load())
	one("reused_prompt_tokens_total", "counter", "Prompt tokens found in caches.", m.reused.Load())
	one("sampled_tokens_total", "counter", "Tokens sampled.", m.sampled.Load())
	one("tokens_per_second", "gauge", "Tokens sampled a second over the last ten seconds.", tokens)
	one("model_seconds_total", "counter", "Time spent in the model.", time.Duration(m.model.Load()).Seconds())
	one("queue_length", "gauge", "Requests that wait.", queued)
	one("running", "gauge", "Requests that are answered now.", running)
	one("kept_cache_tokens", "gauge", "Tokens in the caches of ended turns.", m.kept.Load())
}
