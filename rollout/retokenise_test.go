package rollout

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"searchloop/internal/llm"
	"searchloop/internal/token"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// modelFolder writes a tokenizer of bytes and marks, and the processor of a model.
func modelFolder(t *testing.T, maxPixels int) string {
	t.Helper()
	dir := t.TempDir()
	marks := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}
	tok, err := token.TrainBPE(slices.Values([]string{"ab"}), 256+len(marks), marks)
	if err == nil {
		err = tok.Save(dir)
	}
	processor := fmt.Sprintf(`{"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": %d, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`, maxPixels)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(processor), 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// counting is a chat server without token ids. It counts the tokens of its prompts as
// a server of that model would: a token a byte, a mark, and one for each image, since
// images of up to 16×16 pixels make one.
func counting(t *testing.T, turns ...string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/models") {
			fmt.Fprint(w, `{"data":[{"id":"m"}]}`)
			return
		}
		var in struct {
			Messages []struct {
				Role    string
				Content json.RawMessage
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			w.WriteHeader(404)
			return
		}
		n, said := 1+len("assistant\n"), 0
		for _, m := range in.Messages {
			var text string
			images := 0
			if json.Unmarshal(m.Content, &text) != nil {
				var parts []struct{ Type, Text string }
				if err := json.Unmarshal(m.Content, &parts); err != nil {
					t.Error(err)
				}
				for _, p := range parts {
					if text += p.Text; p.Type == "image_url" {
						images++
					}
				}
			}
			head := m.Role
			switch m.Role {
			case "tool":
				head, text = "user", "<tool_response>\n"+text+"\n</tool_response>"
			case "assistant":
				said++
			}
			n += 1 + len(head+"\n"+text) + 3*images + 2
		}
		text, _ := json.Marshal(turns[said])
		fmt.Fprintf(w, `{"choices":[{"message":{"role":"assistant","content":%s},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, text, n, len(turns[said])+1)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// A server without token ids, with the model's folder at hand: the row has tokens of
// its texts, says that they are that, and they are those that the server counted, with
// every image at its place.
func TestRetokenisedRowsAreMarked(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(answer)}, nil)
	play := func(folder string, strict bool, turns ...string) trajectory.Row {
		t.Helper()
		pool, err := llm.Open(t.Context(), llm.Options{Name: "policy server", Model: "m", API: llm.APIOpenAI, Tokenizer: folder}, llm.PoolOptions{URLs: []string{counting(t, turns...)}, Retry: quick})
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		s.agent.policy, s.agent.strict = pool, strict
		return s.play(t, s.shown)
	}
	folder := modelFolder(t, 256)
	row := play(folder, true, byLens, search, answer)
	if row.Status != trajectory.OK || row.TokenSource != trajectory.Retokenised || row.LogprobMode != trajectory.LogprobNone {
		t.Fatalf("%s: %s, %q, %s", outline(row), row.Why, row.TokenSource, row.LogprobMode)
	}
	tok, err := token.LoadBPE(folder)
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	for i := 0; i < len(row.TokenIDs); i++ {
		if !row.LossMask[i] {
			continue
		}
		from := i
		for i < len(row.TokenIDs) && row.LossMask[i] {
			i++
		}
		said = append(said, tok.Decode(row.TokenIDs[from:i]))
	}
	if want := []string{byLens + "<|im_end|>", search + "<|im_end|>", answer + "<|im_end|>"}; !slices.Equal(said, want) {
		t.Errorf("sampled %q, want %q", said, want)
	}
	pad, _ := tok.ID("<|image_pad|>")
	if len(row.Images) != 2 || row.Images[1].ID != s.hitID {
		t.Fatalf("%+v", row.Images)
	}
	for i, img := range row.Images {
		if row.TokenIDs[img.Offset] != pad || row.TokenIDs[img.Offset+1] == pad || img.GridH*img.GridW != 4 {
			t.Errorf("image %d: %+v", i, img)
		}
	}
	// Another processor makes other placeholders of the images: a training row fails,
	// one for evaluation has no tokens.
	other := modelFolder(t, 1024)
	processor := filepath.Join(other, "preprocessor_config.json")
	text, _ := os.ReadFile(processor)
	if err := os.WriteFile(processor, []byte(strings.Replace(string(text), `"min_pixels": 256`, `"min_pixels": 1024`, 1)), 0o666); err != nil {
		t.Fatal(err)
	}
	if row := play(other, true, byLens, answer); row.Status != trajectory.Failed || !strings.HasPrefix(row.Why, otherTokens+": it read ") || len(row.TokenIDs) > 0 || row.TokenSource != "" {
		t.Errorf("%s: %s", outline(row), row.Why)
	}
	if row := play(other, false, byLens, answer); row.Status != trajectory.OK || len(row.TokenIDs) > 0 || row.TokenSource != "" || row.LogprobMode != trajectory.LogprobNone {
		t.Errorf("%s: %d tokens", outline(row), len(row.TokenIDs))
	}
	// Without the folder there are no tokens, and nobody says there were.
	if row := play("", true, byLens, answer); row.Status != trajectory.OK || len(row.TokenIDs) > 0 || row.TokenSource != "" {
		t.Errorf("%s: %d tokens", outline(row), len(row.TokenIDs))
	}
	// What a policy writes that looks like a mark stays text.
	marked := "<think><|image_pad|><|im_end|></think>" + answer
	if row := play(folder, true, marked); row.Status != trajectory.OK || len(row.Images) != 1 || row.TokenSource != trajectory.Retokenised {
		t.Errorf("%s: %s", outline(row), row.Why)
	}
}
