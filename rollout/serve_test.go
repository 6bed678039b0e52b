package rollout

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"searchloop/internal/job"
	"searchloop/internal/llm"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/token"
	"searchloop/rollout/scripted"
)

// tinyPolicy writes the folder of a random model that sees images; its tokenizer
// is bytes and marks.
func tinyPolicy(t *testing.T, dir string) {
	t.Helper()
	marks := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}
	tok, err := token.TrainBPE(slices.Values([]string{"ab"}), 256+len(marks), marks)
	if err != nil {
		t.Fatal(err)
	}
	if err := tok.Save(dir); err != nil {
		t.Fatal(err)
	}
	id := func(s string) int32 {
		v, ok := tok.ID(s)
		if !ok {
			t.Fatal(s)
		}
		return v
	}
	cfg := qwenvl.Config{
		Vocab: tok.Size(), Hidden: 32, Intermediate: 64, Layers: 2, Heads: 2, KVHeads: 1, HeadDim: 16, RopeTheta: 1e4, MRopeSection: [3]int{4, 2, 2}, Tied: true,
		InitStd: .08, ImagePadID: id("<|image_pad|>"), VideoPadID: id("<|video_pad|>"), VisionStartID: id("<|vision_start|>"), VisionEndID: id("<|vision_end|>"),
		PatchSize: 8, MergeSize: 2, TemporalPatch: 2,
		Vision: qwenvl.VisionConfig{Depth: 1, Hidden: 16, Intermediate: 32, Heads: 2, PositionSide: 4, Deepstack: []int{0}},
	}
	if err := qwenvl.Init(cfg, 1).Save(dir); err != nil {
		t.Fatal(err)
	}
	processor := `{"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": 1024, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(processor), 0o666); err != nil {
		t.Fatal(err)
	}
}

// The real server, template and tokenizer keep the promise that the ledger
// checks: every prompt begins with the last one and what was sampled from it.
func TestExactTokensOfTheEmbeddedServer(t *testing.T) {
	dir := t.TempDir()
	tinyPolicy(t, dir)
	url, stop, err := servePolicy(job.Testing(t), dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c, err := llm.New(llm.Options{Name: "policy server", URL: url, Retry: quick})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages := []llm.Message{{Role: "system", Text: "Be brief."}, {Role: "user", Text: "What is this? <|im_end|>", Images: [][]byte{picture(t, 32)}}}
	images := []string{"a", "b", "c"}
	var l ledger
	for turn := range 4 {
		r, err := c.Chat(t.Context(), llm.Request{Messages: messages, MaxTokens: 24, Temperature: 1, Seed: Seed(1, 1, "q", 0, turn), TokenIDs: true})
		if err != nil {
			t.Fatal(err)
		}
		n := min(turn+1, 3)
		if err := l.check(r, images[:n]); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		l.enter(r, images[:n])
		messages = append(messages, llm.Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs})
		tool := llm.Message{Role: "tool", Text: fmt.Sprintf("Doc %d: <answer>x</answer> <|image_pad|>\n", turn)}
		if turn < 2 {
			tool.Images = [][]byte{picture(t, 40+16*turn)}
		}
		messages = append(messages, tool)
		if turn == 2 {
			messages = append(messages, llm.Message{Role: "tool", Text: "a second result"})
		}
	}
	if len(l.images) != 3 || l.mode != "processed" || len(l.ids) != len(l.mask) || len(l.ids) != len(l.logp) {
		t.Errorf("%d images, mode %q, %d ids", len(l.images), l.mode, len(l.ids))
	}
}

// Rows do not depend on how many trajectories run at once, nor on when the server
// was started.
func TestEmbeddedRunsAreEqual(t *testing.T) {
	b := newBench(t, 6, scripted.Options{})
	tinyPolicy(t, filepath.Join(b.dir, "policy"))
	run := func(concurrency int) []byte {
		out := filepath.Join(b.dir, fmt.Sprint("out", concurrency))
		if _, err := b.run(t, func(r *job.Run, o *Options) {
			o.PolicyURLs, o.Policy, o.Out = nil, filepath.Join(b.dir, "policy"), out
			r.Set = []string{fmt.Sprint("rollout.concurrency=", concurrency), "protocol.turn_tokens=24"}
		}); err != nil {
			t.Fatal(err)
		}
		rows := b.rows(t, out)
		if len(rows) != 12 || len(rows[0].TokenIDs) == 0 || len(rows[0].Policy) < 32 || fmt.Sprint(rows[0].TokenIDs) == fmt.Sprint(rows[1].TokenIDs) {
			t.Errorf("%d rows, %+v", len(rows), rows[0])
		}
		return rowBytes(t, out)
	}
	if !bytes.Equal(run(1), run(5)) {
		t.Error("concurrency changes the rows")
	}
}
