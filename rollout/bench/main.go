// Command bench measures rollout and judge under load: thousands of conversations
// at once with a server whose answers cost nothing but time (backend, beside it),
// against what that time allows and against Python's asyncio with the openai client
// doing the same (peer.py).
//
//	go run ./rollout/bench --python .venv/bin/python --out build/bench/rollout.json
package main

import (
	"bufio"
	"container/heap"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"searchloop/internal/bench"
)

var (
	python   = flag.String("python", "", "Python with openai and httpx; without: ours alone")
	out      = flag.String("out", "build/bench/rollout.json", "file of the figures")
	script   = flag.String("script", "rollout/bench/peer.py", "the peer")
	width    = flag.Int("width", 2000, "trajectories at once")
	waves    = flag.Int("waves", 20, "how often so many of ours are played")
	patience = flag.Int("timeout", 5, "seconds after which a turn is asked for again; more on a machine that does other things")
	judged   = flag.Int("judged", 10000, "rows that are judged")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "rollout-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := bench.Build(dir, "./jobs/prep", "./jobs/rollout", "./jobs/judge", "./rollout/bench/backend"); err != nil {
		return err
	}
	l := load{dir: dir, missing: bench.Missing(*python, "openai", "httpx")}
	for _, f := range []func() error{l.quiet, l.sick, l.judge} {
		if err := f(); err != nil {
			return err
		}
		if err := bench.Write(*out, l.rows); err != nil { // what there is by now
			return err
		}
	}
	return nil
}

type load struct {
	dir     string
	missing string // what the peer lacks
	rows    []bench.Row
}

func (l *load) path(name string) string { return filepath.Join(l.dir, name) }

// serve starts the backend; end stops it and gives the processor time it took.
func (l *load) serve(args ...string) (url string, end func() float64, err error) {
	cmd := exec.Command(l.path("backend"), args...)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", nil, err
	}
	end = sync.OnceValue(func() float64 {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	})
	url, err = bufio.NewReader(pipe).ReadString('\n')
	return strings.TrimSpace(url), end, err
}

const recipe = `
name: load
protocol: {name: mm-deepresearch, system: "You answer questions with search tools. Think first, then call a tool or answer.", user_prefix: "Question: ", max_tool_calls: 3, calls_per_turn: 1, turn_tokens: 1024, tool_chars: 9999}
tools: [{name: text_search, topk: 3}]
retrieval: {text_url: "%s"}
sampling: {train: {n: 1, temperature: 1, top_p: 1}, eval: {n: 1, temperature: 1, top_p: 1}}
rollout: {concurrency: %d, timeout_sec: %d, deadline_sec: 600}
reward: {name: mm-deepresearch, format: 0.1, accuracy: 0.9}
judge: {model: bench, concurrency: 64, timeout_sec: 2, max_tokens: 8, max_failed: 1}
`

// play rolls n questions out against url, into dir/out.
func (l *load) play(url string, n int) (bench.Used, error) {
	questions := l.path(fmt.Sprint("questions-", n))
	if _, err := os.Stat(questions); err != nil {
		f, err := os.Create(questions + ".jsonl")
		if err != nil {
			return bench.Used{}, err
		}
		w := bufio.NewWriter(f)
		for i := range n {
			fmt.Fprintf(w, "{\"id\": \"q%06d\", \"question\": \"Which river flows through town %d?\", \"answers\": [\"river %d\"]}\n", i, i, i)
		}
		if err := w.Flush(); err != nil {
			return bench.Used{}, err
		}
		if _, _, err := bench.Run(l.path("prep"), "--format", "jsonl", "--in", questions+".jsonl", "--out", questions, "--progress", "none"); err != nil {
			return bench.Used{}, err
		}
	}
	if err := os.WriteFile(l.path("load.yaml"), fmt.Appendf(nil, recipe, url, *width, *patience), 0o666); err != nil {
		return bench.Used{}, err
	}
	os.RemoveAll(l.path("out"))
	u, text, err := bench.Run(l.path("rollout"), "--recipe", l.path("load.yaml"), "--questions", questions, "--policy-url", url,
		"--out", l.path("out"), "--run", "load", "--mode", "eval", "--progress", "none", "--json")
	if err != nil {
		return u, err
	}
	var sum struct{ Trajectories, OK, Answered int }
	if err := json.Unmarshal(text, &sum); err != nil {
		return u, err
	}
	if sum.Trajectories != n || sum.OK != n || sum.Answered != n {
		return u, fmt.Errorf("%+v of %d trajectories", sum, n)
	}
	return u, nil
}

// ideal is how long n trajectories take when nothing but the latencies counts: width
// places, a trajectory begins when a place is free, and takes three turns of 200±50 ms
// and two searches of 50 ms.
func ideal(n, width int) float64 {
	r := rand.New(rand.NewPCG(1, 2))
	free := make(seconds, min(n, width)) // when each place is free again
	for range n {
		free[0] += 2 * .05
		for range 3 {
			free[0] += .2 + (2*r.Float64()-1)*.05
		}
		heap.Fix(&free, 0)
	}
	last := 0.
	for _, s := range free {
		last = max(last, s)
	}
	return last
}

// calls are the requests of a trajectory: turns and searches.
const calls = 5

// quiet is the load on a server that is well, with all processors and with one.
func (l *load) quiet() error {
	n := *width * *waves
	name := fmt.Sprintf("rollout, %d trajectories at once", *width)
	var cpu float64
	for _, procs := range []string{"", "1"} {
		url, end, err := l.serve()
		if err != nil {
			return err
		}
		defer end()
		on := fmt.Sprintf("%d processors", runtime.NumCPU())
		if procs != "" {
			on = "GOMAXPROCS=1"
			os.Setenv("GOMAXPROCS", procs)
		}
		u, err := l.play(url, n)
		if procs != "" {
			os.Unsetenv("GOMAXPROCS")
		}
		if err != nil {
			return err
		}
		if procs == "" {
			cpu = u.CPU
		}
		server := end()
		best := ideal(n, *width)
		note := fmt.Sprintf("%d of them in %.2f s, %.2f s by latency alone (three turns of 200±50 ms, two searches of 50 ms, %d places); start, connections, journal and dataset included", n, u.Seconds, best, *width)
		l.rows = append(l.rows,
			bench.Row{Name: name + ", " + on, Unit: "trajectories/s", Ours: float64(n) / u.Seconds, Peer: float64(n) / best, PeerName: "latency alone", Bound: .95, Note: note},
			bench.Row{Name: name + ", " + on, Unit: "MB", Ours: u.Peak, Peer: 1000, PeerName: "limit", Bound: 1, Note: "peak memory"},
			bench.Row{Name: name + ", " + on, Unit: "cores", Ours: u.CPU / u.Seconds, Peer: 1, PeerName: "limit", Bound: 1, Note: fmt.Sprintf("processor time %.2f s in %.2f s", u.CPU, u.Seconds)},
			bench.Row{Name: name + ", " + on, Unit: "ms of processor time a call", Ours: 1000 * u.CPU / float64(n*calls), Note: "turns and searches; all else of a trajectory is in it"},
			bench.Row{Name: name + ", " + on + ": the server", Unit: "ms of processor time a call", Ours: 1000 * server / float64(n*calls), Note: fmt.Sprintf("a process of its own: %.2f cores beside the rollout's", server/u.Seconds)})
	}
	peer := bench.Row{Name: name, Unit: "ms of processor time a trajectory", Ours: 1000 * cpu / float64(n), PeerName: "asyncio + openai", Bound: 5, Note: l.missing}
	if l.missing == "" {
		url, end, err := l.serve()
		if err != nil {
			return err
		}
		defer end()
		if peer.Peer, peer.Note, err = l.peer(url); err != nil {
			return err
		}
	}
	l.rows = append(l.rows, peer)
	return nil
}

// peer is the processor time of the peer, in ms a trajectory. It plays as many
// trajectories at once as are played here, or fewer when it cannot.
func (l *load) peer(url string) (ms float64, note string, err error) {
	// Python's own start is taken off: it is none of the workload.
	idle, _, err := bench.Run(*python, *script, url, "0", "1")
	if err != nil {
		return 0, "", err
	}
	for _, at := range []int{*width, *width / 4, *width / 20} {
		at = max(1, at)
		p, text, failed := bench.Run(*python, *script, url, fmt.Sprint(at), fmt.Sprint(at))
		if failed != nil {
			lines := strings.Split(strings.TrimSpace(failed.Error()), "\n")
			note, err = fmt.Sprintf("%s, and not %d at once: %s", note, at, lines[len(lines)-1]), failed
			continue
		}
		var said struct {
			Answered int
			Seconds  float64
		}
		if err := json.Unmarshal(text, &said); err != nil || said.Answered != at {
			return 0, "", fmt.Errorf("peer: %s %v", text, err)
		}
		return 1000 * (p.CPU - idle.CPU) / float64(at), fmt.Sprintf("the peer's %d at once in %.1f s%s", at, said.Seconds, note), nil
	}
	return 0, "", err
}

// sick is the load on a server that fails: every trajectory ends all the same.
func (l *load) sick() error {
	url, end, err := l.serve("--errors", "0.05", "--hangs", "0.01")
	if err != nil {
		return err
	}
	defer end()
	u, err := l.play(url, 2**width)
	if err != nil {
		return err
	}
	l.rows = append(l.rows, bench.Row{Name: "rollout with 5 % errors and 1 % hangs", Unit: "trajectories/s", Ours: float64(2**width) / u.Seconds,
		Note: fmt.Sprintf("all %d ended well; a hang costs the %d s of timeout_sec", 2**width, *patience)})
	return nil
}

// judge has the rows of a rollout judged by a flaky judge, twice.
func (l *load) judge() error {
	url, end, err := l.serve("--policy", "2ms", "--jitter", "1ms", "--tool", "0")
	if err != nil {
		return err
	}
	_, err = l.play(url, *judged)
	end()
	if err != nil {
		return err
	}
	if url, end, err = l.serve("--policy", "20ms", "--jitter", "10ms", "--errors", "0.05", "--hangs", "0.001"); err != nil {
		return err
	}
	defer end()
	args := []string{"--recipe", l.path("load.yaml"), "--rollouts", l.path("out"), "--judge-url", url, "--cache", l.path("verdicts"), "--progress", "none", "--json"}
	u, text, err := bench.Run(l.path("judge"), append(args, "--out", l.path("judged"))...)
	if err != nil {
		return err
	}
	var sum struct{ Rows, Correct, Incorrect, Failed int }
	if err := json.Unmarshal(text, &sum); err != nil {
		return err
	}
	if sum.Rows != *judged || sum.Correct+sum.Incorrect+sum.Failed != *judged {
		return fmt.Errorf("judge: %+v", sum)
	}
	// The same folder again, and another one of the same content.
	for _, dir := range []string{"judged", "judged-again"} {
		before, err := requests(url)
		if err != nil {
			return err
		}
		if _, _, err := bench.Run(l.path("judge"), append(args, "--out", l.path(dir))...); err != nil {
			return err
		}
		after, err := requests(url)
		if err != nil {
			return err
		}
		if sum.Failed == 0 && after != before {
			return fmt.Errorf("judge: %d calls for what was known", after-before)
		}
	}
	l.rows = append(l.rows, bench.Row{Name: fmt.Sprintf("judge, %d rows, 5 %% errors and 0.1 %% hangs", *judged), Unit: "rows/s", Ours: float64(*judged) / u.Seconds,
		Note: fmt.Sprintf("64 calls at once of 20±10 ms; %d verdicts, %d counted failures; a second run and a second dataset made no calls; %.2f cores", sum.Correct+sum.Incorrect, sum.Failed, u.CPU/u.Seconds)})
	return nil
}
