package served

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/indexer/encoder"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/picture"
	"searchloop/internal/retry"
)

// request is what the scripted server understands of a body.
type request struct {
	Model    string
	Input    []json.RawMessage
	Messages []struct {
		Content []struct {
			Type     string
			ImageURL struct{ URL string } `json:"image_url"`
		}
	}
	Modality   string
	Encoding   string `json:"encoding_format"`
	Dimensions int
	Truncate   int `json:"truncate_prompt_tokens"`
}

// script is a server of embeddings whose every answer a test can take over.
type script struct {
	t      *testing.T
	prefix string // "/v1"
	models string // body of GET models; "": there is none
	dim    int
	answer func(n int, r request, w http.ResponseWriter) bool // false: answer as usual

	mu   sync.Mutex
	seen []request
	keys []string
}

// vectorOf is the server's vector of an input: its numbers tell the input apart.
func vectorOf(input string, dim int) []float32 {
	v := make([]float32, dim)
	var sum float64
	for i := range v {
		v[i] = float32(1 + (len(input)*7+int(input[len(input)-1])*31+i*i*13)%17)
		sum += float64(v[i]) * float64(v[i])
	}
	for i := range v {
		v[i] /= float32(math.Sqrt(sum))
	}
	return v
}

type entry struct {
	Index     int `json:"index"`
	Embedding any `json:"embedding"`
}

func entries(r request, dim int) []entry {
	var out []entry
	list := r.Input
	if r.Messages != nil {
		list = []json.RawMessage{json.RawMessage(`"` + r.Messages[0].Content[0].ImageURL.URL + `"`)}
	}
	for i, in := range list {
		v := vectorOf(string(in), dim)
		if r.Encoding == "float" {
			out = append(out, entry{i, v})
			continue
		}
		var b []byte
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
		}
		out = append(out, entry{i, base64.StdEncoding.EncodeToString(b)})
	}
	return out
}

func give(w http.ResponseWriter, data []entry) {
	json.NewEncoder(w).Encode(map[string]any{"object": "list", "data": data, "usage": map[string]int{"prompt_tokens": 3}})
}

func refuse(w http.ResponseWriter, code int, message string) bool {
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"error":{"message":%q,"type":"x"}}`, message)
	return true
}

func (s *script) ServeHTTP(w http.ResponseWriter, h *http.Request) {
	switch {
	case h.URL.Path == s.prefix+"/models" && s.models != "":
		io.WriteString(w, s.models)
		return
	case h.URL.Path != s.prefix+"/embeddings":
		http.NotFound(w, h)
		return
	}
	var r request
	if err := json.NewDecoder(h.Body).Decode(&r); err != nil {
		s.t.Errorf("the server cannot read the request: %v", err)
	}
	s.mu.Lock()
	s.seen, s.keys = append(s.seen, r), append(s.keys, h.Header.Get("Authorization"))
	n := len(s.seen)
	s.mu.Unlock()
	if s.answer == nil || !s.answer(n, r, w) {
		give(w, entries(r, s.dim))
	}
}

func serve(t *testing.T, s *script) string {
	s.t = t
	if s.dim == 0 {
		s.dim = 12
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h.URL
}

const oneModel = `{"object":"list","data":[{"id":"org/e5-tiny"}]}`

func quick() retry.Options {
	return retry.Options{Base: time.Millisecond, Cap: 4 * time.Millisecond, Open: 10 * time.Millisecond, Gone: 400 * time.Millisecond}
}

func connect(t *testing.T, s *script, o Options) *Encoder {
	t.Helper()
	o.Retry = quick()
	e, err := Connect(t.Context(), serve(t, s), o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func texts(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("text ", strings.Repeat("a", i%5), string(rune('a'+i%26))))
	}
	return out
}

// check compares with what the server has for each text, behind the prefix.
func check(t *testing.T, e *Encoder, got []float32, prefix string, in []string) {
	t.Helper()
	d := e.Space().Dim
	for i, x := range in {
		quoted, _ := json.Marshal(prefix + x)
		for j, want := range vectorOf(string(quoted), d) {
			if math.Abs(float64(got[i*d+j]-want)) > 1e-6 {
				t.Fatalf("vector %d, number %d: %g, want %g", i, j, got[i*d+j], want)
			}
		}
	}
}

// Whatever the server's habits, the vectors come out in the order of the texts.
func TestHabitsOfServers(t *testing.T) {
	shuffled := func(_ int, r request, w http.ResponseWriter) bool {
		list := entries(r, 12)
		for i := range len(list) / 2 {
			list[i], list[len(list)-1-i] = list[len(list)-1-i], list[i]
		}
		give(w, list)
		return true
	}
	unnumbered := func(_ int, r request, w http.ResponseWriter) bool {
		var data []map[string]any
		for _, e := range entries(r, 12) {
			data = append(data, map[string]any{"embedding": e.Embedding})
		}
		json.NewEncoder(w).Encode(map[string]any{"data": data})
		return true
	}
	for name, s := range map[string]*script{
		"base64":          {prefix: "/v1", models: oneModel},
		"not in order":    {prefix: "/v1", models: oneModel, answer: shuffled},
		"no index fields": {prefix: "/v1", models: oneModel, answer: unnumbered},
		"floats, ignoring what was asked": {prefix: "/v1", models: oneModel, answer: func(_ int, r request, w http.ResponseWriter) bool {
			r.Encoding = "float"
			give(w, entries(r, 12))
			return true
		}},
		"base64 refused": {prefix: "/v1", models: oneModel, answer: func(_ int, r request, w http.ResponseWriter) bool {
			return r.Encoding == "base64" && refuse(w, 400, "unknown field encoding_format")
		}},
		"not below /v1": {prefix: "", models: oneModel},
		"busy and failing now and then": {prefix: "/v1", models: oneModel, answer: func(n int, _ request, w http.ResponseWriter) bool {
			switch n {
			case 2:
				w.Header().Set("Retry-After", "0.01")
				return refuse(w, 429, "overloaded")
			case 4:
				return refuse(w, 503, "unhealthy")
			case 6:
				return refuse(w, 424, "inference failed")
			}
			return false
		}},
		"no more than 4 inputs": {prefix: "/v1", models: oneModel, answer: func(_ int, r request, w http.ResponseWriter) bool {
			return len(r.Input) > 4 && refuse(w, 413, fmt.Sprintf("batch size %d > maximum allowed batch size 4", len(r.Input)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := connect(t, s, Options{Batch: 9, Parallel: 3})
			sp := e.Space()
			if sp.Encoder != "model:org/e5-tiny" || sp.Dim != 12 || !sp.Normalized || sp.QueryPrefix != "query: " || sp.PassagePrefix != "passage: " {
				t.Errorf("space %+v", sp)
			}
			in := texts(70)
			for range 2 {
				got, err := e.Passages(t.Context(), in)
				if err != nil {
					t.Fatal(err)
				}
				check(t, e, got, "passage: ", in)
			}
			got, err := e.Queries(t.Context(), in[:3])
			if err != nil {
				t.Fatal(err)
			}
			check(t, e, got, "query: ", in[:3])
			if name == "no more than 4 inputs" {
				refused := 0
				for _, r := range s.seen[len(s.seen)-10:] {
					if len(r.Input) > 4 {
						refused++
					}
				}
				if refused > 0 {
					t.Errorf("the limit is not remembered: %d of the last 10 requests are too large", refused)
				}
			}
		})
	}
}

// What a server must not do is an error that says so and names whose it is.
func TestLyingServers(t *testing.T) {
	long := strings.Repeat("long ", 10) + "z"
	in := append(texts(20), long)
	float := func(v any) func(int, request, http.ResponseWriter) bool {
		return func(n int, r request, w http.ResponseWriter) bool {
			if n == 1 {
				return false
			}
			list := entries(r, 12)
			list[len(list)-1].Embedding = v
			give(w, list)
			return true
		}
	}
	nan := base64.StdEncoding.EncodeToString(append(make([]byte, 44), 0, 0, 0xc0, 0x7f))
	afterProbe := func(f func(r request, w http.ResponseWriter)) func(int, request, http.ResponseWriter) bool {
		return func(n int, r request, w http.ResponseWriter) bool {
			if n > 1 {
				f(r, w)
			}
			return n > 1
		}
	}
	for name, c := range map[string]struct {
		answer func(n int, r request, w http.ResponseWriter) bool
		kind   fail.Kind
		want   []string
	}{
		"too few":       {afterProbe(func(r request, w http.ResponseWriter) { give(w, entries(r, 12)[1:]) }), fail.Service, []string{"20 vectors for 21 inputs"}},
		"too many":      {afterProbe(func(r request, w http.ResponseWriter) { give(w, append(entries(r, 12), entry{21, nan})) }), fail.Service, []string{"22 vectors for 21 inputs"}},
		"another model": {afterProbe(func(r request, w http.ResponseWriter) { give(w, entries(r, 13)) }), fail.Service, []string{"13 numbers", "12", "another model"}},
		"two dimensions": {afterProbe(func(r request, w http.ResponseWriter) {
			give(w, append(entries(r, 12)[:20], entry{20, entries(r, 13)[20].Embedding}))
		}), fail.Service, []string{"12 and of 13"}},
		"same index twice": {afterProbe(func(r request, w http.ResponseWriter) {
			list := entries(r, 12)
			list[3].Index = 2
			give(w, list)
		}), fail.Service, []string{"index 2", "twice"}},
		"index out of range": {afterProbe(func(r request, w http.ResponseWriter) {
			list := entries(r, 12)
			list[3].Index = 99
			give(w, list)
		}), fail.Service, []string{"index 99"}},
		"NaN as null":     {float([]any{1, nil, 2}), fail.BadInput, []string{"row 21", "NaN"}},
		"null":            {float(nil), fail.BadInput, []string{"row 21", "null"}},
		"NaN in base64":   {float(nan), fail.BadInput, []string{"row 21", "NaN"}},
		"beyond float32":  {float([]any{1, json.Number("1e99")}), fail.BadInput, []string{"row 21", "no list of numbers"}},
		"half a number":   {float(base64.StdEncoding.EncodeToString(make([]byte, 7))), fail.BadInput, []string{"row 21", "4-byte"}},
		"no numbers":      {float([]any{}), fail.BadInput, []string{"row 21", "empty"}},
		"NaN as Python":   {afterProbe(func(_ request, w http.ResponseWriter) { io.WriteString(w, `{"data":[{"embedding":[NaN]}]}`) }), fail.Service, []string{"NaN"}},
		"cut short":       {afterProbe(func(_ request, w http.ResponseWriter) { io.WriteString(w, `{"data":[{"embe`) }), fail.Service, []string{"not json"}},
		"a page":          {afterProbe(func(_ request, w http.ResponseWriter) { io.WriteString(w, `<html>log in</html>`) }), fail.Service, []string{"html"}},
		"error, with 200": {afterProbe(func(_ request, w http.ResponseWriter) { io.WriteString(w, `{"error":{"message":"engine restarting"}}`) }), fail.Service, []string{"engine restarting"}},
		"always 500":      {afterProbe(func(_ request, w http.ResponseWriter) { refuse(w, 500, "boom") }), fail.Service, []string{"http 500", "boom"}},
		"401 later":       {afterProbe(func(_ request, w http.ResponseWriter) { refuse(w, 401, "no") }), fail.Service, []string{"401", KeyName}},
		"a text too long": {func(_ int, r request, w http.ResponseWriter) bool {
			for _, x := range r.Input {
				if len(x) > len(long) {
					return refuse(w, 413, "`inputs` must have less than 10 tokens. Given: 11")
				}
			}
			return false
		}, fail.BadInput, []string{"row 21", "413", "less than 10 tokens", "--auto-truncate"}},
		"a text too long, vLLM": {func(_ int, r request, w http.ResponseWriter) bool {
			for _, x := range r.Input {
				if len(x) > len(long) {
					return refuse(w, 400, "This model's maximum context length is 10 tokens")
				}
			}
			return false
		}, fail.BadInput, []string{"row 21", "context length", "--max-tokens"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := connect(t, &script{prefix: "/v1", models: oneModel, answer: c.answer}, Options{})
			_, err := e.Passages(t.Context(), in)
			if fail.KindOf(err) != c.kind {
				t.Fatalf("%v: %v", fail.KindOf(err), err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("message lacks %q: %v", w, err)
				}
			}
		})
	}
}

func TestConnectRefuses(t *testing.T) {
	dim := 6
	for name, c := range map[string]struct {
		s    *script
		o    Options
		kind fail.Kind
		want []string
	}{
		"no models, none named": {&script{prefix: "/v1"}, Options{}, fail.Service, []string{"--encoder-model"}},
		"several models":        {&script{prefix: "/v1", models: `{"data":[{"id":"a"},{"id":"b"}]}`}, Options{}, fail.Usage, []string{"2 models", "a, b"}},
		"another model":         {&script{prefix: "/v1", models: oneModel}, Options{Model: "b"}, fail.Service, []string{`no model "b"`, "org/e5-tiny"}},
		"no such API":           {&script{prefix: "/elsewhere", models: oneModel}, Options{Model: "b"}, fail.Service, []string{"404", "/v1"}},
		"wrong key":             {&script{prefix: "/v1", models: oneModel, answer: func(_ int, _ request, w http.ResponseWriter) bool { return refuse(w, 403, "bad key") }}, Options{}, fail.Service, []string{"403", KeyName}},
		"cannot cut":            {&script{prefix: "/v1", models: oneModel}, Options{Override: encoder.Override{Dim: &dim}}, fail.BadInput, []string{"6 numbers", "12 came"}},
	} {
		c.o.Retry = quick()
		_, err := Connect(t.Context(), serve(t, c.s), c.o)
		if fail.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: message lacks %q: %v", name, w, err)
			}
		}
	}
	if _, err := Connect(t.Context(), "http://127.0.0.1:1", Options{Retry: quick()}); fail.KindOf(err) != fail.Service {
		t.Errorf("nobody there: %v", err)
	}
}

// A server that is asked only when the first vector is wanted is refused as at the
// start, not row by row.
func TestAssumedAndRefused(t *testing.T) {
	s := &script{prefix: "/v1", models: oneModel, answer: func(_ int, _ request, w http.ResponseWriter) bool { return refuse(w, 401, "no") }}
	e := Assume(serve(t, s), vectors.Space{Encoder: vectors.ServedModel("org/e5-tiny"), Dim: 12, Pooling: vectors.ServedPooling}, Options{Retry: quick(), Batch: 2})
	if v, err := e.Passages(t.Context(), nil); err != nil || len(v) > 0 || len(s.seen) > 0 {
		t.Errorf("nothing to encode: %v, %v, %d requests", v, err, len(s.seen))
	}
	_, err := e.Passages(t.Context(), texts(9))
	var of *fail.Error
	if !errors.As(err, &of) || of.Kind != fail.Service || of.Row != 0 || !strings.Contains(err.Error(), KeyName) {
		t.Errorf("got %v", err)
	}
	if n := len(s.seen); n != 1 {
		t.Errorf("%d requests were made, want 1", n)
	}
}

// The settings reach the server; the key does too, and nothing else.
func TestSettings(t *testing.T) {
	t.Setenv(KeyName, "sk-embed-123456")
	var log bytes.Buffer
	dim, most, query := 7, 20, "q: "
	s := &script{prefix: "/v1", dim: 7, answer: func(n int, _ request, w http.ResponseWriter) bool {
		return n == 2 && refuse(w, 500, "the key sk-embed-123456 upset me")
	}}
	e := connect(t, s, Options{Model: "named", Log: slog.New(slog.NewTextHandler(&log, nil)), Override: encoder.Override{Dim: &dim, MaxTokens: &most, QueryPrefix: &query}})
	if _, err := e.Queries(t.Context(), texts(2)); err != nil {
		t.Fatal(err)
	}
	last := s.seen[len(s.seen)-1]
	if last.Model != "named" || last.Dimensions != 7 || last.Truncate != 20 || !strings.HasPrefix(string(last.Input[0]), `"q: text`) || s.keys[len(s.keys)-1] != "Bearer sk-embed-123456" {
		t.Errorf("the server got %+v, key %q", last, s.keys)
	}
	sp := e.Space()
	if sp.Dim != 7 || sp.MaxTokens != 20 || sp.QueryPrefix != query || sp.PassagePrefix != "" || sp.Encoder != "model:named" {
		t.Errorf("space %+v", sp)
	}
	if strings.Contains(log.String()+fmt.Sprint(sp, e.Dir()), "123456") {
		t.Error("the key is in a log or in what is stored")
	}
	again, err := ConnectSpace(t.Context(), serve(t, &script{prefix: "/v1", dim: 7}), sp, Options{Retry: quick()})
	if err != nil || again.Space() != sp {
		t.Errorf("the same space again: %v", err)
	}
	other := sp
	other.Dim = 9
	if _, err := ConnectSpace(t.Context(), serve(t, &script{prefix: "/v1", dim: 7}), other, Options{Retry: quick()}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "7 numbers, the index' 9") {
		t.Errorf("another dimension: %v", err)
	}
	other = sp
	other.Encoder = strings.Repeat("ab", 32)
	if _, err := ConnectSpace(t.Context(), serve(t, &script{prefix: "/v1", dim: 7}), other, Options{Retry: quick()}); fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "folder") {
		t.Errorf("an encoder of a folder: %v", err)
	}
}

// Vectors that the server leaves long stay so, unless they are to be normalised.
func TestLengths(t *testing.T) {
	twice := func(_ int, r request, w http.ResponseWriter) bool {
		r.Encoding = "float"
		list := entries(r, 12)
		for _, e := range list {
			for i := range e.Embedding.([]float32) {
				e.Embedding.([]float32)[i] *= 2
			}
		}
		give(w, list)
		return true
	}
	for _, normalize := range []bool{false, true} {
		e := connect(t, &script{prefix: "/v1", models: oneModel, answer: twice}, Options{Normalize: normalize})
		v, err := e.Queries(t.Context(), texts(1))
		if err != nil || e.Space().Normalized != normalize {
			t.Fatalf("normalised %t: %v", e.Space().Normalized, err)
		}
		var sum float64
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		if want := map[bool]float64{false: 4, true: 1}[normalize]; math.Abs(sum-want) > 1e-5 {
			t.Errorf("normalize %t: squared length %g", normalize, sum)
		}
	}
}

// No more requests are under way than was said, whoever makes them.
func TestParallel(t *testing.T) {
	var now, most atomic.Int32
	e := connect(t, &script{prefix: "/v1", models: oneModel, answer: func(int, request, http.ResponseWriter) bool {
		n := now.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(5 * time.Millisecond)
		now.Add(-1)
		return false
	}}, Options{Parallel: 3, Batch: 2})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := e.Passages(context.Background(), texts(20)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if m := most.Load(); m != 3 {
		t.Errorf("%d requests at once, want 3", m)
	}
}

func TestImageForms(t *testing.T) {
	pic := &picture.Picture{W: 3, H: 2, Pix: make([]byte, 18)}
	for form, check := range map[llm.ImageForm]func(r request) bool{
		llm.VLLMImages: func(r request) bool {
			return len(r.Input) == 0 && len(r.Messages) == 1 && len(r.Messages[0].Content) == 1 && r.Messages[0].Content[0].Type == "image_url" &&
				strings.HasPrefix(r.Messages[0].Content[0].ImageURL.URL, "data:image/png;base64,")
		},
		llm.InfinityImages: func(r request) bool {
			return len(r.Input) == 3 && r.Modality == "image" && strings.HasPrefix(string(r.Input[0]), `"data:image/png;base64,`)
		},
		llm.JinaImages: func(r request) bool {
			var in struct{ Image string }
			if len(r.Input) != 3 || json.Unmarshal(r.Input[2], &in) != nil {
				return false
			}
			data, err := base64.StdEncoding.DecodeString(in.Image)
			return err == nil && picture.Format(data) == "png"
		},
	} {
		s := &script{prefix: "/v1", models: oneModel}
		e := connect(t, s, Options{Images: form})
		v, err := e.Images(t.Context(), []*picture.Picture{pic, pic, pic})
		if err != nil || len(v) != 3*12 || !check(s.seen[len(s.seen)-1]) {
			t.Errorf("%s: %d numbers, %v; the server got %+v", form, len(v), err, s.seen[len(s.seen)-1])
		}
	}
	e := connect(t, &script{prefix: "/v1", models: oneModel}, Options{})
	if _, err := e.Images(t.Context(), []*picture.Picture{pic}); e.ReadsImages() || fail.KindOf(err) != fail.BadInput || !strings.Contains(err.Error(), "--encoder-images") {
		t.Errorf("no form was said: %v", err)
	}
}
