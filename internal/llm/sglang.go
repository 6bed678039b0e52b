package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// APIs of a policy server.
const (
	APIAuto   = "auto"   // SGLang's own where the server has it and its model's folder is here, else OpenAI's
	APIOpenAI = "openai" // /v1/chat/completions
	APISGLang = "sglang" // /generate: token ids in, token ids and log-probs out
)

// choose finds out how a server is talked to. It needs the model's folder for
// SGLang's API, and uses it with others to find images in their prompts: opt.Tokenizer,
// or the one that the server names, if that is on this machine.
func (c *Client) choose(ctx context.Context) (err error) {
	dir := c.opt.Tokenizer
	if c.opt.Tape.Replays() { // nobody is asked
		if dir != "" {
			c.tokens, err = OpenTokenizer(dir) // for what is made of the texts
		}
		return err
	}
	if c.opt.API == "" || c.opt.API == APIOpenAI && dir == "" {
		return nil // there is nothing to choose
	}
	native := c.opt.API == APISGLang
	if c.opt.API != APIOpenAI {
		model, tokenizer, ok := c.modelInfo(ctx)
		if native && !ok {
			return fail.WithHint(fail.New(fail.Usage, "ask for the model's folder", c.shown, "it does not answer /get_model_info as SGLang does"), "use --policy-api openai")
		}
		native = ok
		for _, named := range []string{tokenizer, model, c.root} {
			if dir == "" && hasTokenizer(named) {
				dir = named
			}
		}
	}
	switch {
	case dir == "" && c.opt.API == APISGLang:
		return fail.WithHint(fail.New(fail.Usage, "open tokenizer", c.shown, "token ids are needed, and the model's folder is not on this machine"), "add --policy-tokenizer DIR")
	case dir == "":
		if native {
			c.opt.Log.Warn("SGLang gives token ids only through its own API, for which the model's folder is needed: rows will have none",
				"server", c.shown, "remedy", "add --policy-tokenizer DIR")
		}
		return nil
	}
	if c.tokens, err = OpenTokenizer(dir); err != nil {
		return err
	}
	if native {
		c.native = true
		c.opt.Log.Info("talking to SGLang in token ids", "server", c.shown, "tokenizer", dir)
	}
	return nil
}

// modelInfo asks an SGLang server what it serves.
func (c *Client) modelInfo(ctx context.Context) (model, tokenizer string, ok bool) {
	var info struct {
		Model     string `json:"model_path"`
		Tokenizer string `json:"tokenizer_path"`
	}
	x := &exchange{beside: true}
	f := c.ask(ctx, x, http.MethodGet, strings.TrimSuffix(c.base, "/v1")+"/get_model_info", nil, func(x *exchange) *retry.Fault {
		if json.Unmarshal(x.body, &info) != nil {
			info.Model = "" // something else answers everything with a page
		}
		return nil
	})
	return info.Model, info.Tokenizer, f == nil && info.Model != ""
}

// generateRequest is the body of POST /generate.
type generateRequest struct {
	InputIDs  []int32        `json:"input_ids"`
	ImageData []string       `json:"image_data,omitempty"` // data URLs
	Sampling  generateParams `json:"sampling_params"`
	Logprob   bool           `json:"return_logprob"`
}

type generateParams struct {
	Temperature float32         `json:"temperature"`
	TopP        float32         `json:"top_p"`
	TopK        int             `json:"top_k"` // -1: off
	MaxNew      int             `json:"max_new_tokens,omitempty"`
	Seed        *int64          `json:"sampling_seed,omitempty"`
	Stop        []string        `json:"stop,omitempty"`
	NoStopTrim  bool            `json:"no_stop_trim,omitempty"`
	Spaces      bool            `json:"spaces_between_special_tokens"`
	JSONSchema  json.RawMessage `json:"json_schema,omitempty"` // a text that holds the schema
}

// generateReply is one object of the response.
type generateReply struct {
	Error     json.RawMessage `json:"error"`
	OutputIDs []int32         `json:"output_ids"`
	Meta      *struct {
		Finish     json.RawMessage   `json:"finish_reason"` // an object; of old versions a text
		Prompt     int               `json:"prompt_tokens"`
		Completion int               `json:"completion_tokens"`
		Logprobs   []json.RawMessage `json:"output_token_logprobs"` // [log-prob, id, text or null]
	} `json:"meta_info"`
}

// generate asks for one turn through SGLang's own API.
func (c *Client) generate(ctx context.Context, r Request) (*Reply, error) {
	ids, images, err := c.tokens.prompt(r)
	if err != nil {
		return nil, &fail.Error{Kind: fail.Service, Op: "write the prompt", Path: c.shown, Err: &retry.Fault{Verdict: retry.Never, Class: "request", Err: err}}
	}
	in := generateRequest{InputIDs: ids, Logprob: true, Sampling: generateParams{Temperature: r.Temperature, TopP: 1, TopK: -1, MaxNew: r.MaxTokens, Stop: r.Stop, NoStopTrim: len(r.Stop) > 0}}
	for _, m := range r.Messages {
		for _, data := range m.Images {
			in.ImageData = append(in.ImageData, DataURL(data))
		}
	}
	if r.TopP > 0 && r.TopP < 1 {
		in.Sampling.TopP = r.TopP
	}
	if r.TopK > 0 {
		in.Sampling.TopK = r.TopK
	}
	if len(r.Schema) > 0 {
		in.Sampling.JSONSchema, _ = json.Marshal(string(r.Schema))
	}
	for {
		seeded := !c.plain.Load()
		if in.Sampling.Seed = nil; seeded {
			in.Sampling.Seed = &r.Seed
		}
		body, err := encode(in)
		if err != nil {
			return nil, fail.Wrap(fail.Bug, "write request", c.shown, err)
		}
		x := &exchange{request: r}
		var reply *Reply
		f := c.ask(ctx, x, http.MethodPost, strings.TrimSuffix(c.base, "/v1")+"/generate", body, func(x *exchange) (f *retry.Fault) {
			reply, f = c.readGenerated(x, ids)
			return f
		})
		if seeded && unknownField(f, "sampling_seed") {
			c.opt.Log.Warn("the server takes no seeds: its turns cannot be repeated", "said", f.Err)
			c.plain.Store(true)
			continue
		}
		if f != nil {
			return nil, c.failure("ask for a turn", c.shown, f)
		}
		reply.PromptIDs, reply.Images, reply.Attempts = ids, images, x.attempts
		return reply, nil
	}
}

// sameTokens says whether output_ids are the sampled tokens. Before them versions up
// to 0.5.6 have the end of the prompt, which their incremental decoder begins with.
func sameTokens(output, sampled, prompt []int32) bool {
	more := len(output) - len(sampled)
	return more >= 0 && more <= len(prompt) && slices.Equal(output[more:], sampled) && slices.Equal(output[:more], prompt[len(prompt)-more:])
}

// readGenerated turns a response of status 200 into a Reply, or says why it is none.
func (c *Client) readGenerated(x *exchange, prompt []int32) (*Reply, *retry.Fault) {
	bad := func(class, format string, args ...any) (*Reply, *retry.Fault) {
		return nil, &retry.Fault{Verdict: retry.Again, Class: class, Err: fmt.Errorf(format, args...)}
	}
	body := bytes.TrimSpace(x.body)
	if len(body) > 0 && body[0] == '<' {
		return bad(HTML, "%s", secret.Line(string(body)))
	}
	if len(body) > 1 && body[0] == '[' { // a batch of one
		body = bytes.TrimSuffix(body[1:], []byte("]"))
	}
	var in generateReply
	if err := json.Unmarshal(body, &in); err != nil {
		return bad(NotJSON, "%d bytes: %s", len(x.body), secret.Line(string(x.body)))
	}
	if in.Meta == nil {
		if message, code := errorObject(body); len(in.Error) > 0 {
			if tooLong(message, code) {
				return nil, &retry.Fault{Verdict: retry.Never, Class: ContextLength, Err: errors.New(message)}
			}
			return bad(ErrorObject, "%s", message)
		}
		return bad(NoChoices, "%s", secret.Line(string(body)))
	}
	if in.Meta.Prompt != len(prompt) {
		return nil, &retry.Fault{Verdict: retry.Never, Class: "prompt", Err: fmt.Errorf("the server read a prompt of %d tokens, of the %d that the template and the processor's grids make", in.Meta.Prompt, len(prompt))}
	}
	out := &Reply{LogprobMode: "none", PromptTokens: len(prompt), TokenIDs: in.OutputIDs}
	if len(in.Meta.Logprobs) > 0 {
		// Log-probs of the distribution that was sampled from, temperature included.
		out.LogprobMode, out.TokenIDs = "processed", nil
		for _, raw := range in.Meta.Logprobs {
			var p *float32
			var id *int32
			if err := json.Unmarshal(raw, &[]any{&p, &id}); err != nil || p == nil || id == nil || *p > 1e-3 {
				return bad(NotJSON, "a log-prob %s", secret.Line(string(raw)))
			}
			out.Logprobs, out.TokenIDs = append(out.Logprobs, *p), append(out.TokenIDs, *id)
		}
		if len(in.OutputIDs) > 0 && !sameTokens(in.OutputIDs, out.TokenIDs, prompt) {
			return bad(NotJSON, "log-probs of other tokens than output_ids")
		}
	} else if n := in.Meta.Completion; n > 0 && n < len(out.TokenIDs) && sameTokens(out.TokenIDs, out.TokenIDs[len(out.TokenIDs)-n:], prompt) {
		out.TokenIDs = out.TokenIDs[len(out.TokenIDs)-n:]
	}
	if n := in.Meta.Completion; n > 0 && n != len(out.TokenIDs) {
		return bad(NotJSON, "%d tokens, of %d completion_tokens", len(out.TokenIDs), n)
	}
	if len(out.TokenIDs) == 0 {
		return bad(Empty, "no tokens")
	}
	out.ReplyTokens = len(out.TokenIDs)
	said := out.TokenIDs
	var finish struct {
		Type    string
		Matched any
		Message string
	}
	if json.Unmarshal(in.Meta.Finish, &finish) != nil {
		_ = json.Unmarshal(in.Meta.Finish, &finish.Type)
	}
	switch finish.Type {
	case "stop":
		out.Finish = "stop"
		if mark, ok := finish.Matched.(float64); ok && int32(mark) == said[len(said)-1] {
			said = said[:len(said)-1]
		}
		out.Stop = stopText(x.request.Stop, finish.Matched)
	case "length":
		out.Finish = "length"
	case "abort":
		if tooLong(finish.Message, "") {
			return nil, &retry.Fault{Verdict: retry.Never, Class: ContextLength, Err: errors.New(finish.Message)}
		}
		return bad(Aborted, "%s", secret.Line(finish.Message))
	default:
		return bad(NotJSON, "finish_reason %s", secret.Line(string(in.Meta.Finish)))
	}
	out.Text = c.tokens.tok.Decode(said)
	return out, nil
}
