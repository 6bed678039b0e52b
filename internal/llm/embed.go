package llm

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"

	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// BadVectors is the class of an answer that is no list of vectors, one for each
// input.
const BadVectors = "bad vectors"

// ImageForm is how a server wants images for which it is to give vectors. OpenAI's
// API has none, so servers have their own.
type ImageForm string

const (
	NoImages       ImageForm = ""
	VLLMImages     ImageForm = "vllm"     // a chat of one message with the image; one image a request
	InfinityImages ImageForm = "infinity" // input: data URIs, modality: image
	JinaImages     ImageForm = "jina"     // input: objects with the image in base64
)

// ImageForms are the names that an ImageForm may have.
const ImageForms = "vllm, infinity, jina"

// EmbedRequest are the inputs of one call: texts, or images.
type EmbedRequest struct {
	Texts     []string
	Images    [][]byte
	Form      ImageForm // of Images
	Dim       int       // wanted length of the vectors; 0: the model's
	MaxTokens int       // inputs are cut to so many tokens, where the server can; 0: as it does
}

// Len is the number of inputs.
func (r EmbedRequest) Len() int { return len(r.Texts) + len(r.Images) }

// Most is how many inputs one request may have in this form; 0: any number.
func (f ImageForm) Most() int {
	if f == VLLMImages {
		return 1
	}
	return 0
}

// InputError is what is wrong with the answer for one input.
type InputError struct {
	Input int
	Err   error
}

func (e *InputError) Error() string { return fmt.Sprintf("input %d: %v", e.Input+1, e.Err) }
func (e *InputError) Unwrap() error { return e.Err }

type wireEmbed struct {
	Model    string          `json:"model"`
	Input    any             `json:"input,omitempty"`
	Messages json.RawMessage `json:"messages,omitempty"`
	Modality string          `json:"modality,omitempty"`
	Encoding string          `json:"encoding_format"`
	Dim      int             `json:"dimensions,omitempty"`
	Truncate int             `json:"truncate_prompt_tokens,omitempty"` // vLLM's
}

func (r EmbedRequest) wire(model string, floats bool) wireEmbed {
	w := wireEmbed{Model: model, Encoding: "base64", Dim: r.Dim, Truncate: r.MaxTokens}
	if floats {
		w.Encoding = "float"
	}
	switch r.Form {
	case NoImages:
		w.Input = r.Texts
	case VLLMImages:
		m := message{Message: Message{Role: "user", Images: r.Images}}
		w.Messages = append(m.append([]byte{'['}, false), ']')
	case InfinityImages:
		var list []string
		for _, data := range r.Images {
			list = append(list, DataURL(data))
		}
		w.Input, w.Modality = list, "image"
	case JinaImages:
		var list []map[string]string
		for _, data := range r.Images {
			list = append(list, map[string]string{"image": base64.StdEncoding.EncodeToString(data)})
		}
		w.Input = list
	}
	return w
}

// Embed asks for the vectors of inputs, in their order, all of one length. Errors
// are as Chat's; one about a single input has an *InputError in its chain.
func (c *Client) Embed(ctx context.Context, r EmbedRequest) ([][]float32, error) {
	if c.opt.Tape == nil {
		return c.embed(ctx, r)
	}
	asked := map[string]any{"to": c.opt.Name, "model": c.opt.Model, "dimensions": r.Dim, "max_tokens": r.MaxTokens}
	if r.Form == NoImages {
		asked["texts"] = r.Texts
	} else {
		var list []string
		for _, data := range r.Images {
			list = append(list, manifest.Hash(data))
		}
		asked["images"] = list
	}
	return taped(c, "ask for vectors", embedKind, asked, func() ([][]float32, error) { return c.embed(ctx, r) })
}

func (c *Client) embed(ctx context.Context, r EmbedRequest) ([][]float32, error) {
	if most := r.Form.Most(); most > 0 && r.Len() > most {
		return nil, fail.New(fail.Bug, "ask for vectors", c.shown, "%d images in one request of the form %s", r.Len(), r.Form)
	}
	for {
		floats := c.floats.Load()
		body, err := encode(r.wire(c.opt.Model, floats))
		if err != nil {
			return nil, fail.Wrap(fail.Bug, "write request", c.shown, err)
		}
		var out [][]float32
		f := c.ask(ctx, &exchange{}, http.MethodPost, c.base+"/embeddings", body, func(x *exchange) (f *retry.Fault) {
			out, f = readVectors(x, r.Len())
			return f
		})
		switch {
		case f == nil:
			return out, nil
		case !floats && unknownField(f, "encoding_format", "base64"):
			c.opt.Log.Info(c.opt.Name + " gives no base64: its vectors are read as text")
			c.floats.Store(true)
			continue
		}
		return nil, c.failure("ask for vectors", c.shown, f)
	}
}

// readVectors turns a response of status 200 into n vectors, or says why it is none.
func readVectors(x *exchange, n int) ([][]float32, *retry.Fault) {
	bad := func(format string, args ...any) ([][]float32, *retry.Fault) {
		return nil, &retry.Fault{Verdict: retry.Again, Class: BadVectors, Err: fmt.Errorf(format, args...)}
	}
	var in struct {
		Error json.RawMessage `json:"error"`
		Data  []struct {
			Index     *int            `json:"index"`
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
	}
	err := json.Unmarshal(x.body, &in)
	if err != nil || len(in.Error) > 0 && string(in.Error) != "null" {
		if f := notReply(x); f != nil && f.Class != NoChoices {
			if f.Class == NotJSON && bytes.Contains(x.body, []byte("NaN")) {
				return bad("the answer holds NaN, which is no JSON")
			}
			return nil, f
		}
		return bad("not a list of vectors: %s", secret.Line(string(x.body)))
	}
	if len(in.Data) != n {
		return bad("%d vectors for %d inputs", len(in.Data), n)
	}
	out, dim := make([][]float32, n), 0
	for i, d := range in.Data {
		at := i
		if d.Index != nil {
			at = *d.Index
		}
		if at < 0 || at >= n || out[at] != nil {
			return bad("the index %d among %d vectors, out of range or twice", at, n)
		}
		if out[at], err = readVector(d.Embedding); err != nil {
			// The same model gives the same for the same input: asking again is no help.
			return nil, &retry.Fault{Verdict: retry.Never, Class: BadVectors, Err: &InputError{Input: at, Err: err}}
		}
		if dim == 0 {
			dim = len(out[at])
		}
		if len(out[at]) != dim {
			return bad("vectors of %d and of %d numbers", dim, len(out[at]))
		}
	}
	return out, nil
}

// readVector reads a list of numbers, or the same as base64 of little-endian float32.
func readVector(raw json.RawMessage) ([]float32, error) {
	var v []float32
	var text string
	switch {
	case len(raw) > 0 && raw[0] == '"':
		if err := json.Unmarshal(raw, &text); err != nil {
			return nil, err
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(b)%4 != 0 {
			return nil, errors.New("the vector is not base64 of 4-byte numbers")
		}
		v = make([]float32, len(b)/4)
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case bytes.Contains(raw, []byte("null")): // which JSON writers make of NaN, and our reader of a 0
		return nil, errors.New("the vector holds NaN or an infinity, or is null")
	default:
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, errors.New("the vector is no list of numbers")
		}
	}
	for _, x := range v {
		if x-x != 0 {
			return nil, errors.New("the vector holds NaN or an infinity")
		}
	}
	if len(v) == 0 {
		return nil, errors.New("the vector is empty")
	}
	return v, nil
}
