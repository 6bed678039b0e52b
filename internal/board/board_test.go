package board

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"searchloop/internal/secret"
)

// tracking is an MLflow server as its REST API 2.0 is documented, strict about what it
// is asked.
type tracking struct {
	t       *testing.T
	mu      sync.Mutex
	auth    map[string]bool
	runs    map[string]string // tag searchloop.id → id
	status  map[string]string
	metrics map[string]float64 // run key step → value
	batches int
	made    bool // the experiment
}

func (s *tracking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.auth[r.Header.Get("Authorization")] = true
	var in struct {
		Name, Filter, Status string
		Experiment           string   `json:"experiment_id"`
		Experiments          []string `json:"experiment_ids"`
		RunName              string   `json:"run_name"`
		Run                  string   `json:"run_id"`
		Start                int64    `json:"start_time"`
		End                  int64    `json:"end_time"`
		Tags                 []struct{ Key, Value string }
		Metrics              []struct {
			Key       string
			Value     float64
			Timestamp int64
			Step      int64
		}
	}
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("Content-Type") != "application/json" {
			s.t.Errorf("%s: %v, %v", r.URL, err, r.Header)
		}
	}
	say := func(v any) { json.NewEncoder(w).Encode(v) }
	wrong := func(ok bool, what string) {
		if !ok {
			s.t.Errorf("%s: %s: %+v", r.URL.Path, what, in)
		}
	}
	switch path := strings.TrimPrefix(r.URL.Path, "/api/2.0/mlflow/"); path {
	case "experiments/get-by-name":
		wrong(r.Method == "GET" && r.URL.Query().Get("experiment_name") == "of mine", "name")
		if !s.made {
			w.WriteHeader(404)
			say(map[string]string{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "none"})
			return
		}
		say(map[string]any{"experiment": map[string]string{"experiment_id": "7"}})
	case "experiments/create":
		wrong(in.Name == "of mine" && !s.made, "once")
		s.made = true
		say(map[string]string{"experiment_id": "7"})
	case "runs/search":
		wrong(len(in.Experiments) == 1 && in.Experiments[0] == "7", "experiment")
		var list []any
		for tag, id := range s.runs {
			if in.Filter == "tags.`searchloop.id` = '"+tag+"'" {
				list = append(list, map[string]any{"info": map[string]string{"run_id": id}})
			}
		}
		say(map[string]any{"runs": list})
	case "runs/create":
		wrong(in.Experiment == "7" && in.Start > 0 && in.RunName == "runs/r/epoch-1/x" && len(in.Tags) == 2, "fields")
		id := fmt.Sprint("run", len(s.runs))
		s.runs[in.Tags[0].Value], s.status[id] = id, "RUNNING"
		say(map[string]any{"run": map[string]any{"info": map[string]string{"run_id": id}}})
	case "runs/log-batch":
		wrong(s.status[in.Run] == "RUNNING" && len(in.Metrics) > 0 && len(in.Metrics) <= 1000, "a batch")
		s.batches++
		for _, m := range in.Metrics {
			wrong(m.Timestamp > 1e12, "milliseconds")
			s.metrics[fmt.Sprintf("%s %s %d", in.Run, m.Key, m.Step)] = m.Value
		}
		say(struct{}{})
	case "runs/update":
		wrong(s.status[in.Run] != "" && (in.Status == "RUNNING" || in.Status == "FINISHED" && in.End > 0), "fields")
		s.status[in.Run] = in.Status
		say(struct{}{})
	default:
		s.t.Errorf("%s %s", r.Method, r.URL)
		w.WriteHeader(404)
	}
}

func TestPlaces(t *testing.T) {
	s := &tracking{t: t, auth: map[string]bool{}, runs: map[string]string{}, status: map[string]string{}, metrics: map[string]float64{}}
	mlflow := httptest.NewServer(s)
	defer mlflow.Close()
	var pushed map[string]float64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// base64url of runs/r/epoch-1/x, as the gateway takes label values with slashes
		if r.Method != http.MethodPut || r.URL.Path != "/metrics/job/searchloop_grpo/dataset@base64/cnVucy9yL2Vwb2NoLTEveA" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
			t.Errorf("%s %s %v", r.Method, r.URL.Path, r.Header)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(r.Body)
		if err != nil {
			t.Error(err)
		}
		pushed = map[string]float64{}
		for name, f := range families {
			pushed[name] = f.Metric[0].Gauge.GetValue()
		}
		w.WriteHeader(http.StatusOK)
	}))
	defer gateway.Close()
	t.Setenv("MLFLOW_TRACKING_URI", mlflow.URL+"/")
	t.Setenv("MLFLOW_EXPERIMENT_NAME", "of mine")
	t.Setenv("MLFLOW_TRACKING_TOKEN", "canary-of-mlflow")
	t.Setenv("PUSHGATEWAY_URL", gateway.URL)
	var log bytes.Buffer
	o := Options{Job: "grpo", Dataset: "runs/r/epoch-1/x", ID: "abc", Dir: t.TempDir(), Step: 1, Log: slog.New(slog.NewTextHandler(&log, nil))}
	play := func(first, last int64) {
		t.Helper()
		o.Step = first
		b, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		for step := first; step <= last; step++ {
			b.Add(step, time.Now(), []Point{{Tag: "grpo/loss", Value: 1 / float64(step)}, {Tag: "grpo/mismatch/abs-mean", Value: math.NaN()}})
		}
		b.Close()
	}
	play(1, 1200)
	if s.batches != 2 || s.status["run0"] != "FINISHED" {
		t.Errorf("%d batches, %v", s.batches, s.status)
	}
	play(1201, 1202) // the job goes on
	if len(s.runs) != 1 || len(s.metrics) != 1202 || s.metrics["run0 grpo/loss 1202"] != 1./1202 || s.status["run0"] != "FINISHED" {
		t.Errorf("runs %v, %d metrics, %v", s.runs, len(s.metrics), s.status)
	}
	if len(s.auth) != 1 || !s.auth["Bearer canary-of-mlflow"] {
		t.Errorf("authorisation %v", s.auth)
	}
	if len(pushed) != 3 || pushed["searchloop_grpo_loss"] != 1./1202 || !math.IsNaN(pushed["searchloop_grpo_mismatch_abs_mean"]) || pushed["searchloop_step"] != 1202 {
		t.Errorf("pushed %v", pushed)
	}
	files, _ := filepath.Glob(filepath.Join(o.Dir, "*tfevents*"))
	text := ""
	for _, f := range files {
		b, _ := os.ReadFile(f)
		text += string(b)
	}
	if n := strings.Count(text, "grpo/loss"); n != 1202 {
		t.Errorf("%d points in %v", n, files)
	}
	if log.Len() > 0 {
		t.Errorf("said:\n%s", log.String())
	}
}

// A server that refuses, and one that is not there, cost a warning each, whatever is
// sent, and a bounded time; secrets are in none of them.
func TestPlacesThatFail(t *testing.T) {
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(400)
		io.WriteString(w, "refused "+r.Header.Get("Authorization"))
	}))
	defer bad.Close()
	t.Setenv("MLFLOW_TRACKING_URI", bad.URL)
	t.Setenv("MLFLOW_TRACKING_USERNAME", "me")
	t.Setenv("MLFLOW_TRACKING_PASSWORD", "canary-password")
	t.Setenv("PUSHGATEWAY_URL", "http://canary-host.invalid:1 2")
	var log bytes.Buffer
	began := time.Now()
	b, err := Open(Options{Job: "judge", Dataset: "x", Log: slog.New(slog.NewTextHandler(secret.Scrubber(&log), nil))})
	if err != nil {
		t.Fatal(err)
	}
	for step := range int64(3 * most) {
		b.Add(step, time.Now(), []Point{{Tag: "judge/accuracy", Value: 1}})
	}
	for _, r := range b.remote {
		r.flush(t.Context())
		if r.mu.Lock(); len(r.waiting) != most {
			t.Errorf("%s: %d steps wait", r.to.name(), len(r.waiting))
		}
		r.mu.Unlock()
	}
	b.Close()
	if n := strings.Count(log.String(), "metrics are not shown"); n != 2 || strings.Contains(log.String(), "canary") || strings.Contains(log.String(), "bWU6Y2FuYXJ5") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if took := time.Since(began); took > patient {
		t.Errorf("it took %v", took)
	}
}

func TestNowhere(t *testing.T) {
	t.Setenv("MLFLOW_TRACKING_URI", "")
	t.Setenv("PUSHGATEWAY_URL", "")
	b, err := Open(Options{})
	if b != nil || err != nil || Wanted("") || !Wanted("x") {
		t.Error(b, err)
	}
	b.Add(1, time.Now(), []Point{{Tag: "x"}})
	b.Close()
}
