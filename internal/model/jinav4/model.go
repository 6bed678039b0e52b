// Package jinav4 is jina-embeddings-v4 (arXiv 2506.18902): Qwen2.5-VL-3B with a
// low-rank adapter for each task, from which a text or an image gets one vector.
// Token ids of texts, or pictures, go in; vectors of length 1 come out.
//
// The states of the last layer, after its norm, are averaged: those of all tokens of a
// text, of an image those from <|vision_start|> to <|vision_end|>. Attention is
// causal, as in the backbone, so what the published prompt says after the image changes
// nothing and is left out. The adapter of one task is added to the weights in float32
// when the model is loaded. A folder is laid out as published: config.json, the
// backbone's weights, tokenizer.json, preprocessor_config.json, and adapters/ with
// every task's adapter in one file. The vectors for late interaction
// (multi_vector_projector) are not made.
//
// Sequences are packed one behind the other, never padded, and a sequence's vector is
// bit-identical alone or in any pack. It does not tokenise texts and does not train.
package jinav4

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/internal/cuda"
	"searchloop/internal/fail"
	"searchloop/internal/model/packs"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/picture"
	"searchloop/internal/tensor"
	"searchloop/internal/token"
)

const op = "load encoder"

// Architecture is what config.json of such a model calls it.
const Architecture = "JinaEmbeddingsV4Model"

// Retrieval is the task that the published code begins with.
const Retrieval = "retrieval"

// Prompts are the prefixes of queries and passages, as the published code has them:
// texts that are matched with each other are all queries.
func Prompts(task string) (query, passage string) {
	if task == "text-matching" {
		return "Query: ", "Query: "
	}
	return "Query: ", "Passage: "
}

// mostTokens is the length limit of the published code; the backbone's is larger.
const mostTokens = 32768

// The tokens of a pack. A sequence that is longer has a pack of its own.
const (
	packTokens = 4096 // of a device
	cpuTokens  = 1024
)

// Model is a loaded model, safe for concurrent use: calls take turns, and on a device
// they are joined.
type Model struct {
	be            *tensor.Shared
	m             *qwenvl.Model
	cfg           qwenvl.Config
	max           int
	before, after []int32 // the tokens around an image's
	look          picture.Processor
	rows          int                          // of a pack's products; 0: as many as there are tokens
	texts, images *packs.Line[qwenvl.Sequence] // of a device
	cutting       chan struct{}                // room for calls whose pictures are in memory as patches
}

// config is what config.json says beside what the backbone's does.
type config struct {
	Architectures []string `json:"architectures"`
	Tasks         []string `json:"task_names"`
	Pooling       string   `json:"single_vector_pool_strategy"`
}

// Load reads the model in dir with the adapter of a task into the memory of the
// processor.
func Load(dir, task string) (*Model, error) {
	return load(&tensor.Shared{Encoding: tensor.CPU.(tensor.Encoding)}, dir, task)
}

// LoadOn reads it into the memory of a device, where the texts of all calls are joined
// to packs, and the images. Close gives the memory back.
func LoadOn(on *tensor.Shared, dir, task string) (m *Model, err error) {
	on.Lock()
	defer on.Unlock()
	defer cuda.Guard(&err)
	if m, err = load(on, dir, task); err != nil {
		return nil, err
	}
	if c := &m.cfg; on.Widths() > 1 && (c.Hidden%8 != 0 || c.Intermediate%8 != 0 || c.HeadDim%8 != 0 || c.HeadDim > 128 || c.Hidden > 2048 ||
		c.Vision.Hidden%8 != 0 || c.Vision.Hidden/c.Vision.Heads%8 != 0 || c.Vision.Hidden/c.Vision.Heads > 128) {
		m.m.Free()
		return nil, fail.WithHint(fail.New(fail.Usage, op, dir, "width %d in heads of %d, and %d in the vision tower: on a GPU they must be multiples of 8, the width at most 2048 and a head 128",
			c.Hidden, c.HeadDim, c.Vision.Hidden), "use --device cpu")
	}
	m.start(packTokens)
	return m, nil
}

// start begins to join calls to packs of that many tokens.
func (m *Model) start(tokens int) {
	m.rows = tokens
	w := packs.Work[qwenvl.Sequence]{Dim: m.Dim(), Room: tokens, Most: max(1, tokens/8), Size: func(s qwenvl.Sequence) int { return len(s.Tokens) }, Begin: m.begin}
	m.texts, m.images = packs.Start(w), packs.Start(w)
}

// begin begins a pack of a device.
func (m *Model) begin(seqs []qwenvl.Sequence) (vecs []float32, wait func()) {
	m.be.Lock()
	defer m.be.Unlock()
	vecs, wait, err := m.m.Encode(seqs, m.room(seqs))
	if err != nil {
		panic("jinav4: sequences that were checked: " + err.Error())
	}
	return vecs, wait
}

// room is the number of rows of a pack's products. It must depend on each sequence
// alone: one that does not fit a pack is in one of its own.
func (m *Model) room(seqs []qwenvl.Sequence) int {
	rows := m.rows
	for _, s := range seqs {
		for m.rows > 0 && rows < len(s.Tokens) {
			rows += m.rows
		}
	}
	return rows
}

func load(be *tensor.Shared, dir, task string) (*Model, error) {
	path := filepath.Join(dir, "config.json")
	var c config
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &c)
	}
	switch {
	case err != nil:
		return nil, fail.Wrap(fail.BadInput, op, path, err)
	case !slices.Contains(c.Architectures, Architecture):
		return nil, fail.New(fail.BadInput, op, path, "architectures is %q; %s is known", c.Architectures, Architecture)
	case !slices.Contains(c.Tasks, task):
		return nil, fail.New(fail.BadInput, op, path, "no task %q; task_names lists %q", task, c.Tasks)
	case cmp.Or(c.Pooling, "mean") != "mean":
		return nil, fail.New(fail.BadInput, op, path, "single_vector_pool_strategy %q is not known; mean is", c.Pooling)
	}
	published, err := qwenvl.LoadConfig(dir)
	switch {
	case err != nil:
		return nil, err
	case !published.HasVision() || published.Family != qwenvl.Qwen2:
		return nil, fail.New(fail.BadInput, op, path, "the backbone is not Qwen2.5-VL: only Qwen2.5-VL is known")
	}
	m := &Model{be: be, cutting: make(chan struct{}, 16)}
	// What is small comes first: a folder that lacks something is found out at once.
	if err := m.readImages(dir, &published); err != nil {
		return nil, err
	}
	a, err := openAdapter(filepath.Join(dir, adapterFolder), task)
	if err != nil {
		return nil, err
	}
	m.m, err = qwenvl.LoadEncoder(be.Encoding, dir, isProjector, a.add)
	if err = errors.Join(err, a.close(err == nil)); err != nil {
		if m.m != nil {
			m.m.Free()
		}
		return nil, err
	}
	m.cfg = m.m.Config()
	m.max = min(mostTokens, cmp.Or(m.cfg.MaxPositions, mostTokens))
	return m, nil
}

// isProjector is a tensor of the vectors for late interaction.
func isProjector(name string) bool { return strings.HasPrefix(name, "multi_vector_projector.") }

// readImages reads how images are prepared and what stands around them, and compares
// that with config.json. The prompt is the published code's up to the image.
func (m *Model) readImages(dir string, c *qwenvl.Config) (err error) {
	if m.look, err = picture.LoadProcessor(dir); err != nil {
		return fail.WithHint(fail.Wrap(fail.BadInput, op, dir, err), "the folder must hold preprocessor_config.json")
	}
	p := &m.look
	if p.PatchSize != c.PatchSize || p.MergeSize != c.MergeSize || p.TemporalPatch != c.TemporalPatch {
		return fail.New(fail.BadInput, op, dir, "images are cut into patches of %d×%d×%d, %d merged; the vision tower takes %d×%d×%d, %d merged",
			p.TemporalPatch, p.PatchSize, p.PatchSize, p.MergeSize, c.TemporalPatch, c.PatchSize, c.PatchSize, c.MergeSize)
	}
	p.TemporalPatch = 1 // as the encoder's patches are
	words, err := token.LoadBPE(dir)
	if err != nil {
		return fail.Wrap(fail.BadInput, op, dir, err)
	}
	m.before, m.after = words.Encode("<|im_start|>user\n<|vision_start|>"), words.Encode("<|vision_end|>")
	if start := m.before[len(m.before)-1]; start != c.VisionStartID || len(m.after) != 1 || m.after[0] != c.VisionEndID {
		return fail.New(fail.BadInput, op, dir, "the tokenizer's <|vision_start|> and <|vision_end|> are %d and %d, config.json's %d and %d",
			start, m.after, c.VisionStartID, c.VisionEndID)
	}
	return nil
}

// Close gives a device's memory back. Nothing may be encoded any more.
func (m *Model) Close() (err error) {
	defer cuda.Guard(&err)
	if m.texts == nil {
		return nil
	}
	m.texts.Close()
	m.images.Close()
	m.be.Lock()
	defer m.be.Unlock()
	m.m.Free()
	return nil
}

// Dim is the length of a vector.
func (m *Model) Dim() int { return m.cfg.Hidden }

// Vocab is the number of token ids: 0 … Vocab-1 are allowed.
func (m *Model) Vocab() int { return m.cfg.Vocab }

// MaxTokens is the longest text.
func (m *Model) MaxTokens() int { return m.max }

// Encode returns the vectors of texts' token ids, [len(seqs), Dim]. An empty one, one
// longer than MaxTokens and an unknown id are errors that name the text (Row, from 1).
func (m *Model) Encode(seqs [][]int32) ([]float32, error) {
	list := make([]qwenvl.Sequence, len(seqs))
	for i, s := range seqs {
		if len(s) == 0 || len(s) > m.max {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: fmt.Errorf("%d tokens; a text has 1 to %d", len(s), m.max)}
		}
		list[i] = qwenvl.Sequence{Tokens: s, To: len(s)}
	}
	return m.encode(m.texts, list)
}

// Prepare brings a picture to the size that EncodeImages looks at; its vector stays
// the same.
func (m *Model) Prepare(p *picture.Picture) (*picture.Picture, error) {
	g, err := m.look.Grid(p.H, p.W)
	if err != nil {
		return nil, err
	}
	return p.Resize(int(g[1])*m.look.PatchSize, int(g[2])*m.look.PatchSize), nil
}

// EncodeImages returns the vectors of pictures, [len(pictures), Dim]. What cannot be
// prepared is an error that names the picture (Row, from 1).
func (m *Model) EncodeImages(pictures []*picture.Picture) ([]float32, error) {
	m.cutting <- struct{}{}
	defer func() { <-m.cutting }()
	list := make([]qwenvl.Sequence, len(pictures))
	for i, p := range pictures {
		grid, patches, err := m.look.Patches(p)
		if err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "encode", Row: int64(i + 1), Err: err}
		}
		tokens := slices.Concat(m.before, slices.Repeat([]int32{m.cfg.ImagePadID}, m.look.Tokens(grid)), m.after)
		list[i] = qwenvl.Sequence{Tokens: tokens, Grid: grid, Patches: patches, From: len(m.before) - 1, To: len(tokens)}
	}
	return m.encode(m.images, list)
}

func (m *Model) encode(line *packs.Line[qwenvl.Sequence], list []qwenvl.Sequence) ([]float32, error) {
	if err := m.m.Check(list); err != nil {
		return nil, err
	}
	if line != nil {
		return line.Do(list)
	}
	m.be.Lock()
	defer m.be.Unlock()
	out := make([]float32, 0, len(list)*m.Dim())
	for len(list) > 0 {
		n, tokens := 0, 0
		for n < len(list) && (n == 0 || tokens+len(list[n].Tokens) <= cpuTokens) {
			tokens += len(list[n].Tokens)
			n++
		}
		v, wait, err := m.m.Encode(list[:n], 0)
		if err != nil {
			return nil, err
		}
		wait()
		out, list = append(out, v...), list[n:]
	}
	return out, nil
}
