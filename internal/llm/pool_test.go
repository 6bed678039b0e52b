package llm

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
)

// twin is one of several equal servers.
type twin struct {
	url    string
	asked  atomic.Int32
	now    atomic.Int32
	most   atomic.Int32
	status atomic.Int32 // of its answers; 0: well
	fails  atomic.Int32 // so many turns are answered by 503
	wait   time.Duration
}

func newTwin(t *testing.T, model string) *twin {
	t.Helper()
	w := new(twin)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if code := int(w.status.Load()); code != 0 {
			rw.WriteHeader(code)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprintf(rw, `{"data":[{"id":%q}]}`, model)
			return
		}
		if w.fails.Add(-1) >= 0 {
			rw.WriteHeader(503)
			return
		}
		w.asked.Add(1)
		n := w.now.Add(1)
		defer w.now.Add(-1)
		for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
		}
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(w.wait)
		io.WriteString(rw, okBody)
	}))
	t.Cleanup(s.Close)
	w.url = s.URL
	return w
}

func poolOf(t *testing.T, most int, twins ...*twin) *Pool {
	t.Helper()
	var urls []string
	for _, w := range twins {
		urls = append(urls, w.url)
	}
	p, err := Open(t.Context(), Options{Name: "policy server", Timeout: time.Minute}, PoolOptions{URLs: urls, PerServer: most,
		Retry: retry.Options{Base: time.Millisecond, Cap: 4 * time.Millisecond, Open: 10 * time.Millisecond, Gone: 300 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func turn(t *testing.T, s *Session) {
	t.Helper()
	if r, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "hello"}}}); err != nil || r.Text != "hi" {
		t.Errorf("%+v %v", r, err)
	}
}

func TestConversationsStayWhereTheirBeginningIs(t *testing.T) {
	a, b := newTwin(t, "m"), newTwin(t, "m")
	p := poolOf(t, 0, a, b)
	one, two := p.Session("q1"), p.Session("q1") // two samples of a question
	other := p.Session("q2")
	for range 3 {
		turn(t, one)
		turn(t, two)
	}
	if a.asked.Load() != 6 || b.asked.Load() != 0 {
		t.Errorf("%d and %d turns: a group is served by one cache", a.asked.Load(), b.asked.Load())
	}
	// The least loaded server gets what is new; what is overloaded loses what it has.
	p.mu.Lock()
	p.servers[0].load = 5
	p.mu.Unlock()
	turn(t, other)
	turn(t, one)
	if a.asked.Load() != 7 || b.asked.Load() != 1 {
		t.Errorf("%d and %d turns", a.asked.Load(), b.asked.Load())
	}
	p.mu.Lock()
	p.servers[0].load = slack + 1
	p.mu.Unlock()
	turn(t, one)
	turn(t, two)
	if a.asked.Load() != 7 || b.asked.Load() != 3 {
		t.Errorf("%d and %d turns: one server is overloaded", a.asked.Load(), b.asked.Load())
	}
	for _, s := range []*Session{one, two, other} {
		s.Close()
	}
	if len(p.groups) != 0 {
		t.Errorf("%d groups are left", len(p.groups))
	}
}

func TestAnotherServerGoesOn(t *testing.T) {
	a, b := newTwin(t, "m"), newTwin(t, "m")
	p := poolOf(t, 0, a, b)
	s := p.Session("q")
	defer s.Close()
	turn(t, s)
	for _, status := range []int32{500, 503, 404, 429} {
		a.status.Store(status)
		before := b.asked.Load()
		r, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "hello"}}})
		if err != nil || b.asked.Load() != before+1 || r.Attempts != 2 && status != 429 {
			t.Errorf("%d: %+v %v", status, r, err)
		}
		if status == 404 {
			break // for good: it does not have the model any more
		}
		a.status.Store(0)
		s.home = p.servers[0]
	}
	// Server a is out, b is away for a while: the call waits for it.
	b.fails.Store(3)
	turn(t, s)
	// With both out nothing can be done.
	b.status.Store(404)
	_, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "hello"}}})
	if f := FaultOf(err); f == nil || f.Verdict != retry.Stop || fail.ExitCode(err) != 69 {
		t.Error(err)
	}
}

func TestAServerComesBack(t *testing.T) {
	a, b := newTwin(t, "m"), newTwin(t, "m")
	p := poolOf(t, 0, a, b)
	a.status.Store(503)
	var sessions []*Session
	for i := range 2 * 5 {
		s := p.Session(fmt.Sprint(i))
		defer s.Close()
		s.home = p.servers[0]
		sessions = append(sessions, s)
		turn(t, s)
	}
	if p.servers[0].line.Well() {
		t.Fatal("five failures do not open the breaker")
	}
	asked := a.asked.Load()
	turn(t, sessions[0])
	a.status.Store(0)
	for end := time.Now().Add(time.Minute); !p.servers[0].line.Well(); { // nobody's conversation is used to find out
		if time.Sleep(5 * time.Millisecond); time.Now().After(end) {
			t.Fatal("it does not come back")
		}
	}
	if a.asked.Load() != asked {
		t.Error("a conversation was sent to a server that is away")
	}
	sessions[1].home = p.servers[0]
	turn(t, sessions[1])
	if a.asked.Load() != asked+1 {
		t.Error("a server that is back gets nothing")
	}
}

func TestNoServerGetsMoreThanItsShare(t *testing.T) {
	a, b := newTwin(t, "m"), newTwin(t, "m")
	a.wait, b.wait = 5*time.Millisecond, 5*time.Millisecond
	p := poolOf(t, 3, a, b)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			s := p.Session(fmt.Sprint(i % 4))
			defer s.Close()
			turn(t, s)
		})
	}
	wg.Wait()
	if a.most.Load() > 3 || b.most.Load() > 3 || a.asked.Load()+b.asked.Load() != 40 {
		t.Errorf("%d and %d at once, %d and %d in all", a.most.Load(), b.most.Load(), a.asked.Load(), b.asked.Load())
	}
	// One that goes away while it waits leaves no trace.
	p.servers[0].load, p.servers[1].load = 3, 3
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	s := p.Session("late")
	defer s.Close()
	if _, err := s.Chat(ctx, Request{Messages: []Message{{Role: "user", Text: "hello"}}}); fail.KindOf(err) != fail.Interrupted {
		t.Error(err)
	}
	p.give(p.servers[0])
	p.servers[0].load, p.servers[1].load = 0, 0
	if p.waiting.Len() != 0 || a.asked.Load()+b.asked.Load() != 40 {
		t.Error("something is left")
	}
}

func TestAllServersAreGone(t *testing.T) {
	a, b := newTwin(t, "m"), newTwin(t, "m")
	p := poolOf(t, 0, a, b)
	a.status.Store(503)
	b.status.Store(503)
	s := p.Session("q")
	defer s.Close()
	for range 50 {
		_, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "hello"}}})
		if f := FaultOf(err); f == nil {
			t.Fatal(err)
		} else if f.Verdict == retry.Stop {
			if f.Class != "gone" || fail.ExitCode(err) != 69 {
				t.Error(err)
			}
			return
		}
	}
	t.Error("never given up")
}

func TestRefusedPools(t *testing.T) {
	a, b, key := newTwin(t, "m"), newTwin(t, "n"), newTwin(t, "m")
	for name, c := range map[string]struct {
		urls []string
		says string
	}{
		"another model": {[]string{a.url, b.url}, "same model"},
		"twice":         {[]string{a.url, a.url + "/v1/"}, "twice"},
		"none":          {nil, "no address"},
	} {
		_, err := Open(t.Context(), Options{Name: "policy server"}, PoolOptions{URLs: c.urls})
		if fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A key that one server refuses is refused.
	p := poolOf(t, 0, a, key)
	key.status.Store(401)
	s := p.Session("q")
	defer s.Close()
	s.home = p.servers[1]
	_, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "hello"}}})
	if f := FaultOf(err); f == nil || f.Verdict != retry.Stop || a.asked.Load() != 0 {
		t.Error(err)
	}
}

// A server that may be elsewhere tomorrow gives no address to what it answers.
func TestAPoolThatMoves(t *testing.T) {
	w := newTwin(t, "m")
	for moves, want := range map[bool]string{false: w.url + "/v1#m", true: "#m"} {
		p, err := Open(t.Context(), Options{Name: "policy server", Timeout: time.Minute}, PoolOptions{URLs: []string{w.url}, Moves: moves})
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Name(); got != want {
			t.Errorf("moves %v: %s, want %s", moves, got, want)
		}
		p.Close()
	}
}
