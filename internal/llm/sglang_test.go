package llm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/token"
)

// modelFolder writes the tokenizer (bytes and marks) and the processor of a model.
func modelFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	marks := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"}
	tok, err := token.TrainBPE(slices.Values([]string{"ab"}), 256+len(marks), marks)
	if err == nil {
		err = tok.Save(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	processor := `{"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 256, "max_pixels": 1024, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}`
	if err := os.WriteFile(filepath.Join(dir, "preprocessor_config.json"), []byte(processor), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir
}

func square(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewRGBA(image.Rect(0, 0, size, size))); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sglang serves SGLang's addresses in its documented forms; answer writes the
// response to a request of /generate.
func sglang(t *testing.T, dir string, answer func(w http.ResponseWriter, in generateRequest)) (*Session, *[]generateRequest) {
	t.Helper()
	var got []generateRequest
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"object":"list","data":[{"id":"qwen3vl","object":"model","created":1,"owned_by":"sglang","root":"qwen3vl","max_model_len":160000}]}`)
	})
	mux.HandleFunc("GET /get_model_info", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"model_path": dir, "tokenizer_path": dir, "is_generation": true})
	})
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var in generateRequest
		d := json.NewDecoder(r.Body)
		d.DisallowUnknownFields()
		if err := d.Decode(&in); err != nil {
			t.Error(err)
		}
		got = append(got, in)
		answer(w, in)
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	p, err := Open(t.Context(), Options{Name: "policy server", API: APIAuto}, PoolOptions{URLs: []string{s.URL}, Retry: retry.Options{Base: 1, Cap: 1, Tries: 1, Open: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	session := p.Session("q")
	t.Cleanup(session.Close)
	return session, &got
}

// generated is a response as SGLang 0.5 writes it.
func generated(prompt int, ids []int32, finish string) string {
	var list []string
	for i, id := range ids {
		list = append(list, fmt.Sprintf("[%g,%d,null]", -float64(i+1)/8, id))
	}
	out, _ := json.Marshal(ids)
	return fmt.Sprintf(`{"text":"?","output_ids":%s,"meta_info":{"id":"a1","finish_reason":%s,"prompt_tokens":%d,"weight_version":"default","total_retractions":0,
		"input_token_logprobs":[],"output_token_logprobs":[%s],"completion_tokens":%d,"cached_tokens":1,"cached_tokens_details":null,"e2e_latency":0.1}}`, out, finish, prompt, strings.Join(list, ","), len(ids))
}

func TestSGLangTakesAndGivesTokens(t *testing.T) {
	dir := modelFolder(t)
	tok, err := token.LoadBPE(dir)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := tok.ID("<|im_end|>")
	said := append(tok.EncodeOrdinary("<tool_call>{}</tool_call>"), end)
	s, got := sglang(t, dir, func(w http.ResponseWriter, in generateRequest) {
		if in.Sampling.Seed == nil {
			t.Error("no seed")
		}
		io.WriteString(w, generated(len(in.InputIDs), said, fmt.Sprintf(`{"type":"stop","matched":%d}`, end)))
	})
	req := Request{Messages: []Message{{Role: "system", Text: "Be brief."}, {Role: "user", Text: "What is this? <|im_end|>", Images: [][]byte{square(t, 32), square(t, 16)}}},
		Temperature: 0.5, TopK: 7, MaxTokens: 30, Seed: 11, TokenIDs: true, Tools: []Tool{{Name: "f", Parameters: json.RawMessage(`{}`)}}}
	r, err := s.Chat(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if r.Text != "<tool_call>{}</tool_call>" || r.Finish != "stop" || r.LogprobMode != "processed" || !slices.Equal(r.TokenIDs, said) || len(r.Logprobs) != len(said) || r.PromptTokens != len(r.PromptIDs) || r.Attempts != 1 {
		t.Errorf("%+v", r)
	}
	in := (*got)[0]
	if !slices.Equal(in.InputIDs, r.PromptIDs) || len(in.ImageData) != 2 || !strings.HasPrefix(in.ImageData[0], "data:image/png;base64,") || !in.Logprob ||
		in.Sampling.Temperature != 0.5 || in.Sampling.TopP != 1 || in.Sampling.TopK != 7 || in.Sampling.MaxNew != 30 || *in.Sampling.Seed != 11 {
		t.Errorf("sent %+v", in)
	}
	pad, _ := tok.ID("<|image_pad|>")
	if fmt.Sprint(r.Images[0].Grid, r.Images[1].Grid) != "[1 4 4] [1 2 2]" || r.PromptIDs[r.Images[0].Offset] != pad || r.PromptIDs[r.Images[0].Offset+4] == pad || r.PromptIDs[r.Images[1].Offset] != pad {
		t.Errorf("images %+v", r.Images)
	}
	// The next prompt begins with this one and what was sampled.
	req.Messages = append(req.Messages, Message{Role: "assistant", Text: r.Text, TokenIDs: r.TokenIDs}, Message{Role: "tool", Text: "none"})
	next, err := s.Chat(t.Context(), req)
	if err != nil || !slices.Equal(next.PromptIDs[:len(r.PromptIDs)+len(said)], append(slices.Clone(r.PromptIDs), said...)) {
		t.Errorf("%+v %v", next, err)
	}
	// So does one that goes on inside the turn; its text is cut by the same tokenizer.
	req.Messages[len(req.Messages)-1] = Message{Role: Inline, Text: "<information>x</information>"}
	req.Stop = []string{"</search>"}
	inside, err := s.Chat(t.Context(), req)
	if err != nil || !strings.HasSuffix(tok.Decode(inside.PromptIDs), "<|im_end|><information>x</information>") || !(*got)[2].Sampling.NoStopTrim {
		t.Errorf("%q %v", tok.Decode(inside.PromptIDs), err)
	}
	if text, err := s.Cut(t.Context(), "öabc", 3); err != nil || text != "öa" {
		t.Errorf("%q %v", text, err)
	}
}

func TestSGLangOddReplies(t *testing.T) {
	dir := modelFolder(t)
	good := []int32{64, 65} // a and b
	stop := `{"type":"stop","matched":"b"}`
	var body string
	status := 200
	n := 0 // tokens of the prompt
	s, _ := sglang(t, dir, func(w http.ResponseWriter, in generateRequest) {
		n = len(in.InputIDs)
		w.WriteHeader(status)
		tail, _ := json.Marshal(in.InputIDs[n-5:])
		body = strings.ReplaceAll(body, "TAIL", strings.Trim(string(tail), "[]"))
		io.WriteString(w, strings.ReplaceAll(body, "-7", fmt.Sprint(n)))
	})
	ask := func() (*Reply, *retry.Fault) {
		r, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "q"}}, Stop: []string{"b"}})
		return r, FaultOf(err)
	}
	for name, c := range map[string]struct {
		body, want string // finish and text, or class
		status     int
	}{
		"stop text":           {body: generated(-7, good, stop), want: "stop ab"},
		"length":              {body: generated(-7, good, `{"type":"length","length":2}`), want: "length ab"},
		"finish as a text":    {body: generated(-7, good, `"length"`), want: "length ab"},
		"a batch of one":      {body: "[" + generated(-7, good, stop) + "]", want: "stop ab"},
		"prompt's end first":  {body: strings.Replace(generated(-7, good, stop), `"output_ids":[64,65]`, `"output_ids":[TAIL,64,65]`, 1), want: "stop ab"},
		"and no log-probs":    {body: `{"output_ids":[TAIL,64],"meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":-7,"completion_tokens":1}}`, want: "stop a"},
		"other ids first":     {body: strings.Replace(generated(-7, good, stop), `"output_ids":[64,65]`, `"output_ids":[1,64,65]`, 1), want: NotJSON},
		"more are counted":    {body: strings.Replace(generated(-7, good, stop), `"completion_tokens":2`, `"completion_tokens":3`, 1), want: NotJSON},
		"end mark and stop":   {body: generated(-7, []int32{64, 65}, `{"type":"stop","matched":65}`), want: "stop a"},
		"no log-probs":        {body: `{"output_ids":[64],"meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":-7}}`, want: "stop a"},
		"another prompt":      {body: generated(3, good, stop), want: "prompt"},
		"unfinished":          {body: generated(-7, good, "null"), want: NotJSON},
		"aborted":             {body: generated(-7, good, `{"type":"abort","message":"worker died"}`), want: Aborted},
		"too long, aborted":   {body: generated(-7, nil, `{"type":"abort","message":"x"}`), want: Empty},
		"no tokens":           {body: generated(-7, nil, stop), want: Empty},
		"log-prob null":       {body: strings.Replace(generated(-7, good, stop), "[-0.125,64,null]", "[null,64,null]", 1), want: NotJSON},
		"log-prob above 0":    {body: strings.Replace(generated(-7, good, stop), "[-0.125,64,null]", "[0.5,64,null]", 1), want: NotJSON},
		"ids differ":          {body: strings.Replace(generated(-7, good, stop), "[64,65]", "[64,66]", 1), want: NotJSON},
		"one log-prob less":   {body: strings.Replace(generated(-7, good, stop), "[-0.125,64,null],", "", 1), want: NotJSON},
		"nothing":             {body: "", want: NotJSON},
		"null":                {body: "null", want: NoChoices},
		"a page":              {body: "<html>", want: HTML},
		"half":                {body: generated(-7, good, stop)[:90], want: NotJSON},
		"error object":        {body: `{"error":{"message":"engine restarts"}}`, want: ErrorObject},
		"too long, SGLang":    {body: `{"error":{"message":"The input (12 tokens) is longer than the model's context length (10 tokens)."}}`, status: 400, want: ContextLength},
		"too long with a 200": {body: `{"error":{"message":"Input length exceeds the context length"}}`, want: ContextLength},
		"500":                 {body: "x", status: 500, want: "http 500"},
	} {
		body, status = c.body, max(c.status, 200)
		got := ""
		r, f := ask()
		if f != nil {
			got = f.Class
		} else {
			got = r.Finish + " " + r.Text
		}
		if got != c.want {
			t.Errorf("%s: %s (%v), want %s", name, got, f, c.want)
		}
	}
}

func TestSGLangWithoutSeeds(t *testing.T) {
	s, got := sglang(t, modelFolder(t), func(w http.ResponseWriter, in generateRequest) {
		if in.Sampling.Seed != nil {
			w.WriteHeader(400)
			io.WriteString(w, `{"error":{"message":"SamplingParams.__init__() got an unexpected keyword argument 'sampling_seed'"}}`)
			return
		}
		io.WriteString(w, generated(len(in.InputIDs), []int32{64}, `{"type":"length","length":1}`))
	})
	for range 2 {
		if r, err := s.Chat(t.Context(), Request{Messages: []Message{{Role: "user", Text: "q"}}}); err != nil || r.Text != "a" {
			t.Error(r, err)
		}
	}
	if len(*got) != 3 {
		t.Errorf("%d calls: the refusal must be remembered", len(*got))
	}
}

func TestWhichAPI(t *testing.T) {
	dir := modelFolder(t)
	for name, c := range map[string]struct {
		api, tokenizer string
		info           string // what /get_model_info says; "" for 404
		native         bool
		tokens         bool
		kind           fail.Kind
	}{
		"OpenAI":                 {api: APIOpenAI, info: dir},
		"auto, not SGLang":       {api: APIAuto},
		"auto, a page":           {api: APIAuto, info: "<html>"},
		"auto, folder here":      {api: APIAuto, info: dir, native: true, tokens: true},
		"auto, folder elsewhere": {api: APIAuto, info: "/nowhere"},
		"auto, folder given":     {api: APIAuto, info: "/nowhere", tokenizer: dir, native: true, tokens: true},
		"images of vLLM":         {api: APIOpenAI, tokenizer: dir, tokens: true},
		"forced":                 {api: APISGLang, info: dir, native: true, tokens: true},
		"forced, not SGLang":     {api: APISGLang, tokenizer: dir, kind: fail.Usage},
		"forced, no folder":      {api: APISGLang, info: "/nowhere", kind: fail.Usage},
		"no tokenizer there":     {api: APISGLang, info: dir, tokenizer: t.TempDir(), kind: fail.BadInput},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path == "/v1/models":
				io.WriteString(w, `{"data":[{"id":"m"}]}`)
			case r.URL.Path == "/get_model_info" && strings.HasPrefix(c.info, "<"):
				io.WriteString(w, c.info)
			case r.URL.Path == "/get_model_info" && c.info != "":
				fmt.Fprintf(w, `{"model_path":%q,"tokenizer_path":""}`, c.info)
			default:
				w.WriteHeader(404)
			}
		}))
		p, err := Open(t.Context(), Options{Name: "policy server", API: c.api, Tokenizer: c.tokenizer}, PoolOptions{URLs: []string{s.URL}})
		s.Close()
		switch {
		case c.kind != 0:
			if fail.KindOf(err) != c.kind {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case p.first().native != c.native || (p.first().tokens != nil) != c.tokens:
			t.Errorf("%s: native %v", name, p.first().native)
		}
	}
}

// vLLM gives a prompt's ids and not where its images are: each must be a run of as
// many placeholders as the processor's grid of that image makes.
func TestPlaceholdersAreThoseOfTheGrids(t *testing.T) {
	dir := modelFolder(t)
	tok, err := token.LoadBPE(dir)
	if err != nil {
		t.Fatal(err)
	}
	pad, _ := tok.ID("<|image_pad|>")
	run := func(n int) []int32 { return slices.Repeat([]int32{pad}, n) }
	for name, c := range map[string]struct {
		prompt []int32
		want   string
	}{
		"as the grids say":    {slices.Concat([]int32{1, 2}, run(4), []int32{3}, run(1), []int32{4}), "[{[1 4 4] 2} {[1 2 2] 7}]"},
		"one too few":         {slices.Concat([]int32{1}, run(3), []int32{3}, run(1)), "image 0 has 3 placeholders"},
		"not expanded":        {slices.Concat([]int32{1}, run(1), []int32{3}, run(1)), "image 0 has 1 placeholders"},
		"an image is gone":    {slices.Concat([]int32{1}, run(4), []int32{3}), "image 1 has 0 placeholders"},
		"one image more":      {slices.Concat(run(4), []int32{3}, run(1), []int32{3}, run(1)), "a placeholder more"},
		"run into each other": {run(5), "image 0 has 5 placeholders"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/models" {
				io.WriteString(w, `{"object":"list","data":[{"id":"m","object":"model","owned_by":"vllm","root":"/models/m","max_model_len":4096}]}`)
				return
			}
			ids, _ := json.Marshal(c.prompt)
			fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"a","reasoning_content":null,"tool_calls":[]},
				"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[]},{"token":"<|im_end|>","logprob":-0.25,"bytes":[60],"top_logprobs":[]}]},
				"finish_reason":"stop","stop_reason":null,"token_ids":[97,151645]}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11},"prompt_logprobs":null,"prompt_token_ids":%s,"kv_transfer_params":null}`, ids)
		}))
		p, err := Open(t.Context(), Options{Name: "policy server", API: APIOpenAI, Tokenizer: dir}, PoolOptions{URLs: []string{s.URL}})
		if err != nil {
			t.Fatal(err)
		}
		session := p.Session("q")
		r, err := session.Chat(t.Context(), Request{TokenIDs: true, Messages: []Message{{Role: "user", Images: [][]byte{square(t, 32), square(t, 16)}}}})
		session.Close()
		s.Close()
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(r.Images)
			if r.LogprobMode != "raw" || fmt.Sprint(r.Logprobs) != "[-0.5 -0.25]" || len(r.TokenIDs) != 2 {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
