package board

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"os"
	"strings"
	"time"

	"searchloop/internal/deliver"
	"searchloop/internal/fail"
	"searchloop/internal/secret"
)

// mlflow is a run of an MLflow server, by its REST API 2.0. The run is found again by
// its tag searchloop.id, so that a job that goes on, or is run again, makes no second.
type mlflow struct {
	base, experiment string
	o                *Options
	to               *deliver.Client
	header           map[string]string
	run              string // its id; "" until it is found or made
}

const (
	perBatch = 1000 // metrics that the API takes at once
	idTag    = "searchloop.id"
)

// What a run is let in with at an MLflow server.
const (
	TokenName    = "MLFLOW_TRACKING_TOKEN"
	PasswordName = "MLFLOW_TRACKING_PASSWORD"
)

func newMLflow(base string, o *Options) *mlflow {
	m := &mlflow{base: base, o: o, to: deliver.New("MLflow"), experiment: os.Getenv("MLFLOW_EXPERIMENT_NAME"), header: map[string]string{"Content-Type": "application/json"}}
	if m.experiment == "" {
		m.experiment = "searchloop"
	}
	token, user, password := secret.FromEnv(TokenName), os.Getenv("MLFLOW_TRACKING_USERNAME"), secret.FromEnv(PasswordName)
	switch {
	case !token.IsZero():
		m.header["Authorization"] = "Bearer " + token.Reveal()
	case user != "" && !password.IsZero():
		both := secret.New(base64.StdEncoding.EncodeToString([]byte(user + ":" + password.Reveal())))
		m.header["Authorization"] = "Basic " + both.Reveal()
	}
	return m
}

func (m *mlflow) name() string { return "MLflow" }

// call makes one request; out may be nil.
func (m *mlflow) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fail.Wrap(fail.Bug, "send", m.name(), err)
		}
	}
	answer, err := m.to.Send(ctx, method, m.base+"/api/2.0/mlflow/"+path, m.header, body)
	if err != nil || out == nil {
		return err
	}
	return fail.Wrap(fail.Service, "read the answer of "+path, m.name(), json.Unmarshal(answer, out))
}

// begin finds or makes the run.
func (m *mlflow) begin(ctx context.Context, at time.Time) error {
	if m.run != "" {
		return nil
	}
	if strings.Contains(strings.TrimPrefix(m.base, "https://"), "@") {
		return fail.New(fail.Usage, "send", m.name(), "MLFLOW_TRACKING_URI holds a password; it stands in MLFLOW_TRACKING_PASSWORD")
	}
	var found struct {
		Experiment struct {
			ID string `json:"experiment_id"`
		}
	}
	id := ""
	if err := m.call(ctx, "GET", "experiments/get-by-name?experiment_name="+url.QueryEscape(m.experiment), nil, &found); err == nil {
		id = found.Experiment.ID
	} else if !strings.Contains(err.Error(), "RESOURCE_DOES_NOT_EXIST") {
		return err
	}
	if id == "" {
		var made struct {
			ID string `json:"experiment_id"`
		}
		if err := m.call(ctx, "POST", "experiments/create", map[string]any{"name": m.experiment}, &made); err != nil {
			return err
		}
		id = made.ID
	}
	type run struct {
		Info struct {
			ID string `json:"run_id"`
		} `json:"info"`
	}
	tag := m.o.Job + " " + m.o.Dataset + " " + m.o.ID
	var old struct{ Runs []run }
	if err := m.call(ctx, "POST", "runs/search", map[string]any{"experiment_ids": []string{id}, "max_results": 1,
		"filter": fmt.Sprintf("tags.`%s` = '%s'", idTag, strings.ReplaceAll(tag, "'", ""))}, &old); err != nil {
		return err
	}
	if len(old.Runs) > 0 {
		m.run = old.Runs[0].Info.ID
		return m.call(ctx, "POST", "runs/update", map[string]any{"run_id": m.run, "status": "RUNNING"}, nil)
	}
	var made struct{ Run run }
	if err := m.call(ctx, "POST", "runs/create", map[string]any{"experiment_id": id, "run_name": m.o.Dataset, "start_time": at.UnixMilli(),
		"tags": []map[string]string{{"key": idTag, "value": strings.ReplaceAll(tag, "'", "")}, {"key": "searchloop.job", "value": m.o.Job}}}, &made); err != nil {
		return err
	}
	if m.run = made.Run.Info.ID; m.run == "" {
		return fail.New(fail.Service, "send", m.name(), "runs/create gave no run_id")
	}
	return nil
}

func (m *mlflow) take(ctx context.Context, list []batch) error {
	if err := m.begin(ctx, list[0].at); err != nil {
		return err
	}
	type metric struct {
		Key   string  `json:"key"`
		Value float64 `json:"value"`
		Time  int64   `json:"timestamp"`
		Step  int64   `json:"step"`
	}
	var all []metric
	for _, b := range list {
		for _, p := range b.points {
			if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) { // JSON has no such number
				all = append(all, metric{p.Tag, p.Value, b.at.UnixMilli(), b.step})
			}
		}
	}
	for len(all) > 0 { // a point that is logged twice counts once
		n := min(len(all), perBatch)
		if err := m.call(ctx, "POST", "runs/log-batch", map[string]any{"run_id": m.run, "metrics": all[:n]}, nil); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

func (m *mlflow) close(ctx context.Context) error {
	if m.run == "" {
		return nil
	}
	return m.call(ctx, "POST", "runs/update", map[string]any{"run_id": m.run, "status": "FINISHED", "end_time": time.Now().UnixMilli()}, nil)
}
