// Command bench measures prep and lens against Python doing the same job on this
// machine (peer.py, beside it) and writes the figures as a list of
//
//	{name, unit, ours, peer, peer_name, ratio, bound, note}
//
// ratio above 1 means that ours is better. Inputs are made in a folder that is
// removed afterwards; every figure is the best of --times runs, ours and the
// peer's by turns, so that a busy machine hits both.
//
//	go run ./corpus/bench --python .venv/bin/python --out build/bench-corpus.json
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"searchloop/internal/atomicfile"
)

// Item is one figure.
type Item struct {
	Name     string  `json:"name"`
	Unit     string  `json:"unit"`
	Ours     float64 `json:"ours"`
	Peer     float64 `json:"peer"`
	PeerName string  `json:"peer_name"`
	Ratio    float64 `json:"ratio"`
	Bound    float64 `json:"bound"`
	Note     string  `json:"note"`
}

var (
	python = flag.String("python", "", "Python with pandas, pyarrow and pillow; empty: ours alone")
	out    = flag.String("out", "build/bench-corpus.json", "file of the figures")
	script = flag.String("script", "corpus/bench/peer.py", "the peer")
	times  = flag.Int("times", 3, "runs of each")
	mb     = flag.Int("mb", 100, "size of the text corpus")
	large  = flag.Int("large", 5000, "size in MB of the corpus that memory is compared with; 0: leave out")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "corpus-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "./jobs/prep", "./jobs/lens")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return err
	}
	b := bench{dir: dir}
	for _, f := range []func() error{b.passages, b.lens, b.questions, b.memory} {
		before := len(b.items)
		if err := f(); err != nil {
			return err
		}
		if err := b.publish(b.items[before:]); err != nil {
			return err
		}
	}
	return nil
}

// publish prints new figures and writes all that there are.
func (b *bench) publish(fresh []Item) error {
	text, err := json.MarshalIndent(b.items, "", "  ")
	if err != nil {
		return err
	}
	for _, i := range fresh {
		fmt.Printf("%-42s %8.1f %-6s %-18s %8.1f  ratio %5.2f (bound %g) %s\n", i.Name, i.Ours, i.Unit, i.PeerName, i.Peer, i.Ratio, i.Bound, i.Note)
	}
	return atomicfile.WriteFile(*out, append(text, '\n'))
}

type bench struct {
	dir   string
	items []Item
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// measure runs a command and gives seconds, seconds of processor time, and the
// peak of its memory in MB.
func (b *bench) measure(name string, args ...string) (seconds, cpu, peak float64, err error) {
	cmd := exec.Command(name, args...)
	text, began := []byte(nil), time.Now()
	if text, err = cmd.CombinedOutput(); err != nil {
		return 0, 0, 0, fmt.Errorf("%s %v: %w\n%s", name, args, err, text)
	}
	seconds = time.Since(began).Seconds()
	cpu = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		peak = float64(u.Maxrss) / 1024
	}
	return seconds, cpu, peak, nil
}

// race runs ours and a peer's by turns; size makes the unit of seconds.
func (b *bench) race(name, unit string, size, bound float64, peerName, note string, ours, peer []string) error {
	i := Item{Name: name, Unit: unit, PeerName: peerName, Bound: bound, Note: note}
	var ourPeak, peerPeak float64
	ourCPU, peerCPU := math.Inf(1), math.Inf(1)
	for range *times {
		os.RemoveAll(b.path("ours"))
		s, cpu, m, err := b.measure(b.path(ours[0]), append(ours[1:], "--progress", "none", "--out", b.path("ours"))...)
		if err != nil {
			return err
		}
		i.Ours, ourPeak, ourCPU = max(i.Ours, size/s), max(ourPeak, m), min(ourCPU, cpu)
		if *python == "" {
			continue
		}
		os.RemoveAll(b.path("peer"))
		s, cpu, m, err = b.measure(*python, append([]string{*script}, append(peer, b.path("peer"))...)...)
		if err != nil {
			return err
		}
		i.Peer, peerPeak, peerCPU = max(i.Peer, size/s), max(peerPeak, m), min(peerCPU, cpu)
	}
	if i.Peer > 0 {
		i.Ratio = i.Ours / i.Peer
	}
	i.Note += fmt.Sprintf("; %d cores; processor time %.2f s, peer %.2f s; peak memory %.0f MB, peer %.0f MB", runtime.NumCPU(), ourCPU, peerCPU, ourPeak, peerPeak)
	b.items = append(b.items, i)
	return nil
}

var words = func() []string {
	r := rand.New(rand.NewPCG(3, 4))
	out := make([]string, 20000)
	for i := range out {
		w := make([]byte, 2+r.IntN(9))
		for j := range w {
			w[j] = "etaoinshrdlucmfwypvbgk"[min(r.IntN(22), r.IntN(22))]
		}
		out[i] = string(w)
	}
	return out
}()

func text(r *rand.Rand, n int) string {
	var s []byte
	for range n {
		s = append(append(s, words[min(r.IntN(len(words)), r.IntN(len(words)))]...), ' ')
	}
	return string(s)
}

// corpus writes JSON lines in the form of wiki-18 up to a size.
func (b *bench) corpus(name string, size int64) error {
	f, err := os.Create(b.path(name))
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	var pool []string
	for range 4000 {
		pool = append(pool, text(r, 100))
	}
	for i, n := 0, int64(0); n < size; i++ {
		p := pool[r.IntN(len(pool))]
		at := r.IntN(len(p) / 2)
		k, err := fmt.Fprintf(w, "{\"id\": \"%d\", \"contents\": \"\\\"Title of %d\\\"\\n%s – %s\"}\n", i, i, p[at:], p[:at])
		if err != nil {
			return err
		}
		n += int64(k)
	}
	return w.Flush()
}

func (b *bench) passages() error {
	if err := b.corpus("c.jsonl", int64(*mb)<<20); err != nil {
		return err
	}
	ours := []string{"prep", "--format", "passages", "--in", b.path("c.jsonl")}
	note := "JSON lines of 0.6 kB to Parquet with zstd, ids and contents checked; ours also hashes input and output"
	if err := b.race("passages JSONL to Parquet", "MB/s", float64(*mb), 10, "pandas", note, ours, []string{"pandas", b.path("c.jsonl")}); err != nil {
		return err
	}
	return b.race("passages JSONL to Parquet, streamed", "MB/s", float64(*mb), 0, "json+pyarrow", note, ours, []string{"passages", b.path("c.jsonl")})
}

func (b *bench) lens() error {
	r := rand.New(rand.NewPCG(5, 6))
	images := b.path("unpacked/images")
	if err := os.MkdirAll(images, 0o777); err != nil {
		return err
	}
	for i := range 500 {
		// A PNG's header and noise: nobody decodes it.
		data := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\x00\x00\x01\x00\x08\x02\x00\x00\x00\xd3\x10\x3f\x31"), make([]byte, 6000)...)
		for j := 40; j < len(data); j++ {
			data[j] = byte(r.Uint32())
		}
		if err := os.WriteFile(filepath.Join(images, fmt.Sprintf("%05d.png", i)), data, 0o666); err != nil {
			return err
		}
	}
	for _, answer := range []bool{false, true} {
		name, n := "lens.jsonl", 40000
		if answer {
			name, n = "lens-answers.jsonl", 15000
		}
		size, err := b.cache(name, n, answer, r)
		if err != nil {
			return err
		}
		what, note := "lens path repair", "entries of 1 kB with ten hits; ours also stores the images by content and writes the dataset"
		if answer {
			what, note = "lens path repair, with the engine's answers", "entries of 6 kB as the online logger writes them; as above"
		}
		ours := []string{"lens", "--cache", b.path(name), "--image-root", b.path("unpacked"), "--max-missing", "1"}
		if err := b.race(what, "MB/s", float64(size)/1e6, 10, "json", note, ours, []string{"lens", b.path(name), b.path("unpacked")}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) cache(name string, n int, answer bool, r *rand.Rand) (int64, error) {
	f, err := os.Create(b.path(name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	w := bufio.NewWriterSize(f, 1<<20)
	e := json.NewEncoder(w)
	for i := range n {
		var hits, matches []map[string]any
		for range 10 {
			hits = append(hits, map[string]any{"cached_title": text(r, 8), "cached_images_path": fmt.Sprintf("images/%05d.png", r.IntN(520))})
		}
		row := map[string]any{"data_id": fmt.Sprint("fvqa_train_", i), "cached_data": hits}
		if answer {
			for k := range 20 {
				matches = append(matches, map[string]any{"position": k, "title": text(r, 8), "link": fmt.Sprintf("https://www.example.org/%x", r.Uint64()),
					"thumbnail": fmt.Sprintf("https://tbn.example.com/images?q=%x%x", r.Uint64(), r.Uint64()), "thumbnail_width": 259, "thumbnail_height": 194})
			}
			row["serpapi_image_len_response"] = map[string]any{"search_metadata": map[string]any{"status": "Success"}, "visual_matches": matches}
		}
		if err := e.Encode(row); err != nil {
			return 0, err
		}
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	return f.Seek(0, io.SeekCurrent)
}

// questions writes FVQA's rows with our own writer and reads them back.
func (b *bench) questions() error {
	r := rand.New(rand.NewPCG(7, 8))
	f, err := os.Create(b.path("q.jsonl"))
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	e := json.NewEncoder(w)
	const n, bytes = 1500, 90000
	if err := os.MkdirAll(b.path("qimages"), 0o777); err != nil {
		return err
	}
	head, err := os.ReadFile(filepath.Join(filepath.Dir(*script), "..", "testdata", "images", "gray.jpg"))
	if err != nil {
		return err
	}
	for i := range n {
		data := slices.Concat(head, make([]byte, bytes))
		for j := len(head); j < len(data); j += 8 {
			x := r.Uint64()
			for k := 0; k < 8 && j+k < len(data); k++ {
				data[j+k] = byte(x >> (8 * k))
			}
		}
		name := b.path(fmt.Sprintf("qimages/%d.jpg", i))
		if err := os.WriteFile(name, data, 0o666); err != nil {
			return err
		}
		if err := e.Encode(map[string]any{"id": fmt.Sprint("fvqa_train_", i), "question": text(r, 12), "answers": []string{text(r, 2), text(r, 2)}, "image": name, "category": "search_required"}); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, _, _, err := b.measure(b.path("prep"), "--format", "jsonl", "--in", b.path("q.jsonl"), "--as", "mmsearch-r1", "--out", b.path("fvqa"), "--progress", "none"); err != nil {
		return err
	}
	in := b.path("fvqa/part-00000-of-00001.parquet")
	return b.race("questions with images from Parquet", "MB/s", n*bytes/1e6, 3, "pandas+pillow", "FVQA rows; images checked, hashed, stored by content; both sync",
		[]string{"prep", "--format", "verl", "--in", in}, []string{"questions", in})
}

// memory compares the peak over a small and a large corpus.
func (b *bench) memory() error {
	if *large == 0 {
		return nil
	}
	_, _, small, err := b.measure(b.path("prep"), "--format", "passages", "--in", b.path("c.jsonl"), "--out", b.path("small"), "--progress", "none")
	if err != nil {
		return err
	}
	if err := b.corpus("large.jsonl", int64(*large)<<20); err != nil {
		return err
	}
	s, _, big, err := b.measure(b.path("prep"), "--format", "passages", "--in", b.path("large.jsonl"), "--out", b.path("large"), "--progress", "none")
	if err != nil {
		return err
	}
	b.items = append(b.items, Item{"peak memory, " + fmt.Sprint(*large) + " MB of input", "MB", big, small, fmt.Sprint(*mb, " MB of input"), small / big, 0.8,
		fmt.Sprintf("the same job over both sizes; %.0f MB/s over the large one", float64(*large)/s)})
	return nil
}
