// Command bench measures prep and lens against Python doing the same job on this
// machine (peer.py, beside it). Inputs are made in a folder that is removed
// afterwards; every figure is of the median of --times turns of ours and the peer's,
// so that a busy machine hits both.
//
//	go run ./corpus/bench --python .venv/bin/python --out build/bench/corpus.json
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"searchloop/internal/bench"
)

var (
	python = flag.String("python", "", "Python with pandas, pyarrow and pillow; without: ours alone")
	out    = flag.String("out", "build/bench/corpus.json", "file of the figures")
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
	if err := bench.Build(dir, "./jobs/prep", "./jobs/lens"); err != nil {
		return err
	}
	b := races{dir: dir, missing: bench.Missing(*python, "pandas", "pyarrow", "PIL")}
	for _, f := range []func() error{b.passages, b.lens, b.questions, b.memory} {
		if err := f(); err != nil {
			return err
		}
		if err := bench.Write(*out, b.rows); err != nil { // what there is by now
			return err
		}
	}
	return nil
}

type races struct {
	dir     string
	missing string // what the peer lacks
	turns   int    // run so far
	rows    []bench.Row
}

func (b *races) path(name string) string { return filepath.Join(b.dir, name) }

// race runs ours and a peer's by turns; size makes the unit of seconds. The
// figures are those of the turn whose ratio is the median: other work on the
// machine hits both sides of a turn. The note has the ratio of processor time,
// too, which other work changes less.
func (b *races) race(name, unit string, size, bound float64, peerName, note string, ours, peer []string) error {
	type turn struct{ ours, peer bench.Used }
	var turns []turn
	for range *times {
		// What earlier turns wrote stays: ext4 passes over inodes that were freed a
		// moment ago, which makes a new file several times as expensive.
		b.turns++
		to := b.path(fmt.Sprint("out-", b.turns))
		var t turn
		var err error
		unix.Sync() // nobody waits for what others wrote
		if t.ours, _, err = bench.Run(b.path(ours[0]), append(ours[1:], "--progress", "none", "--out", to)...); err != nil {
			return err
		}
		if b.missing == "" {
			unix.Sync()
			if t.peer, _, err = bench.Run(*python, append([]string{*script}, append(peer, to+"-peer")...)...); err != nil {
				return err
			}
		}
		turns = append(turns, t)
	}
	ratio := func(t turn) float64 { return max(t.peer.Seconds, 1e-9) / t.ours.Seconds }
	slices.SortFunc(turns, func(x, y turn) int { return cmp.Compare(ratio(x), ratio(y)) })
	t := turns[len(turns)/2]
	row := bench.Row{Name: name, Unit: unit, Ours: size / t.ours.Seconds, PeerName: peerName, Bound: bound}
	note += fmt.Sprintf("; %d cores, load %s; processor time %.2f s, peak memory %.0f MB; ", runtime.NumCPU(), load(), t.ours.CPU, t.ours.Peak)
	if b.missing != "" {
		note += b.missing
	} else {
		note += fmt.Sprintf("peer %.2f s (%.1f times), %.0f MB; seconds %.2f and %.2f", t.peer.CPU, t.peer.CPU/max(t.ours.CPU, 1e-9), t.peer.Peak, t.ours.Seconds, t.peer.Seconds)
		row.Peer = size / t.peer.Seconds
	}
	row.Note = note
	b.rows = append(b.rows, row)
	return nil
}

// load is how many threads wanted a core over the last minute, the benchmark's own
// among them.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
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

// text is n words, the frequent ones as frequent as in a language (Zipf's law).
func text(r *rand.Rand, n int) string {
	z := rand.NewZipf(r, 1.07, 2.7, uint64(len(words)-1))
	var s []byte
	for range n {
		s = append(append(s, words[z.Uint64()]...), ' ')
	}
	return string(s)
}

// corpus writes JSON lines in the form of wiki-18 up to a size.
func (b *races) corpus(name string, size int64) error {
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

func (b *races) passages() error {
	if err := b.corpus("c.jsonl", int64(*mb)<<20); err != nil {
		return err
	}
	ours := []string{"prep", "--format", "passages", "--in", b.path("c.jsonl")}
	note := "JSON lines of 0.6 kB to Parquet with Snappy, ids and contents checked; SHA-256 of input and output; both sync"
	if err := b.race("passages JSONL to Parquet", "MB/s", float64(*mb), 10, "pandas", note, ours, []string{"pandas", b.path("c.jsonl")}); err != nil {
		return err
	}
	return b.race("passages JSONL to Parquet, streamed", "MB/s", float64(*mb), 0, "json+pyarrow", note, ours, []string{"passages", b.path("c.jsonl")})
}

func (b *races) lens() error {
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
		what, note := "lens path repair", "entries of 1 kB with ten hits; images stored by content, Parquet of the entries, SHA-256 of input and outputs; both sync"
		if answer {
			what, note = "lens path repair, with the engine's answers", "entries of 6 kB as the online logger writes them; as above"
		}
		ours := []string{"lens", "--cache", b.path(name), "--image-root", b.path("unpacked"), "--max-missing", "1"}
		if err := b.race(what, "MB/s", float64(size)/1e6, 10, "json+pyarrow", note, ours, []string{"lens", b.path(name), b.path("unpacked")}); err != nil {
			return err
		}
		// What the whole job costs beside the least that repairs a cache.
		if err := b.race(what, "MB/s", float64(size)/1e6, 0, "json, paths alone", "the peer writes no images, no Parquet, no sums", ours, []string{"paths", b.path(name), b.path("unpacked")}); err != nil {
			return err
		}
	}
	return nil
}

func (b *races) cache(name string, n int, answer bool, r *rand.Rand) (int64, error) {
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
func (b *races) questions() error {
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
	if _, _, err := bench.Run(b.path("prep"), "--format", "jsonl", "--in", b.path("q.jsonl"), "--as", "mmsearch-r1", "--out", b.path("fvqa"), "--progress", "none"); err != nil {
		return err
	}
	in := b.path("fvqa/part-00000-of-00001.parquet")
	return b.race("questions with images from Parquet", "MB/s", n*bytes/1e6, 3, "pandas+pillow", "FVQA rows; images checked, hashed, stored by content; both sync",
		[]string{"prep", "--format", "verl", "--in", in}, []string{"questions", in})
}

// memory compares the peak over a small and a large corpus.
func (b *races) memory() error {
	if *large == 0 {
		return nil
	}
	small, _, err := bench.Run(b.path("prep"), "--format", "passages", "--in", b.path("c.jsonl"), "--out", b.path("small"), "--progress", "none")
	if err != nil {
		return err
	}
	if err := b.corpus("large.jsonl", int64(*large)<<20); err != nil {
		return err
	}
	big, _, err := bench.Run(b.path("prep"), "--format", "passages", "--in", b.path("large.jsonl"), "--out", b.path("large"), "--progress", "none")
	if err != nil {
		return err
	}
	b.rows = append(b.rows, bench.Row{Name: fmt.Sprintf("peak memory, %d MB of input", *large), Unit: "MB", Ours: big.Peak, Peer: small.Peak, PeerName: fmt.Sprint(*mb, " MB of input"), Bound: 0.8,
		Note: fmt.Sprintf("the same job over both sizes; %.0f MB/s over the large one, processor time %.0f s, load %s", float64(*large)/big.Seconds, big.CPU, load())})
	return nil
}
