// Package live searches the web for the tools of a policy, through the providers
// that deep-research systems use: SerpAPI, Serper, Jina, and a fetcher of our own.
// A query or an address goes in; hits and texts come out, made harmless, in the
// form that local indices and page stores give them, so that protocols do not know
// the difference.
//
// There is one adapter a provider, in a file of its own: how a question is put to
// it and what its response says. Keys, status codes and provenance are in this
// package once; caches, limits, costs, retries and records are those of package
// lookup. See docs/live.md.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/lookup"
	"searchloop/internal/retry"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// Kind is what is asked for.
type Kind string

// Kinds.
const (
	Web    Kind = "web"    // pages for a query
	Images Kind = "images" // images for a query
	Lens   Kind = "lens"   // pages on which an image appears, by its public address
	Page   Kind = "page"   // the text of a page
	Image  Kind = "image"  // the bytes of an image
)

// Ask is one question to a provider.
type Ask struct {
	Kind Kind
	Text string // a query, or an address
	K    int    // hits wanted; 0 where there are none
	ID   string // of a lens search: SHA-256 of the image, whose address may change

	// Publish makes the image of a lens search public and gives its address, for Text. It
	// is called only when the provider is asked: for an answer that is kept or recorded
	// nothing is uploaded.
	Publish func(context.Context) (address string, err error)
}

// unpublished is the class of a call that was not made: what it asks about could not be
// published. The fault's cause says why.
const unpublished = "unpublished"

// key names what the answer to a question depends on. White space, case and the
// form of characters of a query do not count, nor does the form of an address; an
// image is what it is, wherever it lies.
type key struct {
	Kind    Kind   `json:"kind"`
	Text    string `json:"text"`
	K       int    `json:"k,omitempty"`
	Locale  Locale `json:"locale,omitzero"`
	Gateway string `json:"gateway,omitempty"`
}

func (p *Provider) key(a Ask) key {
	k := key{Kind: a.Kind, Text: strings.TrimSpace(a.Text), K: a.K, Gateway: p.gateway}
	switch a.Kind {
	case Web, Images:
		k.Text, k.Locale = lookup.Normal(a.Text), p.locale
	case Lens:
		k.Text, k.Locale = a.ID, p.locale
	case Page:
		k.Text = tool.Address(a.Text)
	}
	return k
}

// Locale is where and in which language is searched: ISO codes, as Google takes them.
type Locale struct {
	Language string `json:"language,omitempty"`
	Country  string `json:"country,omitempty"`
}

// Answer is what a provider said, in the form in which it is kept and recorded.
type Answer struct {
	URL    string  `json:"url"`    // what was asked; holds no key
	SHA256 string  `json:"sha256"` // of the bytes that came
	Found  []Found `json:"found,omitempty"`
	Text   string  `json:"text,omitempty"` // of a page: the title, a line end, the text
	Data   []byte  `json:"data,omitempty"` // of an image
}

// Found is one hit, as the provider has it.
type Found struct {
	Title     string `json:"title,omitempty"`
	Link      string `json:"link,omitempty"`
	Snippet   string `json:"snippet,omitempty"`
	Date      string `json:"date,omitempty"`
	Image     string `json:"image,omitempty"`     // address
	Thumbnail string `json:"thumbnail,omitempty"` // address of a small one
}

func (a *Answer) empty() bool { return len(a.Found) == 0 && a.Text == "" && len(a.Data) == 0 }

// Provider answers questions. Safe for concurrent use.
type Provider struct {
	name    string
	locale  Locale
	gateway string // in the provider's place
	way     *lookup.Provider
	once    func(context.Context, Ask) (*Answer, *retry.Fault)
}

// refusal is what a provider says of a question that it will never answer: it is
// about the question, and the provider is well.
type refusal struct{ why *retry.Fault }

func (r refusal) Error() string { return r.why.Class }

// ask puts a question and notes where the answer came from. The error is a refusal,
// or a *fail.Error as of lookup.
func (p *Provider) ask(ctx context.Context, a Ask) (*Answer, error) {
	got, err := p.way.AskAfter(ctx, p.key(a), func(ctx context.Context) (f *retry.Fault) {
		if a.Publish == nil {
			return nil
		}
		var err error
		if a.Text, err = a.Publish(ctx); err != nil { // the storage's failure, not the provider's
			f = &retry.Fault{Verdict: retry.Caller, Class: unpublished, Err: err}
		}
		return f
	}, func(ctx context.Context) (lookup.Answer, *retry.Fault) {
		out, f := p.once(ctx, a)
		if f != nil {
			return lookup.Answer{}, f
		}
		body, err := json.Marshal(out)
		if err != nil {
			return lookup.Answer{}, &retry.Fault{Verdict: retry.Never, Class: "not json", Err: err}
		}
		return lookup.Answer{Body: body, Empty: out.empty()}, nil
	})
	switch f := llm.FaultOf(err); {
	case f != nil && f.Class == unpublished:
		return nil, f.Err
	case f != nil && f.Verdict == retry.Never:
		return nil, refusal{f}
	}
	if err != nil {
		return nil, err
	}
	out := new(Answer)
	if err := json.Unmarshal(got.Body, out); err != nil {
		return nil, fail.Wrap(fail.BadInput, "read answer of "+p.name, "", errors.New("what was kept is damaged"))
	}
	tool.Note(ctx, trajectory.Source{Provider: p.name, URL: out.URL, Time: got.At.UTC().Format(time.RFC3339), SHA256: out.SHA256})
	return out, nil
}
