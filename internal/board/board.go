// Package board shows the numbers of a job where people look at curves: as event files
// of TensorBoard, and, where the environment names them, at an MLflow server and at a
// pushgateway of Prometheus. What goes in is points by name and step; nothing comes
// out: a place that fails is told of once, in the log, and neither holds the job up nor
// ends it. Points that it did not take are sent again with the next ones.
//
//	MLFLOW_TRACKING_URI        http://host:5000; MLFLOW_EXPERIMENT_NAME, default searchloop
//	MLFLOW_TRACKING_TOKEN      or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD
//	PUSHGATEWAY_URL            http://host:9091
//
// Tokens and passwords may stand in files: NAME_FILE. See docs/metrics.md.
package board

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"searchloop/internal/tfevents"
)

// Point is one number of a step. Tags are paths: grpo/mismatch/abs_mean.
type Point = tfevents.Scalar

// Options of Open.
type Options struct {
	Job     string // rollout, judge, sft, grpo
	Dataset string // folder of the dataset that the job makes: the name of the run at a server
	ID      string // digest of that dataset: a job that goes on goes on with its run
	Dir     string // folder for event files; "" for none
	Step    int64  // first step of this process
	Log     *slog.Logger
}

// batch is the points of one step.
type batch struct {
	step   int64
	at     time.Time
	points []Point
}

// sink is one place. Its methods are called by one goroutine.
type sink interface {
	name() string
	take(ctx context.Context, b []batch) error // all of them, or an error and none
	close(ctx context.Context) error           // the job has ended
}

const (
	every   = 5 * time.Second  // between two looks at what is to be sent
	patient = 10 * time.Second // for a server, at the end of a job
	most    = 4096             // steps that wait for a server; older ones are let go
)

// Board is open until Close. Safe for concurrent use. The nil Board shows nothing.
type Board struct {
	log    *slog.Logger
	events *tfevents.Writer // nil: none, or no more
	mu     sync.Mutex
	remote []*remote
}

// Open opens every place that there is. With none it gives nil.
func Open(o Options) (*Board, error) {
	b := &Board{log: o.Log}
	if o.Dir != "" {
		var err error
		if b.events, err = tfevents.Create(o.Dir, o.Step, time.Now()); err != nil {
			return nil, err
		}
	}
	if u := address("MLFLOW_TRACKING_URI"); u != "" {
		b.remote = append(b.remote, send(newMLflow(u, &o), o.Log))
	}
	if u := address("PUSHGATEWAY_URL"); u != "" {
		b.remote = append(b.remote, send(newGateway(u, &o), o.Log))
	}
	if b.events == nil && len(b.remote) == 0 {
		return nil, nil
	}
	return b, nil
}

func address(name string) string { return strings.TrimRight(strings.TrimSpace(os.Getenv(name)), "/") }

// Add shows the points of one step.
func (b *Board) Add(step int64, at time.Time, points []Point) {
	if b == nil || len(points) == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events != nil {
		if err := b.events.Scalars(step, at, points); err != nil { // curves are no ground to stop a job
			b.log.Warn("no more events for TensorBoard", "because", err)
			b.events.Close()
			b.events = nil
		}
	}
	for _, r := range b.remote {
		r.put(batch{step, at, points})
	}
}

// Close sends what is left, for a few seconds at most.
func (b *Board) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.events != nil {
		b.events.Close()
		b.events = nil
	}
	var wg sync.WaitGroup
	for _, r := range b.remote {
		wg.Go(r.end)
	}
	wg.Wait()
	b.remote = nil
}

// remote sends to one server behind the job's back.
type remote struct {
	to   sink
	log  *slog.Logger
	told bool // that it fails

	mu      sync.Mutex
	waiting []batch
	ending  chan struct{}
	ended   chan struct{}
}

func send(to sink, log *slog.Logger) *remote {
	r := &remote{to: to, log: log, ending: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		for {
			select {
			case <-tick.C:
				r.flush(ctx)
			case <-r.ending:
				ctx, cancel := context.WithTimeout(ctx, patient)
				defer cancel()
				r.flush(ctx)
				r.note(r.to.close(ctx))
				return
			}
		}
	}()
	return r
}

func (r *remote) put(b batch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting = append(r.waiting, b); len(r.waiting) > most {
		r.waiting = r.waiting[len(r.waiting)-most:]
	}
}

// flush sends what waits; what was not taken waits on.
func (r *remote) flush(ctx context.Context) {
	r.mu.Lock()
	list := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	if len(list) == 0 {
		return
	}
	if err := r.to.take(ctx, list); err != nil {
		r.note(err)
		r.mu.Lock()
		r.waiting = append(list, r.waiting...)
		r.mu.Unlock()
	}
}

func (r *remote) note(err error) {
	if err != nil && !r.told {
		r.told = true
		r.log.Warn("metrics are not shown; the job goes on", "at", r.to.name(), "error", err)
	}
}

// end waits for the sender; one in the middle of a request is not waited for longer
// than a server is given at the end.
func (r *remote) end() {
	close(r.ending)
	select {
	case <-r.ended:
	case <-time.After(patient + time.Second):
		r.log.Warn("metrics were left behind", "at", r.to.name())
	}
}

// Points are the numbers of v, as its JSON has them: under kind, and one level deeper
// what has parts. What is no number has no point; yes is 1.
func Points(kind string, v any) ([]Point, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	return flatten(nil, kind, tree), nil
}

func flatten(to []Point, path string, tree map[string]any) []Point {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		tag := path + "/" + key
		switch v := tree[key].(type) {
		case float64:
			to = append(to, Point{Tag: tag, Value: v})
		case bool:
			x := 0.0
			if v {
				x = 1
			}
			to = append(to, Point{Tag: tag, Value: x})
		case map[string]any:
			to = flatten(to, tag, v)
		}
	}
	return to
}

// Show shows what a job that has ended found, as one step. That it cannot be shown is
// said in the log.
func Show(o Options, v any) {
	b, err := Open(o)
	if err == nil && b != nil {
		var points []Point
		if points, err = Points(o.Job, v); err == nil {
			b.Add(o.Step, time.Now(), points)
		}
		b.Close()
	}
	if err != nil {
		o.Log.Warn("metrics are not shown; the job goes on", "error", err)
	}
}

// Wanted says whether there is any place to show numbers at.
func Wanted(dir string) bool {
	return dir != "" || address("MLFLOW_TRACKING_URI") != "" || address("PUSHGATEWAY_URL") != ""
}
