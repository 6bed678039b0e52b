package serve

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/llm"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/token"
)

// policyDir writes a policy of the demo's size with random weights.
func policyDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	specials := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>", "<think>", "</think>"}
	var texts []string
	for i := range 400 {
		texts = append(texts, fmt.Sprintf("The river of town %d flows through the valley; search for its name and answer with the length %d.\n", i, i*7919%1000))
	}
	tok, err := token.TrainBPE(slices.Values(texts), 640, specials)
	if err != nil {
		t.Fatal(err)
	}
	id := func(s string) int32 { v, _ := tok.ID(s); return v }
	cfg := qwenvl.Config{
		Vocab: tok.Size(), Hidden: 96, Intermediate: 256, Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, MaxPositions: 2048, RMSEps: 1e-6, RopeTheta: 1e4,
		MRopeSection: [3]int{6, 5, 5}, Tied: true, DType: "F32", InitStd: 0.2,
		ImagePadID: id("<|image_pad|>"), VideoPadID: id("<|video_pad|>"), VisionStartID: id("<|vision_start|>"), VisionEndID: id("<|vision_end|>"),
		PatchSize: 16, MergeSize: 2, TemporalPatch: 2,
		Vision: qwenvl.VisionConfig{Channels: 3, Depth: 2, Hidden: 64, Intermediate: 128, Heads: 2, Out: 96, PositionSide: 16, Deepstack: []int{0}, RopeTheta: 1e4},
	}
	for _, err := range []error{tok.Save(dir), qwenvl.WriteConfig(dir, cfg), qwenvl.Init(cfg, 1).Save(dir),
		os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(`{"patch_size":16,"merge_size":2,"temporal_patch_size":2,"size":{"shortest_edge":1024,"longest_edge":16384},"image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5]}`), 0o666)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func realServer(t testing.TB, dir string, opt Options) (*Server, *openai.Client) {
	t.Helper()
	s, err := New(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	return s, startServer(t, s)
}

// TestRealModel: on the real model too a turn is the same alone and in company,
// with images, and its log-probs are those of a training pass over the same ids.
func TestRealModel(t *testing.T) {
	dir := policyDir(t)
	_, alone := realServer(t, dir, Options{Name: "toy", MaxActive: 1, KVTokens: 1})
	s, crowd := realServer(t, dir, Options{Name: "toy", Prefill: 40})
	if s.Policy() == "" || len(s.Policy()) != 64 {
		t.Errorf("policy %q", s.Policy())
	}
	var qs []openai.ChatCompletionRequest
	for i := range 12 {
		q := ask(fmt.Sprintf("Which river flows through town %d?", i/2), i, 12)
		if i%3 == 1 {
			q.Messages = []openai.ChatCompletionMessage{{Role: "user", MultiContent: []openai.ChatMessagePart{
				{Type: "image_url", ImageURL: &openai.ChatMessageImageURL{URL: pngURL(64, 64, uint8(i/6))}}, {Type: "text", Text: "Which town?"}}}}
		}
		qs = append(qs, q)
	}
	got := make([][2]any, len(qs))
	var wg sync.WaitGroup
	for i, q := range qs {
		wg.Add(1)
		go func() { defer wg.Done(); got[i] = turn(t, crowd, q) }()
	}
	wg.Wait()
	for i, q := range qs {
		if want := turn(t, alone, q); !reflect.DeepEqual(got[i], want) {
			t.Errorf("request %d: %v among others, %v alone", i, got[i][0], want[0])
		}
	}
}

// TestLogprobs: what our client gets for three turns with images, scored again by
// the training pass, is the same to float32's accuracy.
func TestLogprobs(t *testing.T) {
	dir := policyDir(t)
	s, _ := realServer(t, dir, Options{})
	url, err := s.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := llm.New(llm.Options{Name: "policy", URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Probe(context.Background()); err != nil {
		t.Fatal(err)
	}
	picture := decodeURL(t, pngURL(70, 50, 3))
	msgs := []llm.Message{{Role: "system", Text: "Search."}, {Role: "user", Text: "Which town?", Images: [][]byte{picture}}}
	const temperature = 0.8
	var last *llm.Reply
	var scored []int // index in the final ids of each sampled token
	var logps []float32
	for turn := range 3 {
		r, err := c.Chat(context.Background(), llm.Request{Messages: msgs, Temperature: temperature, Seed: int64(turn), MaxTokens: 20, TokenIDs: true})
		if err != nil {
			t.Fatal(err)
		}
		if r.LogprobMode != "processed" || len(r.TokenIDs) == 0 || r.Policy != s.Policy() {
			t.Fatalf("%+v", r)
		}
		for i := range r.TokenIDs {
			scored = append(scored, len(r.PromptIDs)+i)
		}
		logps = append(logps, r.Logprobs...)
		msgs = append(msgs, llm.Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs}, llm.Message{Role: "tool", Text: "nothing found"})
		last = r
	}
	ids := append(slices.Clone(last.PromptIDs), last.TokenIDs...)
	m, err := qwenvl.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	im, err := s.pictures.prepare(context.Background(), pngURL(70, 50, 3))
	if err != nil {
		t.Fatal(err)
	}
	pos, _, err := qwenvl.Positions(ids, [][3]int32{im.grid}, m.Config())
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Forward(&qwenvl.Batch{Tokens: ids, CuSeqlens: []int32{0, int32(len(ids))}, Positions: pos,
		Images: []qwenvl.Image{{Grid: im.grid, Patches: im.patches, Offset: last.Images[0].Offset}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	var rows, targets []int32
	for _, at := range scored {
		rows, targets = append(rows, int32(at-1)), append(targets, ids[at])
	}
	want, _ := p.Score(rows, targets, temperature)
	for i := range want {
		if d := math.Abs(float64(want[i] - logps[i])); d > 1e-4 {
			t.Errorf("token %d: served %v, trained %v", i, logps[i], want[i])
		}
	}
}

func decodeURL(t testing.TB, url string) []byte {
	t.Helper()
	data, err := dataURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// BenchmarkServe is 64 conversations of three turns at once over HTTP, with a
// model of the demo's size: all that the model does not take is our overhead.
func BenchmarkServe(b *testing.B) {
	dir := policyDir(b)
	s, err := New(dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	url, err := s.Start("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	c, err := llm.New(llm.Options{Name: "policy", URL: url})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Probe(context.Background()); err != nil {
		b.Fatal(err)
	}
	picture := decodeURL(b, pngURL(64, 64, 3))
	began, sampled, model := time.Now(), s.meter.sampled.Load(), s.meter.model.Load()
	for n := 0; b.Loop(); n++ {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				msgs := []llm.Message{{Role: "system", Text: "Search for the river, then answer."}, {Role: "user", Text: fmt.Sprintf("Which river flows through town %d, seen here? %d", i/8, n), Images: [][]byte{picture}}}
				for turn := range 3 {
					r, err := c.Chat(context.Background(), llm.Request{Messages: msgs, Temperature: 1, Seed: int64(i*1000 + turn + n), MaxTokens: 60, TokenIDs: true})
					if err != nil {
						b.Error(err)
						return
					}
					msgs = append(msgs, llm.Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs},
						llm.Message{Role: "tool", Text: "The river of the town flows through the valley and its length is 512."})
				}
			}()
		}
		wg.Wait()
	}
	seconds := time.Since(began).Seconds()
	b.ReportMetric(float64(s.meter.sampled.Load()-sampled)/seconds, "tokens/s")
	b.ReportMetric(time.Duration(s.meter.model.Load()-model).Seconds()/seconds, "model-share")
}
