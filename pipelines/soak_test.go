package pipelines

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// The whole loop again and again, for SEARCHLOOP_SOAK minutes: everything is killed at
// random every 5 to 20 seconds, the policy's server fails at random, and each time
// the data is that of a quiet run. build/soak.log has every kill.
func TestSoak(t *testing.T) {
	minutes, err := strconv.ParseFloat(os.Getenv("SEARCHLOOP_SOAK"), 64)
	if err != nil {
		t.Skip("it takes its time: make soak MINUTES=30")
	}
	if err := os.MkdirAll("../build", 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create("../build/soak.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Fprintf(log, "%7.1f s  "+format+"\n", append([]any{time.Since(began).Seconds()}, args...)...)
	}
	seed := uint64(began.UnixNano())
	say("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))

	first := copyOf(t)
	to, stop := first.scripted("oracle", "500@1000000")
	defer stop()
	u, _ := url.Parse(to)
	proxy := httputil.NewSingleHostReverseProxy(u)
	var rough, failed atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rough.Load() > 0 && rand.IntN(8) == 0 {
			failed.Add(1)
			switch rand.IntN(5) {
			case 0:
				w.WriteHeader(500)
			case 1:
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(429)
			case 2:
				fmt.Fprint(w, "<html>busy</html>")
			case 3:
				panic(http.ErrAbortHandler)
			default:
				time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
				proxy.ServeHTTP(w, r)
			}
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer server.Close()
	steps := [][]string{{"loop", "EPOCH=1", "SHARDS=2"}, {"eval", "RUN=oracle", "EPOCH=0", "SHARDS=4", "WORKERS=2", "POLICY_URL=" + server.URL}}

	quiet := newPlace(t)
	for _, s := range steps {
		quiet.run(s...)
	}
	want := quiet.data()
	say("quiet run done, %d files", len(want))
	rounds, kills := 0, 0
	soon := func() time.Time { return time.Now().Add(time.Duration(5000+rng.IntN(15000)) * time.Millisecond) }
	next := soon() // kill; it goes on over the ends of commands that are quicker
	for time.Since(began).Minutes() < minutes {
		p := newPlace(t)
		rough.Store(1)
		for _, s := range steps {
			for try := 0; ; try++ {
				var said bytes.Buffer
				cmd := p.make(s...)
				cmd.Stdout, cmd.Stderr = &said, &said
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- cmd.Wait() }()
				wait := time.Until(next)
				if try > 60 {
					wait = time.Hour // enough: it must come to an end
				}
				var err error
				select {
				case err = <-done:
				case <-time.After(wait):
					syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
					<-done
					kills++
					next = soon()
					say("round %d, %s: killed after %v", rounds, s[0], wait)
					continue
				}
				if err == nil {
					break
				}
				say("round %d, %s: %v; run again", rounds, s[0], err)
				if try > 80 {
					t.Fatalf("make %v does not end well:\n%s", s, said.String())
				}
			}
		}
		compare(t, want, p.data())
		rounds++
		say("round %d done, %d kills and %d failures of the server so far, equal: %v", rounds, kills, failed.Load(), !t.Failed())
		if t.Failed() {
			return
		}
		os.RemoveAll(p.dir)
	}
	t.Logf("%d rounds, %d kills, %d failures of the server in %.0f minutes: all equal", rounds, kills, failed.Load(), time.Since(began).Minutes())
	say("all equal")
}
