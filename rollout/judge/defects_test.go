package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/recipe"
	"searchloop/rollout/fence"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// A judge is asked with every sampling number said, through one client for all rows,
// and whether the answer is the truth, not whether it holds the truth somewhere: the
// recipes say that an answer which offers several is none.
func TestG37OneClientAndNoHedging(t *testing.T) {
	var conns atomic.Int32
	var mu sync.Mutex
	var bodies []map[string]any
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			io.WriteString(w, `{"data":[{"id":"scripted"}]}`)
			return
		}
		var in map[string]any
		json.NewDecoder(r.Body).Decode(&in)
		mu.Lock()
		bodies = append(bodies, in)
		mu.Unlock()
		io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"No"},"finish_reason":"stop"}]}`)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	var rows []trajectory.Row
	for i := range 40 {
		rows = append(rows, said(fmt.Sprintf("r%02d", i), fmt.Sprint("answer ", i), "Paris"))
	}
	b := newBench(t, scripted.Options{}, rows)
	if err := b.run(t, func(_ *job.Run, o *Options) { o.URL = s.URL }); err != nil {
		t.Fatal(err)
	}
	if len(bodies) != 40 || conns.Load() > 6 { // four at once, and the question for models
		t.Errorf("%d requests over %d connections", len(bodies), conns.Load())
	}
	for _, in := range bodies {
		for _, key := range []string{"temperature", "top_p", "max_tokens", "seed"} {
			if _, said := in[key]; !said {
				t.Fatalf("%s is not said: %v", key, in)
			}
		}
	}
	t.Chdir("../..") // where recipes are found
	for _, name := range []string{"mm-deepresearch", "mmsearch-r1", "vision-deepresearch", "search-r1"} {
		r, err := recipe.Load(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := newAsker(r.Judge, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		row := said("a", strings.Repeat("It may be Paris. ", 1000)+"Or Rome.", "Paris")
		text, err := a.prompt(&row)
		if err != nil {
			t.Fatal(err)
		}
		if answer, _ := fence.Find(text, "ANSWER"); len(answer) > 4200 || !strings.HasSuffix(answer, "Or Rome.") {
			t.Errorf("%s: an answer of %d characters", name, len(answer))
		}
		if !bytes.Contains([]byte(a.recipe.System+text), []byte("several")) || r.Judge.Temperature != 0 {
			t.Errorf("%s: nothing is said of answers that offer several, or the temperature is %g", name, r.Judge.Temperature)
		}
	}
}
