package pipelines

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Faults of a night that no package can show alone. They are named by their number in
// the list of internal/fault/suite.

// counted stands between a job and a scripted server and counts what is asked. slow is
// how long each answer takes; hang keeps answers back for good.
type counted struct {
	*httptest.Server
	asked atomic.Int64
	slow  atomic.Int64 // nanoseconds
	hang  atomic.Bool
}

func newCounted(t *testing.T, to string) *counted {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy, c := httputil.NewSingleHostReverseProxy(u), new(counted)
	proxy.ErrorLog = nil
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chat/completions") {
			c.asked.Add(1)
			if c.hang.Load() {
				io.Copy(io.Discard, r.Body) // so that the end of the connection is seen
				<-r.Context().Done()
				return
			}
			time.Sleep(time.Duration(c.slow.Load()))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Server.Close)
	return c
}

// 40 trajectories, 32 of them at once.
const many = "rollout " + playing + "--samples 2 --set rollout.concurrency=32 --out x/r --policy-url "

// F2: after TERM nothing new is asked, what is in flight is kept, and the next run asks
// for the rest alone.
func TestF2TermWithRequestsInFlight(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	to, stop := p.scripted("oracle", "500@1000000")
	defer stop()
	slow := newCounted(t, to) // rows hold its address: the quiet run has the same
	if code, stderr := p.job(strings.Replace(many, "x/r", "x/quiet", 1) + slow.URL); code != 0 {
		t.Fatal(stderr)
	}
	quiet := slow.asked.Swap(0)
	slow.slow.Store(int64(2 * time.Second))
	cmd := p.start(many + slow.URL)
	for range 1000 {
		if slow.asked.Load() >= 32 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	before := slow.asked.Load()
	code, stderr := p.end(cmd)
	if code != 75 || slow.asked.Load() != before || before > 32 {
		t.Errorf("exit %d, %d requests, %d of them after TERM\n%s", code, slow.asked.Load(), slow.asked.Load()-before, stderr)
	}
	if _, err := os.Stat(p.path("x/r/manifest.json")); err == nil {
		t.Error("there is a manifest")
	}
	if code, stderr := p.job(many + slow.URL); code != 0 || !strings.Contains(stderr, "continuing") {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	if all := slow.asked.Load(); all != quiet {
		t.Errorf("%d requests in two runs, %d in a quiet one", all, quiet)
	}
	if !bytes.Equal(p.read("x/r/"+part0+".parquet"), p.read("x/quiet/"+part0+".parquet")) {
		t.Error("the rows differ from those of a quiet run")
	}
}

// F3: a server that never answers holds the end up for the grace time less its reserve,
// and no longer; what was in flight is asked for again, once.
func TestF3TermWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	to, stop := p.scripted("oracle", "500@1000000")
	defer stop()
	c := newCounted(t, to)
	c.hang.Store(true)
	cmd := p.start(strings.Replace(many, "--out", "--grace 6s --out", 1) + c.URL)
	for range 1000 {
		if c.asked.Load() >= 32 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	inFlight := c.asked.Load()
	began := time.Now()
	cmd.Process.Signal(syscall.SIGTERM)
	code, stderr := p.end(cmd)
	if took := time.Since(began); code != 75 || took > 20*time.Second || took < 3*time.Second {
		t.Errorf("exit %d after %v\n%s", code, took, stderr)
	}
	c.hang.Store(false)
	if code, stderr := p.job(many + c.URL); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	quiet := newCounted(t, to)
	if code, stderr := p.job(strings.Replace(many, "x/r", "x/quiet", 1) + quiet.URL); code != 0 {
		t.Fatal(stderr)
	}
	if all := c.asked.Load() - inFlight; all != quiet.asked.Load() {
		t.Errorf("the rerun asked %d times, a quiet run asks %d times", all, quiet.asked.Load())
	}
}

// F27: keys in the environment, in a key file and in a URL, which servers send back in
// errors and in what they say, are nowhere in what jobs write.
func TestF27Canaries(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	const key, judgeKey, password = "sk-canary-of-the-policy", "sk-canary-of-the-judge", "canary-in-the-url"
	to, stop := p.scripted("oracle", "500@1000000")
	defer stop()
	u, _ := url.Parse(to)
	proxy := httputil.NewSingleHostReverseProxy(u)
	var n atomic.Int64
	policy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/chat/completions") && n.Add(1)%3 == 1 { // an error that quotes the key
			w.WriteHeader(500)
			fmt.Fprintf(w, `{"error":{"message":"bad luck with %s"}}`, r.Header.Get("Authorization"))
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer policy.Close()
	judge := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"judge_model"}]}`)
			return
		}
		fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, "Seen with "+r.Header.Get("Authorization")+". My verdict: no")
	}))
	defer judge.Close()
	p.put("x/key", key+"\n")
	if err := os.Chmod(p.path("x/key"), 0o600); err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, line := range []string{
		"rollout " + strings.Replace(playing, "--epoch 1", "--epoch 0", 1) + "--out x/run/evals/demo/epoch-0/rollouts --set seed=9 --policy-url " + strings.Replace(policy.URL, "://", "://me:"+password+"@", 1),
		"rollout " + strings.Replace(playing, "--epoch 1", "--epoch 0", 1) + "--out x/run/evals/demo/epoch-0/rollouts --set seed=9 --policy-url " + policy.URL,
		"judge --recipe mini --rollouts x/run/evals/demo/epoch-0/rollouts --out x/run/evals/demo/epoch-0/judged --set judge.check_exact=true --judge-model judge_model --judge-url " + judge.URL,
		"evaluate --recipe mini --bench demo --rollouts x/run/evals/demo/epoch-0/rollouts --judged x/run/evals/demo/epoch-0/judged --questions data/questions/demo --out x/run/evals/demo/epoch-0",
		"report --run x/run --bench demo --out x/run/report.html",
	} {
		cmd := p.command(line)
		cmd.Env = append(os.Environ(), "POLICY_API_KEY_FILE="+p.path("x/key"), "JUDGE_API_KEY="+judgeKey)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		said += out.String()
		if code := cmd.ProcessState.ExitCode(); code != 0 && code != 3 && !strings.Contains(line, password) {
			t.Fatalf("%s: %v\n%s", line, err, out.String())
		}
	}
	if n.Load() == 0 {
		t.Fatal("the policy was never asked")
	}
	look := func(where string, text []byte) {
		for _, c := range []string{key, judgeKey, password} {
			if bytes.Contains(text, []byte(c)) {
				t.Errorf("%s holds %s", where, c)
			}
		}
	}
	look("output", []byte(said))
	err := filepath.WalkDir(p.path("x/run"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		look(path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.path("x/run/report.html")); err != nil {
		t.Error(err)
	}
}

// F29: rollouts of which a shard is missing, another's, or one twice are not judged;
// the message names the part, and the job makes that one again.
func TestF29MissingAndForeignShards(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	roll := rolling + " --shards 3"
	if code, stderr := p.job(roll); code != 0 {
		t.Fatal(stderr)
	}
	if code, stderr := p.job(strings.Replace(roll, "x/r", "x/other", 1) + " --set seed=9"); code != 0 {
		t.Fatal(stderr)
	}
	const part = "x/r/part-00001-of-00003.parquet"
	good := p.read(part)
	for name, spoil := range map[string]func(){
		"missing": func() { os.Remove(p.path(part)) },
		"foreign": func() { p.put(part, string(p.read("x/other/part-00001-of-00003.parquet"))) },
		"twice":   func() { p.put(part, string(p.read("x/r/part-00000-of-00003.parquet"))) },
	} {
		spoil()
		code, stderr := p.job("judge --recipe mini --rollouts x/r --out x/j-" + name)
		if code != 65 || !strings.Contains(stderr, "part-00001-of-00003") {
			t.Errorf("%s: exit %d\n%s", name, code, stderr)
		}
		os.Remove(p.path("x/r/manifest.json"))
		if code, stderr := p.job(roll); code != 0 {
			t.Errorf("%s: made again: exit %d\n%s", name, code, stderr)
		}
		if !bytes.Equal(p.read(part), good) {
			t.Errorf("%s: the part differs", name)
		}
	}
}

// F30: a make that is stopped, or whose job fails, leaves what the next one needs; the
// one after that runs nothing, whatever the clock says.
func TestF30MakeIsStopped(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	quiet := p.data()
	const out = "runs/mini/epoch-1/judged"
	// A recipe that fails: make's code is 2, and nothing that was made is deleted.
	p.put(out+"/manifest.json", "{")
	os.Remove(p.path("runs/mini/epoch-1/checkpoint/manifest.json"))
	cmd := p.make("train", "EPOCH=1", "JOBFLAGS=--no-such-flag")
	if cmd.Run(); cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("a failing job: exit %d", cmd.ProcessState.ExitCode())
	}
	if _, err := os.Stat(p.path(out + "/" + part0 + ".parquet")); err != nil {
		t.Error("data was deleted:", err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		os.Remove(p.path("runs/mini/epoch-1/checkpoint/manifest.json"))
		os.Remove(p.path(out + "/manifest.json"))
		cmd := p.make("train", "EPOCH=1")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for range 3000 {
			if running(cmd.Process.Pid, "judge", out) || running(cmd.Process.Pid, "grpo", "runs/mini/epoch-1/checkpoint") {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cmd.Process.Signal(sig) // make alone; its job goes on, or ends, by itself
		cmd.Wait()
	}
	p.run("train", "EPOCH=1")
	compare(t, quiet, p.data())
	// The clock is set back: everything seems to come from the future.
	future := time.Now().Add(time.Hour)
	filepath.WalkDir(p.path("data"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "manifest.json" {
			os.Chtimes(path, future, future)
		}
		return nil
	})
	p.run("train", "EPOCH=1")
	compare(t, quiet, p.data())
}

// F35: a nightly run that begins while the last one runs says so and ends well; one
// that is killed is finished by the next.
func TestF35Nightly(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	to, stop := p.scripted("oracle", "500@1000000")
	defer stop()
	c := newCounted(t, to)
	c.hang.Store(true)
	night := []string{"nightly", "EPOCH=0", "POLICY_URL=" + c.URL}
	first := p.make(night...)
	var said bytes.Buffer
	first.Stdout, first.Stderr = &said, &said
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	for range 2500 {
		if c.asked.Load() > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if out := p.run(night...); !strings.Contains(out, "still running") {
		t.Errorf("the second one said:\n%s", out)
	}
	// The machine goes down.
	syscall.Kill(-first.Process.Pid, syscall.SIGKILL)
	first.Wait()
	if c.asked.Load() == 0 {
		t.Fatalf("the first one never asked the policy:\n%s", said.String())
	}
	c.hang.Store(false)
	if out := p.run(night...); !strings.Contains(out, "95 % interval") || !strings.Contains(out, "going on with a night") {
		t.Errorf("the next night:\n%s", out)
	}
	if _, err := os.Stat(p.path("runs/mini/nights/trends.html")); err != nil {
		t.Error(err)
	}
}
