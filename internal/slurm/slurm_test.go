package slurm

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"searchloop/internal/fault"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/shard"
	"searchloop/internal/slurm/slurmtest"
)

// maxArray is the test cluster's MaxArraySize.
const maxArray = 11

// cpus that the cluster believes to have: its tasks sleep.
const cpus = 8

const canary = "sk-canary-of-the-slurm-tests"

var (
	cluster *slurmtest.Cluster
	absent  string // why there is no cluster
)

func listen(addr string) (net.Listener, error) { return net.Listen("tcp", addr) }

// TestMain is also the job, its server and the submitter: Slurm starts this program.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		args := os.Args[2:]
		switch os.Args[1] {
		case "toy":
			os.Exit(job.Exec("toy", "a toy", &toy{}, args, os.Stdout, os.Stderr))
		case "serve":
			os.Exit(job.Exec("serve", "a toy's server", &server{}, args, os.Stdout, os.Stderr))
		case "submit":
			os.Exit(job.Exec("launch", "the submitter", &submitter{}, args, os.Stdout, os.Stderr))
		}
	}
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set("8") // they wait for the cluster
	}
	if !fault.Enabled {
		absent = "it takes two minutes, and make test-fault runs it"
	} else {
		absent = slurmtest.Missing()
	}
	if absent == "" {
		c, stop, err := slurmtest.Start(cpus, maxArray)
		if err != nil {
			fmt.Fprintln(os.Stderr, "the test cluster does not start:", err)
			os.Exit(1)
		}
		cluster = c
		code := m.Run()
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// stage is a toy's dataset that is being launched.
type stage struct {
	*testing.T
	dir, out, seen string
	n, rows        int
	toy            []string // further flags of the toy
	submit         []string // further flags of the submitter
	needs          string
	err            bytes.Buffer
}

func newStage(t *testing.T, n, rows int, toy ...string) *stage {
	t.Helper()
	t.Parallel()
	return newStageAlone(t, n, rows, toy...)
}

// newStageAlone is newStage for a test that disturbs others.
func newStageAlone(t *testing.T, n, rows int, toy ...string) *stage {
	t.Helper()
	if absent != "" {
		t.Skip("no cluster: " + absent)
	}
	dir := t.TempDir()
	return &stage{T: t, dir: dir, out: filepath.Join(dir, "out"), seen: filepath.Join(dir, "seen"), n: n, rows: rows, toy: toy, needs: "1,10,0,1"}
}

func (s *stage) command() []string {
	exe, err := os.Executable()
	if err != nil {
		s.Fatal(err)
	}
	line := append([]string{exe, "toy", "--shards", strconv.Itoa(s.n), "--rows", strconv.Itoa(s.rows), "--seen", s.seen}, s.toy...)
	return append(line, "--out", s.out)
}

func (s *stage) start() *exec.Cmd {
	s.Helper()
	line := s.command()
	args := append([]string{"submit", "--progress", "none", "--needs", s.needs}, s.submit...)
	cmd := exec.Command(line[0], append(append(args, "--"), line...)...)
	cmd.Env = append(os.Environ(), "POLICY_API_KEY="+canary)
	s.err.Reset()
	cmd.Stderr = &s.err
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("the submitter said:\n%s", s.err.String())
		}
		exec.Command("scancel", "--name="+strings.Join(s.names(), ",")).Run()
	})
	return cmd
}

// end waits for the submitter and wants an exit code.
func (s *stage) end(cmd *exec.Cmd, code int) {
	s.Helper()
	late := time.AfterFunc(6*time.Minute, func() { cmd.Process.Kill() })
	defer late.Stop()
	cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		s.Fatalf("exit %d, want %d\n%s\n%s", got, code, s.err.String(), s.queue())
	}
}

func (s *stage) queue() string {
	out, _ := exec.Command("squeue", "-a", "-r", "--states=all", "-o", "%i %j %T %r").CombinedOutput()
	return string(out)
}

// names are the job names of the stage's state.
func (s *stage) names() (list []string) {
	st, err := recall(s.out)
	if err != nil || st == nil {
		return nil
	}
	for _, a := range st.Arrays {
		list = append(list, a.Name)
	}
	return list
}

// until waits for something to be true.
func (s *stage) until(what string, is func() bool) {
	s.Helper()
	for end := time.Now().Add(4 * time.Minute); !is(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			s.Fatalf("%s: not within four minutes\n%s\n%s", what, s.err.String(), s.queue())
		}
	}
}

func (s *stage) begun() int { b, _ := rows(s.seen); return len(b) }

// complete wants a whole dataset, no finished row done twice, and at most so many
// rows begun twice: those in flight when something was killed.
func (s *stage) complete(inFlight int) {
	s.Helper()
	if err := whole(s.out, s.n, s.rows); err != nil {
		s.Fatalf("the dataset: %v\n%s", err, s.err.String())
	}
	begun, ended := rows(s.seen)
	twice := 0
	for key, n := range begun {
		twice += n - 1
		if ended[key] > 1 {
			s.Errorf("row %s was finished %d times", key, ended[key])
		}
	}
	if len(begun) != s.n*s.rows || twice > inFlight {
		s.Errorf("%d rows of %d, %d begun again, at most %d were in flight", len(begun), s.n*s.rows, twice, inFlight)
	}
	if left, _ := filepath.Glob(s.out + ".summary-*"); len(left) > 0 {
		s.Errorf("left over: %v", left)
	}
}

// pid is a process that works on the shard.
func (s *stage) pid(i int) int {
	text, _ := os.ReadFile(s.seen)
	pid := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) >= 3 && f[0] == "row" && strings.HasPrefix(f[1], strconv.Itoa(i)+"/") {
			pid, _ = strconv.Atoi(f[2])
		}
	}
	return pid
}

// An array with a hole where a shard is made already; the key that tasks need is
// nowhere in what Slurm keeps, nor in scripts and logs.
func TestArrayWithAHoleAndNoKeyInSlurm(t *testing.T) {
	s := newStage(t, 6, 2, "--row", "1500ms", "--secret", manifest.Hash([]byte(canary)))
	line := s.command()
	first := exec.Command(line[0], append(line[1:], "--shard", "2/6")...)
	first.Env = append(os.Environ(), "POLICY_API_KEY="+canary)
	if text, err := first.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, text)
	}
	cmd := s.start()
	s.until("a task begins", func() bool { return s.begun() > 2 })
	lists, _ := filepath.Glob(filepath.Join(s.out+".launch", "*.shards"))
	if len(lists) != 1 {
		t.Fatal(lists)
	}
	if l, err := shard.ReadList(lists[0], 6); err != nil || len(l) != 5 || l[2] != nil {
		t.Errorf("the list is %v %v", l, err)
	}
	found := 0
	for _, place := range []string{cluster.Dir, s.out + ".launch"} {
		filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			text, err := os.ReadFile(path)
			if err == nil && bytes.Contains(text, []byte(canary)) {
				t.Errorf("the key is in %s", path)
			}
			if err == nil && bytes.Contains(text, []byte("POLICY_API_KEY_FILE")) {
				found++
			}
			return nil
		})
	}
	if found == 0 {
		t.Error("Slurm's environment was not looked at: no file names POLICY_API_KEY_FILE")
	}
	s.end(cmd, 0)
	s.complete(0)
	if left, _ := filepath.Glob(filepath.Join(s.dir, "keys", "*")); len(left) > 0 {
		t.Errorf("files of keys are left: %v", left)
	}
}

// A task that is killed is tried again, and goes on from its journal.
func TestKilledTask(t *testing.T) {
	s := newStage(t, 2, 4, "--row", "1s")
	cmd := s.start()
	s.until("two rows of a shard", func() bool { _, e := rows(s.seen); return e["1/0"] > 0 })
	if err := syscall.Kill(s.pid(1), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.end(cmd, 0)
	s.complete(1)
	if !strings.Contains(s.err.String(), "tried again") {
		t.Error("nothing was said of another try")
	}
}

// Tasks that somebody cancels before they begin are missing, and not submitted again.
func TestCancelledWhilePending(t *testing.T) {
	s := newStage(t, 3, 1)
	s.submit = []string{"--sbatch=--begin=now+1hour"}
	cmd := s.start()
	s.until("tasks wait", func() bool { n := s.names(); return len(n) > 0 && strings.Contains(s.queue(), n[0]) })
	if out, err := exec.Command("scancel", "--name="+s.names()[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.end(cmd, 75)
	if text := s.err.String(); !strings.Contains(text, "shards 0-2 of 3 are missing") || !strings.Contains(text, "cancelled") {
		t.Errorf("it said:\n%s", text)
	}
	s.submit = nil
	s.end(s.start(), 0)
	s.complete(0)
}

// Tasks that make room for a more urgent job are run again when there is room.
func TestPreempted(t *testing.T) {
	s := newStageAlone(t, 2, 5, "--row", "1s")
	cmd := s.start()
	s.until("a row of each", func() bool { _, e := rows(s.seen); return e["0/0"] > 0 && e["1/0"] > 0 })
	out, err := exec.Command("srun", "-p", "urgent", "-n1", "-c", strconv.Itoa(cpus), "--mem=50", "sleep", "1").CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.end(cmd, 0)
	s.complete(4)
	if !strings.Contains(s.err.String(), "tried again") {
		t.Error("nothing was pre-empted")
	}
}

// A shard that takes longer than the time limit is made in several goes.
func TestTimeLimit(t *testing.T) {
	s := newStage(t, 1, 25, "--row", "2s")
	s.needs = "1,1,0,1"
	cmd := s.start()
	s.end(cmd, 0)
	s.complete(0)
	if !strings.Contains(s.err.String(), "tried again") {
		t.Error("the time limit did not strike")
	}
}

// The controller goes away and comes back, and a node drains and comes back: not
// knowing is no failure, waiting is none either.
func TestControllerRestartsAndNodeDrains(t *testing.T) {
	s := newStage(t, 4, 3, "--row", "1500ms")
	cmd := s.start()
	s.until("a row", func() bool { return s.begun() > 0 })
	cluster.StopController()
	time.Sleep(3 * time.Second)
	if err := cluster.StartController(); err != nil {
		t.Fatal(err)
	}
	control := func(args ...string) {
		s.until("scontrol", func() bool { return exec.Command("scontrol", args...).Run() == nil })
	}
	control("update", "nodename="+cluster.Host, "state=drain", "reason=test")
	time.Sleep(2 * time.Second)
	control("update", "nodename="+cluster.Host, "state=resume")
	s.end(cmd, 0)
	s.complete(0)
}

// A submitter that is killed leaves its tasks to the next one, which finds them.
func TestSubmitterKilled(t *testing.T) {
	s := newStage(t, 4, 3, "--row", "1500ms")
	cmd := s.start()
	s.until("a row", func() bool { return s.begun() > 0 })
	cmd.Process.Kill()
	cmd.Wait()
	before := s.names()[0]
	again := s.start()
	s.until("it attaches", func() bool { return strings.Contains(s.err.String(), "attached") || again.ProcessState != nil })
	if s.names()[0] != before {
		t.Error("the tasks were submitted once more")
	}
	s.end(again, 0)
	s.complete(0)
}

// TERM takes the tasks off; the same command goes on later.
func TestTerm(t *testing.T) {
	s := newStage(t, 4, 4, "--row", "1s")
	cmd := s.start()
	s.until("a row", func() bool { _, e := rows(s.seen); return len(e) > 0 })
	cmd.Process.Signal(syscall.SIGTERM)
	s.end(cmd, 75)
	out, _ := exec.Command("squeue", "-h", "-r", "--name="+strings.Join(s.names(), ","), "-o", "%T").Output()
	if text := strings.TrimSpace(string(out)); text != "" && strings.Trim(text, "COMPLETING\n") != "" {
		t.Errorf("tasks are left: %s", out)
	}
	s.end(s.start(), 0)
	s.complete(0)
}

// More tasks than an array may have indices are several arrays.
func TestIndexLimit(t *testing.T) {
	s := newStage(t, 2*maxArray+3, 1)
	refused, err := exec.Command("sbatch", "--mem=50", fmt.Sprintf("--array=0-%d", maxArray), "--wrap=true").CombinedOutput()
	if err == nil {
		t.Fatalf("Slurm took an index of %d: %s", maxArray, refused)
	}
	cmd := s.start()
	s.until("three arrays", func() bool { return len(s.names()) == 3 })
	s.end(cmd, 0)
	s.complete(0)
}

// A shard that kills its process each time is named, and costs nothing but itself.
func TestPoison(t *testing.T) {
	s := newStage(t, 3, 1, "--poison", "1")
	s.end(s.start(), 1)
	text := s.err.String()
	if !strings.Contains(text, "shards 1 of 3 are missing") || !strings.Contains(text, "shard 1 failed 3 times") || !strings.Contains(text, "about to die") {
		t.Errorf("it said:\n%s", text)
	}
	if b, e := rows(s.seen); len(e) != 2 || b["0/0"] != 1 || b["2/0"] != 1 {
		t.Errorf("rows: %v %v", b, e)
	}
}

// Bad input stays bad: it is not tried again.
func TestBadInput(t *testing.T) {
	s := newStage(t, 3, 1, "--broken", "2")
	s.end(s.start(), 65)
	text := s.err.String()
	if !strings.Contains(text, "shards 2 of 3 are missing") || !strings.Contains(text, "it is no good") || strings.Contains(text, "round=2") {
		t.Errorf("it said:\n%s", text)
	}
}

// Servers run as jobs of their own while the stage does, and several shards are a
// task, which has the GPU that it asked for.
func TestServersAndGroupsAndGPUs(t *testing.T) {
	s := newStage(t, 4, 2, "--server", "@toys")
	s.submit, s.needs = []string{"--servers", "1"}, "1,10,1,2"
	s.end(s.start(), 0)
	s.complete(0)
	text, _ := os.ReadFile(s.seen)
	if !strings.Contains(string(text), "gpu=0") && !strings.Contains(string(text), "gpu=1") {
		t.Errorf("no GPU was given:\n%s", text)
	}
	if s.pid(0) != s.pid(1) || s.pid(2) != s.pid(3) || s.pid(0) == s.pid(2) {
		t.Error("two shards were not one task")
	}
	out, _ := exec.Command("squeue", "-h", "-o", "%j %T").Output()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "sl-toys-") && !strings.Contains(line, "COMPLETING") {
			t.Errorf("a server is left: %s", line)
		}
	}
}

// What a cluster has to know is asked for; flags that Slurm refuses are usage errors,
// and a secret in a flag never gets as far as a script.
func TestRefused(t *testing.T) {
	s := newStage(t, 1, 1)
	s.needs = "1,0,0,1"
	s.end(s.start(), 2)
	if !strings.Contains(s.err.String(), "launch.toy.minutes") {
		t.Error(s.err.String())
	}
	s.needs, s.submit = "1,10,0,1", []string{"--sbatch=--partition=nowhere"}
	s.end(s.start(), 2)
	if !strings.Contains(s.err.String(), "submit to Slurm") {
		t.Error(s.err.String())
	}
	s.submit, s.toy = nil, []string{"--server", "http://me:" + canary + "@host/"}
	s.end(s.start(), 2)
	if !strings.Contains(s.err.String(), "holds a secret") || strings.Contains(s.err.String(), canary) {
		t.Error(s.err.String())
	}
}
