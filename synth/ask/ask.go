// Package ask has fields of data written and checked by models, and keeps account
// of it: which model, which prompt, which seed, at what cost. A filled-in prompt
// goes in, a reply and its record come out. A reply that is no answer (a refusal,
// nothing, prose around JSON) is told with its reason, after the model was asked
// once more. It knows nothing of what is written.
package ask

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strings"
	"text/template"
	"time"

	"searchloop/internal/budget"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/lot"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
)

// Made says how fields of a row were made.
type Made struct {
	Fields       string  `parquet:"fields,dict" json:"fields"` // names, with commas
	Model        string  `parquet:"model,dict" json:"model"`
	Prompt       string  `parquet:"prompt,dict" json:"prompt"` // hash of system message and template
	Seed         int64   `parquet:"seed" json:"seed"`
	PromptTokens int32   `parquet:"prompt_tokens" json:"prompt_tokens"`
	ReplyTokens  int32   `parquet:"reply_tokens" json:"reply_tokens"`
	Cost         float64 `parquet:"cost" json:"cost"`   // dollars, by the recipe's prices; 0 when they are not known
	Reply        string  `parquet:"reply" json:"reply"` // as it came
}

// Options of a Model.
type Options struct {
	Role    string // what it is to the job: writer, checker
	URL     string
	Key     string // environment variable of its key, unless the recipe names one
	Say     recipe.Speaker
	Seed    uint64
	Conns   int
	Budget  *budget.Budget
	Tape    *tape.Tape
	Log     *slog.Logger
	Retry   retry.Options
	Timeout time.Duration
}

// Model asks one model. Safe for concurrent use.
type Model struct {
	opt    Options
	client *llm.Client
}

// Open connects to a model: a wrong address, key or name ends the job here.
func Open(ctx context.Context, o Options) (*Model, error) {
	key := o.Say.KeyEnv
	if key == "" {
		key = o.Key
	}
	if o.URL == "" {
		return nil, fail.WithHint(fail.New(fail.Usage, "open the "+o.Role, "", "no server is given"), "give --"+o.Role+"-url, an OpenAI-compatible server")
	}
	c, err := llm.New(llm.Options{Name: o.Role, URL: o.URL, Model: o.Say.Model, Key: secret.FromEnv(key), KeyName: key, Timeout: o.Timeout,
		Conns: max(1, o.Conns), Log: o.Log, Tape: o.Tape, Retry: o.Retry})
	if err == nil {
		err = c.Probe(ctx)
	}
	if err != nil {
		return nil, err
	}
	return &Model{o, c}, nil
}

// Name is the model's name.
func (m *Model) Name() string { return m.client.Model() }

// Prompt is a template with its name in the recipe.
type Prompt struct {
	name, system string
	tmpl         *template.Template
	hash         string
}

// NewPrompt reads a template. system goes before it.
func NewPrompt(name, system, text string) (*Prompt, error) {
	if strings.TrimSpace(text) == "" {
		return nil, fail.New(fail.Usage, "read recipe", "", "%s is empty", name)
	}
	t, err := template.New(name).Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "read recipe: "+name, "", err)
	}
	sum := sha256.Sum256([]byte(system + "\x00" + text))
	return &Prompt{name, system, t, hex.EncodeToString(sum[:8])}, nil
}

// Bad is a reply that cannot be used: the reason, and what was said.
type Bad struct {
	Reason string // refusal, empty, …: what is counted
	Detail string
}

func (b *Bad) Error() string {
	if b.Detail == "" {
		return b.Reason
	}
	return b.Reason + ": " + b.Detail
}

// Broken is a failure of this request alone, of the server's making.
type Broken struct{ Err error }

func (b *Broken) Error() string { return b.Err.Error() }
func (b *Broken) Unwrap() error { return b.Err }

// again is said after a reply that cannot be used.
const again = "That cannot be read. Reply once more, with exactly what was asked for and nothing around it."

// Ask fills the prompt in and asks for a reply that read accepts. key and the
// prompt's name decide the seed. The record is there whenever something was asked,
// also with an error: a *Bad or *Broken is about this request, any other about the
// job. So is what it took, of all requests that were made.
func (m *Model) Ask(ctx context.Context, p *Prompt, fields, key string, data any, images [][]byte, read func(reply string) error) (made Made, used manifest.Usage, err error) {
	made = Made{Fields: fields, Model: m.Name(), Prompt: p.hash}
	var text strings.Builder
	if err := p.tmpl.Execute(&text, data); err != nil {
		return made, used, fail.Wrap(fail.Usage, "fill in "+p.name, "", err)
	}
	messages := []llm.Message{}
	if p.system != "" {
		messages = append(messages, llm.Message{Role: "system", Text: p.system})
	}
	messages = append(messages, llm.Message{Role: "user", Text: text.String(), Images: images})
	end := func(u manifest.Usage) {
		used = used.Add(u)
		m.opt.Budget.End(u)
	}
	var bad error
	for try := range 2 {
		if err := m.opt.Budget.Begin(); err != nil {
			return made, used, err
		}
		seed := m.seed(p.name, key, try)
		if try == 0 {
			made.Seed = seed
		}
		r, err := m.client.Chat(ctx, llm.Request{Messages: messages, MaxTokens: m.opt.Say.MaxTokens, Temperature: m.opt.Say.Temperature, Seed: seed})
		if f := llm.FaultOf(err); f != nil && (f.Verdict == retry.Again || f.Verdict == retry.Never) {
			end(manifest.Usage{Requests: int64(f.Attempts)})
			switch f.Class {
			case llm.Filtered:
				return made, used, &Bad{Refusal, "the server stopped the turn"}
			case llm.Empty:
				return made, used, &Bad{Empty, "however often it was asked"}
			}
			return made, used, &Broken{f}
		}
		if err != nil {
			end(manifest.Usage{})
			return made, used, err
		}
		cost := (float64(r.PromptTokens)*m.opt.Say.PromptPrice + float64(r.ReplyTokens)*m.opt.Say.Price) / 1e6
		made.PromptTokens += int32(r.PromptTokens)
		made.ReplyTokens += int32(r.ReplyTokens)
		made.Cost += cost
		made.Reply = secret.Scrub(strings.ToValidUTF8(r.Text, "�"))
		end(manifest.Usage{Requests: int64(r.Attempts), Retries: int64(r.Attempts - 1), PromptTokens: int64(r.PromptTokens), CompletionTokens: int64(r.ReplyTokens), Cost: cost})
		if bad = read(made.Reply); bad == nil {
			return made, used, nil
		}
		var b *Bad
		if !errors.As(bad, &b) || !worthAsking(b.Reason) {
			return made, used, bad
		}
		messages = append(messages, llm.Message{Role: "assistant", Text: made.Reply}, llm.Message{Role: "user", Text: again})
	}
	return made, used, bad
}

// worthAsking says whether asking once more can help: a model that refuses stays so.
func worthAsking(reason string) bool {
	return reason == Empty || reason == Prose || reason == NotJSON || reason == NoVerdict
}

// seed is the first 31 bits of a hash of what is asked.
func (m *Model) seed(name, key string, try int) int64 {
	return int64(lot.Draw("ask", name+"\x00"+key, m.opt.Seed, uint64(try)) >> 33)
}
