package serve

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/picture"
	"searchloop/internal/token"
)

// toy is a model whose logits are a hash of everything that it has read: tokens,
// positions and pixels. One wrong token, position or reused cache changes the turn.
type toy struct {
	vocab  int
	pad    int32
	sharp  float64 // spread of the logits
	delay  time.Duration
	before func(steps []Step) error // called in each Extend

	endless bool // never ends a turn
	end     int32

	calls, read atomic.Int64
}

type toyCache struct {
	t        *toy
	state    []uint64 // after each token
	capacity int
}

func (t *toy) Spec() Spec {
	return Spec{Vocab: t.vocab, Context: 1024, Images: true, Merge: 2, PatchDim: 3 * 2 * 4 * 4, ImageMarks: []int32{t.pad}, BytesPerToken: 1024}
}

func (t *toy) NewCache(capacity int) Cache { return &toyCache{t: t, capacity: capacity} }
func (c *toyCache) Len() int               { return len(c.state) }
func (c *toyCache) Truncate(n int)         { c.state = c.state[:n:n] }
func (c *toyCache) Release()               { c.state = nil }
func (c *toyCache) Fork() Cache {
	return &toyCache{c.t, append([]uint64(nil), c.state...), c.capacity}
}

func (t *toy) Positions(tokens []int32, grids [][3]int32) ([3][]int32, int32, error) {
	cfg := qwenvl.Config{ImagePadID: t.pad, MergeSize: 2, Vision: qwenvl.VisionConfig{Depth: 1}}
	return qwenvl.Positions(tokens, grids, cfg)
}

func (t *toy) Extend(steps []Step) ([][]float32, error) {
	t.calls.Add(1)
	if t.before != nil {
		if err := t.before(steps); err != nil {
			return nil, err
		}
	}
	if t.delay > 0 {
		time.Sleep(t.delay)
	}
	seen := map[Cache]bool{}
	out := make([][]float32, len(steps))
	for i, s := range steps {
		c := s.Cache.(*toyCache)
		if seen[c] || len(s.Tokens) == 0 || len(c.state)+len(s.Tokens) > c.capacity {
			return nil, errors.New("toy: a step without tokens, a cache twice, or a full one")
		}
		seen[c] = true
		t.read.Add(int64(len(s.Tokens)))
		pixels := map[int]uint64{}
		for _, im := range s.Images {
			h := uint64(1)
			for _, v := range im.Patches {
				h = mix(h ^ uint64(math.Float32bits(v)))
			}
			if want := int(im.Grid[0] * im.Grid[1] * im.Grid[2]); len(im.Patches) != want*96 || s.Tokens[im.Offset] != t.pad {
				return nil, errors.New("toy: wrong image")
			}
			pixels[int(im.Offset)] = h
		}
		h := uint64(7)
		if n := len(c.state); n > 0 {
			h = c.state[n-1]
		}
		for k, id := range s.Tokens {
			if id == t.pad && pixels[k] == 0 && (k == 0 || s.Tokens[k-1] != t.pad) {
				return nil, errors.New("toy: image tokens without their image")
			}
			h = mix(h ^ uint64(id)<<32 ^ uint64(s.Positions[0][k])<<20 ^ uint64(s.Positions[1][k])<<10 ^ uint64(s.Positions[2][k]) ^ pixels[k])
			c.state = append(c.state, h)
		}
		out[i] = make([]float32, t.vocab)
		for v := range out[i] {
			out[i][v] = float32(t.sharp * (float64(mix(h+uint64(v)*0x9e3779b9)>>40)/(1<<24) - 0.5))
		}
		if t.endless {
			out[i][t.pad], out[i][t.end] = -1000, -1000
		}
	}
	return out, nil
}

func chatTokenizer(t testing.TB) *token.BPE {
	t.Helper()
	tok, err := token.LoadBPE("../chat/testdata")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// toyServer is a server of a toy, with its client.
func toyServer(t testing.TB, opt Options, change func(*toy)) (*Server, *toy, *openai.Client) {
	t.Helper()
	tok := chatTokenizer(t)
	pad, _ := tok.ID("<|image_pad|>")
	end, _ := tok.ID("<|im_end|>")
	m := &toy{vocab: tok.Size(), pad: pad, end: end, sharp: 12}
	if change != nil {
		change(m)
	}
	if opt.Name == "" {
		opt.Name = "toy"
	}
	half := [3]float32{.5, .5, .5}
	s, err := newServer(&parts{model: m, tok: tok, end: []int32{end}, policy: "abc123", name: "toy",
		processor: picture.Processor{PatchSize: 4, MergeSize: 2, TemporalPatch: 2, MinPixels: 64, MaxPixels: 4096, Mean: half, Std: half}}, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s, m, startServer(t, s)
}

func startServer(t testing.TB, s *Server) *openai.Client {
	t.Helper()
	url, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil && fail.KindOf(err) != fail.Interrupted {
			t.Error(err)
		}
	})
	c := openai.DefaultConfig("none")
	c.BaseURL = url
	c.HTTPClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}
	return openai.NewClientWithConfig(c)
}

func baseURL(s *Server, t testing.TB) string {
	t.Helper()
	url, err := s.Start("127.0.0.1:0") // a second listener of the same server
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(url, "/v1")
}

func ask(text string, seed, max int) openai.ChatCompletionRequest {
	return openai.ChatCompletionRequest{Model: "toy", Messages: []openai.ChatCompletionMessage{{Role: "user", Content: text}}, Seed: &seed, MaxCompletionTokens: max}
}

func randomText(r *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString([]string{"river ", "town ", "the ", "é", "7", "\n"}[r.IntN(6)])
	}
	return b.String()
}
