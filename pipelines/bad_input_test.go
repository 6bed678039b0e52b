package pipelines

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// finished is a world that ran to the end of epoch 1. Cases take copies of it.
var finished = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "searchloop-finished-")
	if err != nil {
		panic(err)
	}
	return dir
})

var finish sync.Once

// copyOf gives a case its own copy of the finished world, by hard links: jobs
// replace files, they never write into them.
func copyOf(t *testing.T) place {
	t.Helper()
	finish.Do(func() {
		p := newPlace(t)
		p.run("train", "data", "EPOCH=1")
		if text, err := exec.Command("cp", "-a", p.dir+"/.", finished()).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, text)
		}
	})
	p := place{t, t.TempDir()}
	if text, err := exec.Command("cp", "-al", finished()+"/.", p.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, text)
	}
	return p
}

// job runs a job in the place and returns its exit code and stderr.
func (p place) job(line string) (code int, stderr string) {
	p.t.Helper()
	cmd := p.start(line)
	return p.end(cmd)
}

func (p place) start(line string) *exec.Cmd {
	p.t.Helper()
	cmd := p.command(line)
	cmd.Stderr = new(bytes.Buffer)
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return cmd
}

// command is the process of a job.
func (p place) command(line string) *exec.Cmd {
	name, flags, _ := strings.Cut(line, " ")
	cmd := exec.Command("bin/"+name, append([]string{"--progress", "none"}, strings.Fields(flags)...)...)
	cmd.Dir = p.dir
	return cmd
}

func (p place) end(cmd *exec.Cmd) (code int, stderr string) {
	p.t.Helper()
	late := time.AfterFunc(25*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	cmd.Wait()
	return cmd.ProcessState.ExitCode(), cmd.Stderr.(*bytes.Buffer).String()
}

func (p place) path(name string) string { return filepath.Join(p.dir, name) }

func (p place) read(name string) []byte {
	p.t.Helper()
	text, err := os.ReadFile(p.path(name))
	if err != nil {
		p.t.Fatal(err)
	}
	return text
}

func (p place) put(name, text string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(name)), 0o755); err != nil {
		p.t.Fatal(err)
	}
	os.Remove(p.path(name)) // it may be a link to what all cases share
	write(p.t, p.path(name), text)
}

// cut keeps n bytes of a file, flip changes one bit in its middle.
func (p place) cut(name string, n int) { p.put(name, string(p.read(name)[:n])) }
func (p place) flip(name string) {
	text := p.read(name)
	text[len(text)/2] ^= 4
	p.put(name, string(text))
}

const (
	playing  = "--recipe mini --questions data/questions/demo --lens data/lens/demo --text-index data/corpora/demo/text/index --image-index data/corpora/demo/images/index --run mini --epoch 1 --mode eval "
	rolling  = "rollout " + playing + "--policy-script teacher --out x/r"
	grpo     = "grpo --recipe mini --policy runs/mini/epoch-0/checkpoint --reference runs/mini/epoch-0/checkpoint --rollouts runs/mini/epoch-1/rollouts --judged runs/mini/epoch-1/judged --images data/questions/demo-train/images --images runs/mini/epoch-1/rollouts/images --out x/c"
	indexing = "index --vectors x/v --passages data/corpora/demo/text/passages --out x/i"
	part0    = "part-00000-of-00001"
)

// Each case spoils one thing, runs one job, and looks at the exit code and at the
// last line of stderr, which must name the place and the remedy. Mended, the same
// command must end well.
var badInputs = []struct {
	name  string
	spoil func(p place)
	line  string
	code  int
	says  []string
	mend  func(p place) // nil: not tried again
}{
	{"raw Parquet cut short", func(p place) { p.put("x/a.parquet", string(p.read("data/world/train.parquet")[:7000])) },
		"prep --format verl --in x/a.parquet --out x/q", 65, []string{"x/a.parquet", "cut short", "fetch it again"},
		func(p place) { p.put("x/a.parquet", string(p.read("data/world/train.parquet"))) }},
	{"raw Parquet with a flipped bit", func(p place) {
		p.put("x/a.parquet", string(p.read("data/world/train.parquet")))
		p.flip("x/a.parquet")
	}, "prep --format verl --in x/a.parquet --out x/q", 65, []string{"x/a.parquet", "row 1", "fetch it again"},
		func(p place) { p.put("x/a.parquet", string(p.read("data/world/train.parquet"))) }},
	{"raw file missing", nil, "prep --format verl --in x/a.parquet --out x/q", 65, []string{"x/a.parquet: no such file", "check the path"}, nil},
	{"question without its image file", func(p place) {
		p.put("x/q.jsonl", `{"id":"a","question":"What?","answers":["b"],"images":["pics/a.png"]}`+"\n"+`{"id":"b","question":"Who?","answers":["c"]}`)
	},
		"prep --format jsonl --in x/q.jsonl --out x/q", 3, []string{"x/q", "1 of 2 rows were rejected", "rejects"},
		func(p place) {
			pngs, _ := filepath.Glob(p.path("data/questions/demo/images/*/*.png"))
			text, _ := os.ReadFile(pngs[0])
			p.put("x/pics/a.png", string(text))
			p.job("prep --format jsonl --in x/q.jsonl --out x/q --fresh") // the list of questions is the same
		}},
	{"dataset part cut short", func(p place) { p.cut("data/questions/demo/"+part0+".parquet", 3000) },
		rolling, 65, []string{part0 + ".parquet: 3000 bytes, the manifest says", "remove data/questions/demo/manifest.json and run the job"},
		func(p place) { p.remake("data/questions/demo") }},
	{"dataset part with a flipped bit", func(p place) { p.flip("data/questions/demo/" + part0 + ".parquet") },
		rolling, 65, []string{part0 + ".parquet: the data is damaged", "remove data/questions/demo/manifest.json and run the job"},
		func(p place) { p.remake("data/questions/demo") }},
	{"policy with a flipped bit", func(p place) { p.flip("runs/mini/epoch-0/checkpoint/model.safetensors") },
		"rollout " + playing + "--policy runs/mini/epoch-0/checkpoint --out x/r", 65, []string{"epoch-0/checkpoint/model.safetensors: the data is damaged", "run the job"},
		func(p place) { p.remake("runs/mini/epoch-0/checkpoint") }},
	{"manifest missing", func(p place) { os.Remove(p.path("data/questions/demo/manifest.json")) },
		rolling, 65, []string{"data/questions/demo: no manifest.json", "run the job that makes it"},
		func(p place) { p.remake("data/questions/demo") }},
	{"vectors given as questions", nil, strings.Replace(rolling, "data/questions/demo", "data/corpora/demo/text/vectors", 1),
		65, []string{"data/corpora/demo/text/vectors: it holds vectors, not questions"}, nil},
	{"a file given as questions", nil, strings.Replace(rolling, "data/questions/demo", "data/world/train.parquet", 1),
		65, []string{"data/world/train.parquet: it is a file", "name the folder"}, nil},
	{"rollouts given as judged", nil, strings.Replace(grpo, "epoch-1/judged", "epoch-1/rollouts", 1),
		65, []string{"epoch-1/rollouts: it holds rollouts, not judged"}, nil},
	{"policy given as encoder", nil, "embed --encoder runs/mini/base --passages data/corpora/demo/text/passages --out x/v",
		65, []string{"runs/mini/base/config.json", "model_type"}, nil},
	{"vectors of another dimension in one shard", func(p place) {
		const vectors = " --passages data/corpora/demo/text/passages --shards 2 --out "
		for _, line := range []string{"encoder --passages data/corpora/demo/text/passages --dim 64 --out x/e", "embed --encoder x/e" + vectors + "x/w",
			"embed --encoder data/corpora/demo/encoder" + vectors + "x/v"} {
			if code, text := p.job(line); code != 0 {
				p.t.Fatal(text)
			}
		}
		p.replacePart("x/v", "part-00001-of-00002.arrow", p.read("x/w/part-00001-of-00002.arrow"))
	}, indexing, 65, []string{"x/v/part-00001-of-00002.arrow", "dimension 64 and 256", "embed all passages with one"},
		func(p place) {
			os.Remove(p.path("x/v/manifest.json"))
			p.job("embed --encoder data/corpora/demo/encoder --passages data/corpora/demo/text/passages --shards 2 --out x/v")
		}},
	{"lens archive cut short", func(p place) {
		p.put("x/i.tar.gz", string(p.read("data/world/images.tar.gz")[:6000]))
	}, "lens --cache data/world/lens_cached_data.jsonl --tar x/i.tar.gz --out x/l", 65, []string{"x/i.tar.gz", "fetch the archive again"},
		func(p place) { p.put("x/i.tar.gz", string(p.read("data/world/images.tar.gz"))) }},
	{"lens without its images", nil, "lens --cache data/world/lens_cached_data.jsonl --out x/l", 3,
		[]string{"x/l", "sample demo_te", "images are missing", "images/emblem_", "--max-missing"}, nil},
	{"misspelt key in a recipe", func(p place) {
		p.put("pipelines/recipes/typo.yaml", "extends: mini\nname: typo\nprotocol:\n  turn_tokenz: 48\n")
	}, strings.Replace(rolling, "mini", "typo", 1), 2, []string{"typo.yaml: row 4", `"turn_tokenz"`, "did you mean turn_tokens?", "docs/recipes.md"},
		func(p place) {
			p.put("pipelines/recipes/typo.yaml", "extends: mini\nname: typo\nprotocol:\n  turn_tokens: 48\n")
		}},
	{"unknown key in --set", nil, rolling + " --set protocol.turn_tokenz=3", 2, []string{"protocol.turn_tokenz=3", "did you mean turn_tokens?"}, nil},
	{"text for a number in --set", nil, rolling + " --set protocol.turn_tokens=many", 2, []string{"turn_tokens is \"many\", want a whole number"}, nil},
	{"unknown recipe", nil, strings.Replace(rolling, "mini", "demmo", 1), 2, []string{"demmo.yaml: no such file", "recipes: ", "demo"}, nil},
	{"flag without its value", nil, "index --out", 2, []string{"--out needs a value"}, nil},
	{"misspelt flag", nil, "judge --rolouts x", 2, []string{"--rolouts", `did you mean "--rollouts"`}, nil},
	{"policy server with another key", nil, "", 69, []string{"status 401", "POLICY_API_KEY"}, nil},
	{"policy server without http", nil, "rollout " + playing + "--policy-url 127.0.0.1:8000 --out x/r", 2, []string{"127.0.0.1:8000: not an http URL"}, nil},
}

// remake makes a dataset anew, as the messages advise.
func (p place) remake(dir string) {
	p.t.Helper()
	if err := os.Remove(p.path(dir + "/manifest.json")); err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	p.run(dir+"/manifest.json", "EPOCH=1")
}

// replacePart puts another part into a dataset, with a manifest that believes it.
func (p place) replacePart(dir, part string, text []byte) {
	p.t.Helper()
	p.put(dir+"/"+part, string(text))
	var m map[string]any
	if err := json.Unmarshal(p.read(dir+"/manifest.json"), &m); err != nil {
		p.t.Fatal(err)
	}
	for _, x := range m["parts"].([]any) {
		if x := x.(map[string]any); x["name"] == part {
			x["bytes"], x["sha256"] = len(text), fmt.Sprintf("%x", sha256.Sum256(text))
		}
	}
	out, _ := json.Marshal(m)
	p.put(dir+"/manifest.json", string(out))
}

var stack = regexp.MustCompile(`goroutine \d|\.go:\d|level=ERROR`)

func TestBadInput(t *testing.T) {
	t.Parallel()
	for _, c := range badInputs {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := copyOf(t)
			if c.spoil != nil {
				c.spoil(p)
			}
			line := c.line
			if c.code == 69 {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }))
				defer s.Close()
				line = "rollout " + playing + "--policy-url " + s.URL + " --out x/r"
			}
			code, stderr := p.job(line)
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			last := lines[len(lines)-1]
			if code != c.code {
				t.Errorf("exit %d, want %d", code, c.code)
			}
			for _, want := range c.says {
				if !strings.Contains(last, want) {
					t.Errorf("the message does not say %q", want)
				}
			}
			name := strings.Fields(line)[0] + ": "
			if !strings.HasPrefix(last, name) || strings.HasPrefix(last, name+name) || stack.MatchString(stderr) || len(last) > 500 {
				t.Error("the message is not one clear line")
			}
			if t.Failed() {
				t.Log(stderr)
			}
			if c.mend != nil {
				c.mend(p)
				if code, stderr := p.job(line); code != 0 {
					t.Errorf("mended, exit %d\n%s", code, stderr)
				}
			}
		})
	}
}

// Servers that fail for a while cost nothing but time.
func TestServersThatRecover(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"500:3", "garbage:3", "truncated:2", "html:2", "429:2"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			p := copyOf(t)
			url, stop := p.scripted("oracle", fault)
			defer stop()
			code, stderr := p.job("rollout " + playing + "--policy-url " + url + " --out x/r")
			if code != 0 || !strings.Contains(stderr, "rows=20 failed=0 rejected=0") {
				t.Errorf("exit %d\n%s", code, stderr)
			}
		})
	}
}

// scripted starts bin/scripted.
func (p place) scripted(script, fault string) (url string, stop func()) {
	p.t.Helper()
	cmd := p.start("scripted --script " + script + " --questions data/questions/demo --addr 127.0.0.1:0 --addr-file x/addr --fault " + fault)
	for range 500 {
		if text, err := os.ReadFile(p.path("x/addr")); err == nil {
			return strings.TrimSpace(string(text)), func() { cmd.Process.Signal(syscall.SIGTERM); p.end(cmd) }
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.t.Fatal("the server never listened")
	return "", nil
}

// A judge that says neither yes nor no decides nothing: no answer becomes wrong by
// it, and a better judge decides later.
func TestJudgeThatDoesNotDecide(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	url, stop := p.scripted("oracle", "500@1000000")
	defer stop()
	if code, stderr := p.job("rollout " + playing + "--policy-url " + url + " --out x/r --set seed=9"); code != 0 {
		t.Fatal(stderr)
	}
	says := "I would rather not say."
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprint(w, `{"object":"list","data":[{"id":"judge_model"}]}`)
			return
		}
		fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, says)
	}))
	defer s.Close()
	judge := "judge --recipe mini --rollouts runs/mini/epoch-0/rollouts --out x/j --judge-url " + s.URL + " --judge-model judge_model"
	code, stderr := p.job(judge)
	if code != 3 || !strings.Contains(stderr, "--retry-failed") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	says = "yes"
	if code, stderr := p.job(judge + " --retry-failed"); code != 0 {
		t.Errorf("with a judge that decides: exit %d\n%s", code, stderr)
	}
}

// One signal: what is in flight ends, the rest waits for the next run, and the rows
// are those of a quiet run.
func TestOneSignal(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	slow := strings.Replace(rolling, "--policy-script teacher", "", 1) + " --set rollout.concurrency=2"
	url, stop := p.scripted("oracle", "slow=100ms")
	defer stop()
	slow += " --policy-url " + url
	if code, stderr := p.job(strings.Replace(slow, "x/r", "x/quiet", 1)); code != 0 {
		t.Fatal(stderr)
	}
	cmd := p.start(slow)
	p.waitForJournal("x/r")
	cmd.Process.Signal(syscall.SIGTERM)
	if code, stderr := p.end(cmd); code != 75 || !strings.Contains(stderr, "run the same command again") {
		t.Errorf("SIGTERM: exit %d\n%s", code, stderr)
	}
	if code, stderr := p.job(slow); code != 0 || !strings.Contains(stderr, "continuing") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	if !bytes.Equal(p.read("x/r/"+part0+".parquet"), p.read("x/quiet/"+part0+".parquet")) {
		t.Error("the rows differ from those of a quiet run")
	}
}

// waitForJournal returns as soon as a sample of an unfinished dataset is kept.
func (p place) waitForJournal(dataset string) {
	p.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		journals, _ := filepath.Glob(filepath.Join(p.dir, dataset, ".work", "*.journal"))
		for _, j := range journals {
			if st, err := os.Stat(j); err == nil && st.Size() > 1000 {
				return
			}
		}
	}
	p.t.Fatal("no journal")
}

// Two signals: the process ends at once, whatever it waits for.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	p := copyOf(t)
	asked := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprint(w, `{"data": [{"id": "hang"}]}`)
			return
		}
		io.Copy(io.Discard, r.Body)
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	defer s.Close()
	cmd := p.start("rollout " + playing + "--out x/r --policy-url " + s.URL)
	select {
	case <-asked: // something is in flight, without which the first signal ends the job
	case <-time.After(time.Minute):
		t.Error("the policy was never asked")
	}
	cmd.Process.Signal(syscall.SIGINT)
	time.Sleep(400 * time.Millisecond) // less is taken for the same signal
	cmd.Process.Signal(syscall.SIGINT)
	if code, stderr := p.end(cmd); code != 130 || !strings.Contains(stderr, "second signal") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}
