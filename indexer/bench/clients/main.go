// Command clients asks a retrieval server from many clients at once and compares
// every answer with a direct search. It writes requests/s and the 50th and 99th
// percentile of the latency as rows of package bench.
//
//	GOEXPERIMENT=simd go run ./indexer/bench/clients --index DIR [--queries FILE] [--seconds 60] [--clients 64] [--out FILE]
//
// DIR is an index dataset, FILE holds a query a line; without it the beginnings of
// passages are asked for. The exit status is 1 when any answer failed or differed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"searchloop/indexer"
	"searchloop/indexer/passages"
	"searchloop/indexer/retrieve"
	"searchloop/internal/bench"
)

func main() {
	dir := flag.String("index", "", "index dataset")
	file := flag.String("queries", "", "file with a query a line (default: the first words of 500 passages)")
	seconds := flag.Float64("seconds", 60, "how long")
	clients := flag.Int("clients", 64, "clients that ask at once")
	out := flag.String("out", "build/bench/clients.json", "file of the figures")
	flag.Parse()
	if err := run(*dir, *file, *out, *seconds, *clients); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(dir, file, out string, seconds float64, clients int) error {
	x, err := indexer.Open(context.Background(), dir)
	if err != nil {
		return err
	}
	defer x.Close()
	queries, err := queriesOf(x, dir, file)
	if err != nil {
		return err
	}
	bodies, want := direct(x, queries)

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	server := retrieve.New(x, retrieve.Options{Log: slog.New(slog.DiscardHandler)})
	go func() { done <- retrieve.Serve(context.Background(), stop, l, server) }()
	url := "http://" + l.Addr().String() + "/retrieve"
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	var mu sync.Mutex
	var took []time.Duration
	wrong, failed := 0, 0
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for n := c; time.Now().Before(end); n += clients + 1 {
				i := n % len(bodies)
				start := time.Now()
				got, err := post(client, url, bodies[i])
				mu.Lock()
				took = append(took, time.Since(start))
				if err != nil {
					failed++
				} else if !bytes.Equal(got, want[i]) {
					wrong++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	close(stop)
	if err := <-done; err != nil {
		return err
	}
	slices.Sort(took)
	at := func(q float64) float64 { return took[int(q*float64(len(took)-1))].Seconds() * 1e3 }
	note := fmt.Sprintf("%d clients for %.0f s over %d passages, dim %d, %d cores: %d requests, %d failed, %d other than a direct search", clients, seconds, x.Describe().Rows,
		x.Describe().Space.Dim, runtime.GOMAXPROCS(0), len(took), failed, wrong)
	figures := []bench.Row{{Name: "retrieve, throughput", Unit: "requests/s", Ours: float64(len(took)) / seconds, Note: note},
		{Name: "retrieve, latency p50", Unit: "ms", Ours: at(.5), Note: note}, {Name: "retrieve, latency p99", Unit: "ms", Ours: at(.99), Note: note}}
	if err := bench.Table(os.Stdout, figures); err != nil {
		return err
	}
	if err := bench.Write(out, figures); err != nil {
		return err
	}
	if failed+wrong > 0 {
		return fmt.Errorf("%d requests failed, %d answers differ", failed, wrong)
	}
	return nil
}

// queriesOf are the lines of the file, or the first eight words of passages.
func queriesOf(x *indexer.Index, dir, file string) ([]string, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		return strings.Split(strings.TrimSpace(string(text)), "\n"), err
	}
	at := x.Describe().Passages
	if !filepath.IsAbs(at) {
		at = filepath.Join(dir, at)
	}
	set, err := passages.Open(at)
	if err != nil {
		return nil, err
	}
	var queries []string
	for p, err := range set.Range(0, min(set.Rows(), 500)) {
		if err != nil {
			return nil, err
		}
		words := strings.Fields(p.Contents)
		queries = append(queries, strings.Join(words[:min(8, len(words))], " "))
	}
	return queries, nil
}

// direct is every query as a request, and its answer by a server of its own that
// gets one request at a time.
func direct(x *indexer.Index, queries []string) (bodies, want [][]byte) {
	alone := retrieve.New(x, retrieve.Options{Log: slog.New(slog.DiscardHandler)})
	for i, q := range queries {
		body, err := json.Marshal(map[string]any{"queries": []string{q}, "topk": 1 + i%5, "return_scores": true})
		if err != nil {
			panic(err) // strings and numbers are always JSON
		}
		w := httptest.NewRecorder()
		alone.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/retrieve", bytes.NewReader(body)))
		bodies, want = append(bodies, body), append(want, w.Body.Bytes())
	}
	return bodies, want
}

func post(client *http.Client, url string, body []byte) ([]byte, error) {
	resp, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, got)
	}
	return got, err
}
