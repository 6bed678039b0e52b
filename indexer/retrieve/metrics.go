package retrieve

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// metrics counts what a server did, for GET /metrics in Prometheus' text format.
type metrics struct {
	mu       sync.Mutex
	requests map[int]int64 // by status
	seconds  histogram     // of requests that were answered
	batches  histogram     // requests of a batch
	queries  int64         // that were searched for
}

// histogram counts values up to each bound, as Prometheus does.
type histogram struct {
	bounds []float64
	counts []int64
	sum    float64
	n      int64
}

func newMetrics() *metrics {
	return &metrics{
		requests: map[int]int64{},
		seconds:  histogram{bounds: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}},
		batches:  histogram{bounds: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256}},
	}
}

func (h *histogram) add(v float64) {
	if h.counts == nil {
		h.counts = make([]int64, len(h.bounds))
	}
	for i, b := range h.bounds {
		if v <= b {
			h.counts[i]++
		}
	}
	h.sum += v
	h.n++
}

func (m *metrics) request(code int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests[code]++
	if code == http.StatusOK {
		m.seconds.add(took.Seconds())
	}
}

func (m *metrics) batch(requests, queries int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches.add(float64(requests))
	m.queries += int64(queries)
}

func (m *metrics) write(w io.Writer, waiting int, rows int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	head := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP searchloop_retrieve_%s %s\n# TYPE searchloop_retrieve_%s %s\n", name, help, name, kind)
	}
	head("requests_total", "counter", "Requests to /retrieve by status.")
	for _, code := range slices.Sorted(maps.Keys(m.requests)) {
		fmt.Fprintf(w, "searchloop_retrieve_requests_total{code=\"%d\"} %d\n", code, m.requests[code])
	}
	head("queries_total", "counter", "Queries searched for.")
	fmt.Fprintf(w, "searchloop_retrieve_queries_total %d\n", m.queries)
	for _, h := range []struct {
		name, help string
		*histogram
	}{{"seconds", "Time from a request's arrival to its answer.", &m.seconds}, {"batch_requests", "Requests searched together.", &m.batches}} {
		head(h.name, "histogram", h.help)
		for i, b := range h.bounds {
			var n int64
			if h.counts != nil {
				n = h.counts[i]
			}
			fmt.Fprintf(w, "searchloop_retrieve_%s_bucket{le=\"%g\"} %d\n", h.name, b, n)
		}
		fmt.Fprintf(w, "searchloop_retrieve_%s_bucket{le=\"+Inf\"} %d\nsearchloop_retrieve_%s_sum %g\nsearchloop_retrieve_%s_count %d\n", h.name, h.n, h.name, h.sum, h.name, h.n)
	}
	head("waiting", "gauge", "Requests that wait for the search before theirs.")
	fmt.Fprintf(w, "searchloop_retrieve_waiting %d\n", waiting)
	head("rows", "gauge", "Passages in the index.")
	fmt.Fprintf(w, "searchloop_retrieve_rows %d\n", rows)
}
