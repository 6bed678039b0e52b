package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"searchloop/corpus"
	"searchloop/eval"
	"searchloop/rollout/trajectory"
)

// inChromium opens the page at path#fragment in a headless Chromium and runs script
// in it, an async function's body, once the samples are there; it gives what the
// script returns. It skips where there is no Chromium.
func inChromium(t testing.TB, path, fragment, size, script string) (result map[string]any) {
	t.Helper()
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			chromium = p
			break
		}
	}
	if chromium == "" {
		t.Skip("no Chromium: neither chromium nor google-chrome is installed")
	}
	html, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	probe := `<script>(async () => {
		while (!document.body.dataset.ready) await new Promise(r => setTimeout(r, 5));
		const ready = performance.now(), wait = ms => new Promise(r => setTimeout(r, ms)), key = k => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key: k, bubbles: true, cancelable: true}));
		let out;
		try { out = await (async () => {` + script + `})(); } catch (e) { out = {error: String(e.stack)}; }
		out.ready = ready;
		await fetch("/result", {method: "POST", body: JSON.stringify(out)});
	})()</script>`
	html = bytes.Replace(html, []byte("default-src 'none'"), []byte("default-src 'none'; connect-src 'self'"), 1)
	done := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/result" {
			body, _ := io.ReadAll(r.Body)
			done <- body
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(append(html, probe...))
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(), "--window-size="+size, "--remote-debugging-port=0", server.URL+"/"+fragment)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	select {
	case body := <-done:
		err = json.Unmarshal(body, &result)
	case <-ctx.Done():
		t.Fatal("the page did not come to an end")
	}
	if err != nil || result["error"] != nil {
		t.Fatalf("%v %v", err, result["error"])
	}
	return result
}

// many makes n evaluated trajectories of turns turns. Every text holds evil.
func many(n, turns int, evil, image string, right func(i int) bool) (out []played) {
	for i := range n {
		id := fmt.Sprintf("q%05d", i)
		row := trajectory.Row{ID: id + "#0", Question: id, Category: fmt.Sprintf("kind %d", i%4), Text: fmt.Sprintf("Question %d? %s", i, evil), Answers: []string{"truth " + id}, Answer: "answer " + evil, Status: trajectory.OK}
		row.Turns = append(row.Turns, trajectory.Turn{Role: "user", Text: row.Text, Images: []string{image}})
		for k := 1; k < turns; k++ {
			if k%2 == 1 {
				row.Turns = append(row.Turns, trajectory.Turn{Role: "assistant", Text: strings.Repeat(fmt.Sprintf("thought %d of %s ", k, id), 20) + evil, Call: "crop_and_search", Args: `{"bbox":[[100,200,500,600]],"image_id":1}`, Tokens: 90})
			} else {
				row.Turns = append(row.Turns, trajectory.Turn{Role: "tool", Call: "text_search", Text: strings.Repeat(fmt.Sprintf("passage %d about %s. ", k*i, id), 40) + evil, Sources: []trajectory.Source{{Provider: "serper", URL: "https://example.org/" + evil}}})
			}
		}
		s := eval.Sample{ID: row.ID, Question: id, Category: row.Category, Text: row.Text, Truth: row.Answers, Answer: row.Answer, Status: row.Status, Correct: right(i), Scored: true, Calls: []string{"text_search"}, Turns: int32(turns / 2)}
		if s.Correct {
			s.Score = 1
		}
		out = append(out, played{row, trajectory.Judged{ID: row.ID, Verdict: trajectory.Incorrect, By: "judge", Reply: evil, JudgeModel: "j", Scored: true, Reward: 0.1, Components: []trajectory.Component{{Name: "format", Value: 1, Weight: .1}}}, s})
	}
	return out
}

func epochOf(n int, samples []played) Epoch {
	e := Epoch{Run: "r", N: n, samples: samples}
	for _, p := range samples {
		e.scores = append(e.scores, p.sample)
	}
	m := eval.Measure(e.scores, "judge", 200, 1)
	e.Eval = &m
	return e
}

func written(t testing.TB, epochs []Epoch, store *corpus.ImageStore) string {
	t.Helper()
	v, err := view(Options{Run: "runs/r", Bench: "b"}, epochs, store)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const evil = "</script><script>window.hurt=1</script><img src=x onerror=window.hurt=2> \u2028 <!--<script> ${window.hurt=3} &lt;b&gt;"

// The page in a browser: hostile texts stay texts, filters, keys and deep links work.
func TestInChromium(t *testing.T) {
	store, err := corpus.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	image, err := store.Put(picture(t))
	if err != nil {
		t.Fatal(err)
	}
	path := written(t, []Epoch{
		epochOf(0, many(300, 6, evil, image, func(i int) bool { return i%3 == 0 })),
		epochOf(1, many(300, 6, evil, image, func(i int) bool { return i%3 == 0 != (i == 6 || i == 7) })),
	}, store)
	got := inChromium(t, path, "#sample=q00007%230%401", "1280,900", `
		const out = {};
		await wait(300);
		const show = v => { form.elements.show.value = v; apply(); return $("count").textContent };
		out.count = $("count").textContent; out.text = $("sample").innerText; out.images = document.querySelectorAll("#sample img").length;
		out.boxes = document.querySelectorAll("#sample .picture i").length; out.rows = document.querySelectorAll(".row").length;
		out.won = show("won"); out.lost = show("lost"); show(""); list.focus(); key("j"); await wait(300);
		out.hash = location.hash; out.head = document.querySelector("#sample h3").textContent; out.hurt = window.hurt || 0;
		return out;`)
	count, won, lost, shownText, hash, afterKey := got["count"], got["won"], got["lost"], fmt.Sprint(got["text"]), fmt.Sprint(got["hash"]), fmt.Sprint(got["head"])
	hurt, images, boxes, rows := got["hurt"].(float64), got["images"].(float64), got["boxes"].(float64), got["rows"].(float64)
	narrow := inChromium(t, path, "#sample=q00007%230%401", "500,900", `await wait(300); return {wide: document.documentElement.scrollWidth, inner: innerWidth, position: getComputedStyle($("sample")).position}`)
	scrollWidth, inner, position := narrow["wide"].(float64), narrow["inner"].(float64), narrow["position"]
	if hurt != 0 {
		t.Errorf("text of a trajectory ran as script: %v", hurt)
	}
	if count != "300 of 600" || won != "1 of 600" || lost != "1 of 600" {
		t.Errorf("counts %q, won %q, lost %q", count, won, lost)
	}
	if !strings.Contains(shownText, "Question 7?") || !strings.Contains(shownText, "<img src=x onerror") || !strings.Contains(shownText, "judge says") {
		t.Errorf("the linked sample shows %.300s", shownText)
	}
	if images < 1 || boxes < 1 {
		t.Errorf("%v images, %v boxes of crops", images, boxes)
	}
	if rows < 5 || rows > 60 {
		t.Errorf("%v rows are in the page: the list is not virtual", rows)
	}
	if !strings.Contains(hash, "#sample=q00008") || !strings.Contains(afterKey, "Question 8?") {
		t.Errorf("after j: %s, %s", hash, afterKey)
	}
	if scrollWidth > inner || inner > 520 || position != "fixed" {
		t.Errorf("on %v pixels the page is %v wide, the sample is %v", inner, scrollWidth, position)
	}
}

// BenchmarkReport measures 5,000 samples of 8 turns: building, opening, filtering.
func BenchmarkReport(b *testing.B) {
	store, err := corpus.OpenStore(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	samples := many(5000, 8, "", strings.Repeat("0", 64), func(i int) bool { return i%3 == 0 })
	epochs := []Epoch{epochOf(1, samples)}
	for b.Loop() {
		start := time.Now()
		path := written(b, epochs, store)
		build := time.Since(start)
		got := inChromium(b, path, "", "1280,900", `
			const timed = f => { const t = performance.now(); f(); list.getBoundingClientRect(); return performance.now() - t };
			const out = {filter: timed(() => { form.elements.show.value = "wrong"; apply() }), search: timed(() => { form.elements.text.value = "question 49"; apply() })};
			const t = performance.now(); await open(4321); out.sample = performance.now() - t;
			return out;`)
		b.ReportMetric(build.Seconds(), "build-s")
		b.ReportMetric(got["ready"].(float64)/1000, "open-s")
		for _, name := range []string{"filter", "search", "sample"} {
			b.ReportMetric(got[name].(float64), name+"-ms")
		}
		info, _ := os.Stat(path)
		b.ReportMetric(float64(info.Size())/1e6, "MB")
	}
}
