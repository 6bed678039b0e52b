package lookup

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"searchloop/internal/kv"
	"searchloop/internal/kv/kvtest"
	"searchloop/internal/retry"
)

// TestMain is also a task of a stage: tests start several, as several machines would.
func TestMain(m *testing.M) {
	if len(os.Args) == 5 && os.Args[1] == "task" {
		if err := task(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

const (
	asked     = 40  // queries of every task
	perSecond = 20. // of all tasks together
)

// task asks the provider at url for every query, beginning at its own, and prints the
// answers.
func task(place, url, begin string) error {
	ctx := context.Background()
	store, err := kv.Open(ctx, place)
	if err != nil {
		return err
	}
	defer store.Close()
	d := NewDesk(DeskOptions{Store: store, Run: "r", Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	opt := kept
	opt.Rate, opt.Burst = perSecond, 1
	p := d.Provider(opt)
	var first int
	fmt.Sscan(begin, &first)
	for i := range asked {
		q := fmt.Sprintf("query %d", (first+i)%asked)
		a, err := p.Ask(ctx, query{q}, func(ctx context.Context) (Answer, *retry.Fault) {
			res, err := http.Get(url + "/?q=" + strings.ReplaceAll(q, " ", "+"))
			if err != nil {
				return Answer{}, &retry.Fault{Verdict: retry.Again, Class: "transport", Err: err}
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				return Answer{}, &retry.Fault{Verdict: retry.Again, Class: "transport", Err: err}
			}
			return Answer{Body: body}, nil
		})
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", a.Body)
	}
	return nil
}

// tasks runs three of them side by side and returns when each call came, and what each
// task wrote. during runs when the provider has been called ten times.
func tasks(t *testing.T, place string, during func()) (calls []time.Time, out, logs []string) {
	t.Helper()
	var mu sync.Mutex
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		calls = append(calls, time.Now())
		now := len(calls)
		mu.Unlock()
		if now == 10 && during != nil {
			during()
		}
		fmt.Fprintf(w, "answer to %s", r.URL.Query().Get("q"))
	}))
	defer provider.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(exe, "task", place, provider.URL, fmt.Sprint(i*asked/3))
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("a task failed: %v\n%s", err, stderr.String())
			}
			out, logs = append(out, stdout.String()), append(logs, stderr.String())
		})
	}
	wg.Wait()
	for _, text := range out {
		for i := range asked {
			if strings.Count(text, fmt.Sprintf("answer to query %d\n", i)) != 1 {
				t.Fatalf("a task has not one answer to query %d:\n%s", i, text)
			}
		}
	}
	return calls, out, logs
}

// Tasks on several machines share what one has found, and the provider's limit.
func TestProcessesShareARedis(t *testing.T) {
	r := kvtest.Start(t)
	calls, _, logs := tasks(t, r.URL, nil)
	// Two tasks may ask for the same at the same moment: each pays then.
	if len(calls) < asked || len(calls) > asked+asked/4 {
		t.Errorf("%d calls for %d queries", len(calls), asked)
	}
	if took := calls[len(calls)-1].Sub(calls[0]).Seconds(); float64(len(calls)-1)/took > perSecond*1.15 {
		t.Errorf("%d calls in %.2f s, more than %g a second", len(calls), took, perSecond)
	}
	for _, l := range logs {
		if strings.Contains(l, "level=WARN") {
			t.Error(l)
		}
	}
}

// Redis goes in the middle: each task says so once and goes on, with its own limit, and
// no answer is lost.
func TestRedisGoesWhileProcessesAsk(t *testing.T) {
	r := kvtest.Start(t)
	var once sync.Once
	calls, _, logs := tasks(t, r.URL, func() { once.Do(r.Stop) })
	if len(calls) < asked || len(calls) > 3*asked {
		t.Errorf("%d calls", len(calls))
	}
	if took := calls[len(calls)-1].Sub(calls[0]).Seconds(); float64(len(calls)-1)/took > 3*perSecond*1.15 {
		t.Errorf("%d calls in %.2f s: the tasks have no limit any more", len(calls), took)
	}
	for _, l := range logs {
		if strings.Count(l, "level=WARN") != 1 || !strings.Contains(l, "with limits of this process alone") {
			t.Errorf("a task said:\n%s", l)
		}
	}
}
