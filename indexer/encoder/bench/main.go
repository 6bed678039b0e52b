// Command bench measures the embedding of texts on the processor against
// sentence-transformers, and tokenising against Hugging Face's tokenizers, doing the
// same job with the same model (all-MiniLM-L6-v2 unless --model names another) on
// this machine (peer.py, beside it). Ours and the peer take turns, each loaded once;
// every figure is the best of --times turns, so that a busy machine hits both.
//
//	go run ./indexer/encoder/bench --python .venv/bin/python --out build/bench/encoder.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"searchloop/indexer/encoder"
	"searchloop/internal/bench"
	"searchloop/internal/gemm"
	"searchloop/internal/token"
)

var (
	python = flag.String("python", "", "Python with sentence-transformers and the package of the model; without: ours alone, of --model")
	out    = flag.String("out", "build/bench/encoder.json", "file of the figures")
	script = flag.String("script", "indexer/encoder/bench/peer.py", "the peer")
	model  = flag.String("model", "", "folder of a WordPiece encoder instead of all-MiniLM-L6-v2")
	times  = flag.Int("times", 5, "turns of each")
	texts  = flag.Int("texts", 512, "passages embedded in a turn")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run() error {
	dir, err := os.MkdirTemp("", "encoder-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := filepath.Base(*model)
	if *model == "" {
		name, *model = "all-MiniLM-L6-v2", filepath.Join(dir, "model")
		if text, err := exec.Command(*python, *script, "model", *model).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "bench: no model (%v), nothing measured\n%s", err, text)
			return bench.Write(*out, []bench.Row{})
		}
	}
	passages, err := write(dir)
	if err != nil {
		return err
	}
	var rows []bench.Row
	r := race{dir: dir, name: name, passages: passages}
	for _, f := range []func() (bench.Row, error){r.embed, r.tokens} {
		row, err := f()
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	return bench.Write(*out, rows)
}

// write makes passages of 110 to 230 words that the vocabulary has, writes them for
// the peer and returns them.
func write(dir string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(*model, token.File))
	if err != nil {
		return nil, err
	}
	var f struct {
		Model struct{ Vocab map[string]int }
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, err
	}
	plain := regexp.MustCompile("^[a-z]{2,12}$")
	words := slices.DeleteFunc(slices.Sorted(maps.Keys(f.Model.Vocab)), func(w string) bool { return !plain.MatchString(w) })
	r := rand.New(rand.NewPCG(1, 2))
	passages := make([]string, *texts)
	for i := range passages {
		var b strings.Builder
		for range 110 + r.IntN(121) {
			b.WriteString(words[r.IntN(len(words))] + " ")
		}
		passages[i] = b.String()
	}
	text, err := json.Marshal(passages)
	if err != nil {
		return nil, err
	}
	return passages, os.WriteFile(filepath.Join(dir, "texts.json"), text, 0o666)
}

type race struct {
	dir, name string
	passages  []string
}

// embed: texts in, vectors out, tokenising included.
func (r *race) embed() (bench.Row, error) {
	e, err := encoder.Load(*model, encoder.Override{})
	if err != nil {
		return bench.Row{}, err
	}
	words, err := token.LoadMarked(*model)
	if err != nil {
		return bench.Row{}, err
	}
	count := 0
	for _, p := range r.passages {
		count += len(words.Encode(p, e.Space().MaxTokens))
	}
	ctx := context.Background()
	sample, err := e.Passages(ctx, r.passages[:8])
	if err != nil {
		return bench.Row{}, err
	}
	row := bench.Row{Name: "embed texts, " + r.name, Unit: "tokens/s", PeerName: "sentence-transformers", Bound: 1,
		Note: fmt.Sprintf("%d passages of %d tokens on average, float32, tokenising included, %s; peer in batches of 32 sorted by length", len(r.passages), count/len(r.passages), gemm.Kernel())}
	check := func(first []byte) error {
		var want [][]float64
		if err := json.Unmarshal(first, &want); err != nil {
			return err
		}
		for i, w := range want {
			var dot, a, b float64
			for j, x := range w {
				y := float64(sample[i*len(w)+j])
				dot, a, b = dot+x*y, a+x*x, b+y*y
			}
			if cos := dot / math.Sqrt(a*b); !(cos > 0.99999) {
				return fmt.Errorf("passage %d: cosine %v to the peer's vector", i, cos)
			}
		}
		return nil
	}
	return row, r.turns(&row, "embed", []string{"sentence_transformers"}, float64(count), check, func() error {
		_, err := e.Passages(ctx, r.passages)
		return err
	})
}

// tokens: on one core each.
func (r *race) tokens() (bench.Row, error) {
	words, err := token.LoadMarked(*model)
	if err != nil {
		return bench.Row{}, err
	}
	many := slices.Repeat(r.passages, 1+4000/len(r.passages))
	count := 0
	for _, p := range r.passages {
		count += len(words.Encode(p, 0))
	}
	row := bench.Row{Name: "tokenise texts, WordPiece of " + r.name, Unit: "tokens/s-core", PeerName: "tokenizers", Bound: 1,
		Note: "whole words of the vocabulary, one thread"}
	text, err := json.Marshal(many)
	if err == nil {
		err = os.WriteFile(filepath.Join(r.dir, "texts.json"), text, 0o666)
	}
	if err != nil {
		return bench.Row{}, err
	}
	check := func(first []byte) error {
		var want [][]int32
		if err := json.Unmarshal(first, &want); err != nil {
			return err
		}
		for i, w := range want {
			if !slices.Equal(w, words.Encode(many[i], 0)) {
				return fmt.Errorf("passage %d: other ids than the peer's", i)
			}
		}
		return nil
	}
	return row, r.turns(&row, "tokens", []string{"tokenizers"}, float64(count*len(many)/len(r.passages)), check, func() error {
		for _, p := range many {
			words.Encode(p, 0)
		}
		return nil
	})
}

// turns fills in the figures of row: size units of work a turn. Without a peer, ours
// alone.
func (r *race) turns(row *bench.Row, job string, modules []string, size float64, check func(first []byte) error, ours func() error) error {
	missing := bench.Missing(*python, modules...)
	var p *peer
	if missing == "" {
		var err error
		if p, err = start(*python, *script, job, *model, filepath.Join(r.dir, "texts.json")); err != nil {
			return err
		}
		defer p.close()
		if err := check(p.first); err != nil {
			return err
		}
	}
	// What is told for a core is measured in the time that the processor gave.
	cost := func(wall, cpu float64) float64 { return wall }
	if strings.HasSuffix(row.Unit, "-core") {
		cost = func(wall, cpu float64) float64 { return cpu }
	}
	ourCPU, peerCPU := math.Inf(1), math.Inf(1)
	for range *times {
		began, used := time.Now(), bench.ProcessorTime()
		if err := ours(); err != nil {
			return err
		}
		wall, cpu := time.Since(began).Seconds(), (bench.ProcessorTime() - used).Seconds()
		row.Ours, ourCPU = max(row.Ours, size/cost(wall, cpu)), min(ourCPU, cpu)
		if p == nil {
			continue
		}
		var err error
		if wall, cpu, err = p.turn(); err != nil {
			return err
		}
		row.Peer, peerCPU = max(row.Peer, size/cost(wall, cpu)), min(peerCPU, cpu)
	}
	row.Note += fmt.Sprintf("; %d cores; processor time of a turn %.2f s", runtime.NumCPU(), ourCPU)
	if p == nil {
		row.Note += "; " + missing
	} else {
		row.Note += fmt.Sprintf(", peer %.2f s", peerCPU)
	}
	return nil
}
