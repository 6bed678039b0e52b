//go:build cuda

// Command embedbench measures embedding on a GPU beside transformers on the same card in
// the same run: 65,536 passages of about 170 tokens through a BERT of E5-base's shape
// with random weights, tokenising included, and 2,048 JPEG files through a vision tower
// of Jina-CLIP-v2's shape beside timm's; passages and images through a model of
// jina-embeddings-v4's shape beside transformers'. The fastest of three turns (of two).
//
//	go run -tags cuda ./indexer/embedbench --python python3 --out build/bench-embed.json
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"searchloop/indexer/encoder"
	"searchloop/internal/bench"
	gpu "searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

var (
	python = flag.String("python", "", "Python with torch and transformers, for the peer")
	script = flag.String("script", "indexer/embedbench/peer.py", "the peer's program")
	out    = flag.String("out", "build/bench-embed.json", "file of the figures")
	count  = flag.Int("passages", 65536, "passages embedded in a turn")
	times  = flag.Int("times", 3, "turns")
	only   = flag.String("only", "", "measure what this pattern matches")
)

func main() {
	flag.Parse()
	err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(fail.ExitCode(err))
}

func run() (err error) {
	defer gpu.Guard(&err)
	runtime.GOMAXPROCS(runtime.NumCPU())
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fail.Wrap(fail.Usage, "read --only", *only, err)
	}
	dir, err := os.MkdirTemp("", "embedbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	be, err := cuda.New(0)
	if err != nil {
		return err
	}
	m := &meter{be: be, dir: dir, model: filepath.Join(dir, "e5-base")}
	if slices.ContainsFunc(ways[:], func(w way) bool { return pattern.MatchString(w.name) }) {
		if err := m.texts(pattern); err != nil {
			return err
		}
	}
	if pattern.MatchString(vision) {
		if err := m.embedImages(); err != nil {
			return err
		}
	}
	if pattern.MatchString(jinav4) {
		if err := m.embedV4(); err != nil {
			return err
		}
	}
	if err := bench.Write(*out, m.rows); err != nil {
		return err
	}
	if err := bench.Table(os.Stdout, m.rows); err != nil {
		return err
	}
	for _, r := range m.rows {
		if r.Below() {
			err = fail.New(fail.Bound, "measure", r.Name, "%.3g times the peer; %.3g is promised", r.Ratio(), r.Bound)
		}
	}
	return err
}

// way is how products are taken: the name of the figure, its bound and what is said of it.
type way struct {
	name  string
	bound float64
	note  string
}

const embedding = "embed E5-base shape"

var ways = [...]way{
	tensor.OwnProducts:  {embedding + ", bf16", 1.4, "bfloat16"},
	tensor.E4M3Products: {embedding + ", fp8", 2, "most products in e4m3 (the peer's in bfloat16)"},
	tensor.ByteProducts: {embedding + ", int8", 2, "most products in integers of 8 bits (the peer's in bfloat16)"},
}

type meter struct {
	be         *cuda.Backend
	dir, model string
	passages   []string
	half       []float32 // vectors of the first passages in bfloat16
	rows       []bench.Row
}

// peak is what an H100 or H200 does in bfloat16, for the share of it.
const peak = 989e12

// texts measures the encoder of texts in those ways that pattern matches, and the peer.
func (m *meter) texts(pattern *regexp.Regexp) (err error) {
	if err := base.write(m.model); err != nil {
		return err
	}
	if m.passages, err = base.passages(filepath.Join(m.dir, "passages.json"), *count); err != nil {
		return err
	}
	for _, p := range []tensor.Products{tensor.OwnProducts, tensor.E4M3Products, tensor.ByteProducts} {
		if !pattern.MatchString(ways[p].name) {
			continue
		}
		if err := m.embed(p); err != nil {
			return err
		}
	}
	m.peers()
	return nil
}

// embed measures one way of taking products.
func (m *meter) embed(p tensor.Products) error {
	e, err := encoder.LoadOn(&tensor.Shared{Encoding: m.be}, m.model, encoder.Override{}, p)
	if err != nil {
		return err
	}
	least, err := m.check(e)
	if err != nil {
		return err
	}
	some, err := e.Passages(context.Background(), m.passages[:min(1024, len(m.passages))])
	if err != nil {
		return err
	}
	said := fmt.Sprintf("cosine to the CPU's float32 at least %.5f", least)
	if p == tensor.OwnProducts {
		m.half = some
	} else if m.half != nil {
		low, mean := cosines(some, m.half, e.Space().Dim)
		said += fmt.Sprintf(", to bfloat16's at least %.5f, %.5f on average", low, mean)
	}
	best := math.Inf(1)
	for range *times + 1 { // the first is not counted
		start := time.Now()
		if err := embedAll(e, m.passages); err != nil {
			return err
		}
		best = min(best, time.Since(start).Seconds())
		fmt.Fprintf(os.Stderr, "%.2f s\n", time.Since(start).Seconds())
	}
	tokens, flop, err := base.work(m.model, m.passages)
	if err != nil {
		return err
	}
	m.rows = append(m.rows, bench.Row{Name: ways[p].name, Unit: "passages/s", Ours: float64(len(m.passages)) / best, Bound: ways[p].bound,
		Note: fmt.Sprintf("%d passages of %d tokens, tokenising included (the peer's is not); %s, %.1f %% of 989 TFLOP/s; %s",
			len(m.passages), tokens/len(m.passages), ways[p].note, 100*flop/best/peak, said)})
	return e.Close()
}

// embedAll embeds passages as the embed job does: batches of 64, as many at once as the
// encoder likes.
func embedAll(e *encoder.Encoder, passages []string) error {
	var wait sync.WaitGroup
	var mu sync.Mutex
	var failed error
	room := make(chan struct{}, e.Parallel())
	for lo := 0; lo < len(passages); lo += 64 {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			if _, err := e.Passages(context.Background(), passages[lo:min(lo+64, len(passages))]); err != nil {
				mu.Lock()
				failed = err
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return failed
}

// check compares some vectors with those of the processor.
func (m *meter) check(e *encoder.Encoder) (least float64, err error) {
	host, err := encoder.Load(m.model, encoder.Override{})
	if err != nil {
		return 0, err
	}
	some := m.passages[:min(16, len(m.passages))]
	want, err := host.Passages(context.Background(), some)
	if err != nil {
		return 0, err
	}
	got, err := e.Passages(context.Background(), some)
	if err != nil {
		return 0, err
	}
	if least, _ = cosines(got, want, e.Space().Dim); !(least > 0.99) {
		return least, fail.New(fail.Bug, "compare", m.model, "a cosine of %v to the processor's vector", least)
	}
	return least, nil
}

// cosines are the least and the mean one of vectors of length 1.
func cosines(a, b []float32, dim int) (least, mean float64) {
	least = 1
	for i := 0; i < len(a); i += dim {
		var dot float64
		for j := i; j < i+dim; j++ {
			dot += float64(a[j]) * float64(b[j])
		}
		least, mean = min(least, dot), mean+dot*float64(dim)/float64(len(a))
	}
	return least, mean
}

// peers asks the peer for the same.
func (m *meter) peers() {
	why := bench.Missing(*python, "torch", "transformers")
	var v struct {
		Bare, All float64 // passages/s without and with tokenising
		Peer      string
	}
	if why == "" {
		cmd := exec.Command(*python, *script, "texts", m.model, filepath.Join(m.dir, "passages.json"))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			why = "peer not measured: " + err.Error()
		}
	}
	for i := range m.rows {
		r := &m.rows[i]
		if why != "" {
			r.Note += "; " + why
			continue
		}
		r.Peer, r.PeerName = v.Bare, v.Peer
		r.Note += fmt.Sprintf("; the peer with tokenising %.0f", v.All)
	}
}

// shape is that of a BERT.
type shape struct{ vocab, hidden, layers, heads, inner int }

var base = shape{30522, 768, 12, 12, 3072}

// word is the i-th entry of the vocabulary: letters, so that a word is one token, or a
// continuation.
func (s shape) word(i int) string {
	var b strings.Builder
	if i%5 == 4 {
		b.WriteString("##")
	}
	for n := i + 26*26*26; n > 0; n /= 26 { // at least four letters
		b.WriteByte('a' + byte(n%26))
	}
	return b.String()
}

// write makes the model's folder.
func (s shape) write(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	special := []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
	vocab := append([]string(nil), special...)
	for i := len(special); i < s.vocab; i++ {
		vocab = append(vocab, s.word(i))
	}
	config := fmt.Sprintf(`{"model_type": "bert", "architectures": ["BertModel"], "vocab_size": %d, "hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d, "intermediate_size": %d,
 "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0, "position_embedding_type": "absolute"}`,
		s.vocab, s.hidden, s.layers, s.heads, s.inner)
	for name, text := range map[string]string{"config.json": config, "vocab.txt": strings.Join(vocab, "\n") + "\n",
		"tokenizer_config.json": `{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}`,
		"searchloop.json":       `{"query_prefix": "", "passage_prefix": "", "max_tokens": 512}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	all, add, norms := weights()
	norm := func(name string) { norms(name, s.hidden) }
	linear := func(name string, out, in int) {
		add(name+".weight", 0, 1/math.Sqrt(float64(in)), out, in)
		add(name+".bias", 0, 0.1, out)
	}
	for name, n := range map[string]int{"word": s.vocab, "position": 512, "token_type": 2} {
		add("embeddings."+name+"_embeddings.weight", 0, 0.05, n, s.hidden)
	}
	norm("embeddings.LayerNorm")
	for i := range s.layers {
		at := fmt.Sprintf("encoder.layer.%d.", i)
		for _, n := range []string{"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"} {
			linear(at+n, s.hidden, s.hidden)
		}
		norm(at + "attention.output.LayerNorm")
		linear(at+"intermediate.dense", s.inner, s.hidden)
		linear(at+"output.dense", s.hidden, s.inner)
		norm(at + "output.LayerNorm")
	}
	return safetensors.Write(filepath.Join(dir, safetensors.FileName), *all, nil)
}

// passages makes texts of 60 to 280 tokens, 170 on average, with words of one and of
// several tokens, and writes them for the peer.
func (s shape) passages(path string, n int) ([]string, error) {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]string, n)
	for i := range out {
		var b strings.Builder
		for k := 58 + r.IntN(221); k > 0; k-- {
			w := s.word(5 + r.IntN(s.vocab-5))
			if tail, ok := strings.CutPrefix(w, "##"); ok && b.Len() > 0 {
				b.WriteString(tail)
				continue
			}
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(strings.TrimPrefix(w, "##"))
		}
		out[i] = b.String()
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	return out, os.WriteFile(path, text, 0o666)
}
