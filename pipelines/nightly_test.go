package pipelines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"searchloop/eval/nightly"
	"searchloop/internal/fault"
)

// A night by a real cron daemon: it fires, the machine goes down in the middle, it
// fires again while nobody looks, and in the morning the history has the night once.
// The crontab line is that of pipelines/crontab, with its place, its variables and its
// hour filled in.
func TestCronNight(t *testing.T) {
	if !fault.Enabled && os.Getenv("SEARCHLOOP_LONG") == "" {
		t.Skip("cron fires once a minute: make test-fault runs it, and SEARCHLOOP_LONG=1")
	}
	cron, err := exec.LookPath("cron")
	if err != nil {
		t.Skip("cron is not installed (Debian's package: cron)")
	}
	if os.Geteuid() != 0 {
		t.Skip("cron needs root")
	}
	p := copyOf(t)
	to, stop := p.scripted("oracle", "500@1000000")
	defer stop()
	c := newCounted(t, to)
	c.hang.Store(true)

	text, err := os.ReadFile("crontab")
	if err != nil {
		t.Fatal(err)
	}
	lines := ""
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines += line
		}
	}
	// Every minute, as root, with this place and this policy.
	filled := strings.NewReplacer("30 2 * * *", "* * * * *", "/srv/searchloop", p.dir,
		"make -s nightly", "make -s nightly RECIPE=mini RUN=mini EPOCH=0 NIGHT=one POLICY_URL="+c.URL+" JOBFLAGS='--progress none'").Replace(lines)
	if filled == lines || !strings.Contains(filled, p.dir) || !strings.Contains(filled, c.URL) {
		t.Fatalf("the crontab line is not what it was:\n%s", lines)
	}
	crontab := exec.Command("crontab", "-")
	crontab.Stdin = strings.NewReader(filled)
	old, _ := exec.Command("crontab", "-l").Output()
	if out, err := crontab.CombinedOutput(); err != nil {
		t.Fatalf("crontab: %v\n%s", err, out)
	}
	defer func() {
		back := exec.Command("crontab", "-")
		back.Stdin = bytes.NewReader(old)
		if len(old) == 0 {
			back = exec.Command("crontab", "-r")
		}
		back.Run()
	}()
	daemon := exec.Command(cron, "-f")
	daemon.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { daemon.Process.Kill(); daemon.Wait() }()

	// The first firing hangs at the policy; the machine goes down.
	until(t, 2*time.Minute, "the first firing to ask the policy", func() bool { return c.asked.Load() > 0 })
	holder := strings.TrimSpace(string(p.read("runs/mini/nights/.lock")))
	_, pid, _ := strings.Cut(holder, ":")
	killed := p.killTree(pid)
	if killed < 2 {
		t.Fatalf("%d processes of the first firing, held by %s", killed, holder)
	}
	c.hang.Store(false)
	if _, err := os.Stat(p.path("runs/mini/nights/one/result.json")); err == nil {
		t.Fatal("the night had ended before it was killed")
	}
	until(t, 3*time.Minute, "the second firing to end the night", func() bool {
		_, err := os.Stat(p.path("runs/mini/nights/one/result.json"))
		return err == nil
	})
	rows, err := nightly.ReadHistory(p.path("runs/mini/nights"))
	if err != nil || len(rows) != 1 || rows[0].Night != "one" || rows[0].N != 20 {
		t.Fatalf("%v: %+v", err, rows)
	}
	log := string(p.read("runs/nightly.log"))
	if !strings.Contains(log, "going on with a night") || !strings.Contains(log, `"night":"one"`) {
		t.Errorf("the log of both firings:\n%s", log)
	}
}

// killTree kills the process and everything that it began, at once, as a power cut
// does.
func (p place) killTree(pid string) (n int) {
	p.t.Helper()
	children := map[string][]string{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		children[f[1]] = append(children[f[1]], filepath.Base(filepath.Dir(path)))
	}
	all := []string{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	for _, id := range all {
		var number int
		if _, err := fmt.Sscan(id, &number); err == nil && number > 1 && syscall.Kill(number, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

func until(t *testing.T, patience time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// Two nights of a policy that gets worse, told to a webhook: the second breaks its
// bound, names what was lost, and is told once more when it is asked for again; one
// that is cut off before the history is written loses and doubles nothing.
func TestNightlyRegression(t *testing.T) {
	if !fault.Enabled && os.Getenv("SEARCHLOOP_LONG") == "" {
		t.Skip("it plays four nights: make test-fault runs it, and SEARCHLOOP_LONG=1")
	}
	t.Parallel()
	p := copyOf(t)
	var mu sync.Mutex
	var told []nightly.Result
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var res nightly.Result
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &res); err != nil || r.URL.Path != "/canary" {
			t.Errorf("%s %s: %v", r.URL, body, err)
		}
		mu.Lock()
		defer mu.Unlock()
		told = append(told, res)
	}))
	defer hook.Close()
	night := func(name string, right string, more ...string) (int, string) {
		t.Helper()
		os.Remove(p.path("x/addr"))
		server := p.start("scripted --script oracle --questions data/questions/demo --addr 127.0.0.1:0 --addr-file x/addr --right " + right)
		until(t, 20*time.Second, "the policy", func() bool { _, err := os.Stat(p.path("x/addr")); return err == nil })
		defer func() { server.Process.Signal(syscall.SIGTERM); p.end(server) }()
		cmd := p.make(append([]string{"nightly", "EPOCH=0", "NIGHT=" + name, "POLICY_URL=" + strings.TrimSpace(string(p.read("x/addr")))}, more...)...)
		cmd.Env = append(cmd.Env, "NIGHTLY_WEBHOOK="+hook.URL+"/canary")
		out, _ := cmd.CombinedOutput()
		if strings.Contains(string(out), "canary") {
			t.Errorf("the webhook's address is told:\n%s", out)
		}
		return cmd.ProcessState.ExitCode(), string(out)
	}
	if code, out := night("a", "1", "MAX_DROP=0.05"); code != 0 || !strings.Contains(out, "nothing to compare with yet") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for range 2 { // asked for again it has ended, and says the same
		code, out := night("b", "0.5", "MAX_DROP=0.05")
		if code != 2 || !strings.Contains(out, "Error 3") || !strings.Contains(out, "REGRESSION") || !strings.Contains(out, "  lost  ") {
			t.Fatalf("exit %d\n%s", code, out)
		}
	}
	// The night after is compared with the good one, still; taken for good, it passes.
	if code, out := night("c", "0.5", "MAX_DROP=0.05"); code != 2 || !strings.Contains(out, "points since a") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	if code, out := night("d", "0.5", "MAX_DROP=0.05", "AGAINST_NIGHT=b"); code != 0 || !strings.Contains(out, "+0.0 points since b") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	if len(told) != 4 || told[1].Exit != 3 || !told[1].Regression || len(told[1].Outcomes[0].Lost) == 0 || told[3].Regression {
		t.Errorf("the webhook heard %+v", told)
	}
	// Power goes when the night is entered and not ended; then the history is lost too.
	for _, gone := range [][]string{{"d/result.json"}, {"history.parquet"}} {
		for _, f := range gone {
			if err := os.Remove(p.path("runs/mini/nights/" + f)); err != nil {
				t.Fatal(err)
			}
		}
		if code, out := night("d", "0.5", "MAX_DROP=0.05", "AGAINST_NIGHT=b"); code != 0 {
			t.Fatalf("exit %d\n%s", code, out)
		}
		rows, err := nightly.ReadHistory(p.path("runs/mini/nights"))
		if err != nil || len(rows) != 4 {
			t.Fatalf("%v, %d rows", err, len(rows))
		}
		for i, r := range rows {
			if want := "abcd"[i : i+1]; r.Night != want || r.Broke != (want == "b" || want == "c") && len(gone) == 0 {
				t.Errorf("row %d: %+v", i, r)
			}
		}
	}
	page := string(p.read("runs/mini/nights/trends.html"))
	if !strings.Contains(page, "<svg") || strings.Contains(page, "http://") && strings.Contains(page, `src="http`) {
		t.Error("the page of trends draws nothing, or asks the network")
	}
}

// The unit files are valid, and what they start is what the crontab line starts.
func TestUnits(t *testing.T) {
	verify, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, name := range []string{"searchloop-nightly.service", "searchloop-nightly.timer"} {
		text, err := os.ReadFile("systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if name == "searchloop-nightly.service" && !strings.Contains(string(text), "make -s nightly") {
			t.Errorf("%s starts something else:\n%s", name, text)
		}
		write(t, filepath.Join(dir, name), strings.ReplaceAll(string(text), "/srv/searchloop", filepath.Join(dir, "srv")))
		paths = append(paths, filepath.Join(dir, name))
	}
	out, err := exec.Command(verify, append([]string{"verify", "--man=no"}, paths...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "searchloop-nightly") {
			t.Errorf("%s", line)
		}
	}
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := exec.Command(verify, "calendar", "*-*-* 02:30:00").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
