// Package tool runs the tools of a policy: text search, image search by text and
// by lens, search for parts of an image, visits of stored pages, and questions to
// another model. A call that the policy wrote goes in, what the policy
// reads comes out: plain text and pictures.
//
// A call that cannot be answered (an unknown tool, a bad list of queries, no
// entry for the image) is answered with a text that says so. A search service
// that cannot be reached is no answer: it is an error, and the trajectory fails.
// The package talks to no model and keeps no history.
package tool

import (
	"context"
	"slices"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
)

// Names of the tools.
const (
	TextSearch  = "text_search"
	ImageByText = "image_search_by_text_query"
	ImageByLens = "image_search_by_lens"

	CropAndSearch = "crop_and_search"
	Visit         = "visit"
	ModelSearch   = "model_search"
)

// KindOf is what a tool does: its kind, or else its name.
func KindOf(t recipe.Tool) string {
	if t.Kind != "" {
		return t.Kind
	}
	return t.Name
}

// Hit is one passage found.
type Hit struct {
	Contents string // first line: the title, then the body
	ImageID  string // SHA-256 of the image, for image corpora
	Score    float32
	Link     string // where it can be visited; "" when unknown
}

// Searcher finds passages: at most k for each query, best first. Implementations
// are safe for concurrent use. An error is about the service, never about a query.
type Searcher interface {
	Search(ctx context.Context, queries []string, k int) ([][]Hit, error)
}

// Image is a picture for the policy.
type Image struct {
	ID   string // SHA-256 of Data, which is in the image store
	Data []byte
}

// Result is what a call gives back.
type Result struct {
	Text    string
	Images  []Image
	Problem string // why the call was not answered; "" when it was
}

// Sources are what the tools search. A tool without its source cannot be in a Box.
type Sources struct {
	Text  Searcher
	Image Searcher
	Lens  map[string]corpus.LensEntry // by question id
	Store *corpus.ImageStore          // where images are looked up, and those for the policy written
	From  []*corpus.ImageStore        // where they are looked up next

	Crops  LookAlike // what crops are compared with
	Pages  *Pages    // what can be visited
	Reader Chatter   // sums pages up; may be nil
	Model  Chatter   // what model_search asks
}

type runner interface {
	run(ctx context.Context, q *corpus.Question, c protocol.Call) (Result, error)
}

// Box holds the tools of a recipe. Safe for concurrent use.
type Box struct {
	tools map[string]runner
	names []string // in the recipe's order
	specs []llm.Tool
}

// New makes the box of the given tools. A tool that does not exist or whose
// source is missing is a usage error.
func New(tools []recipe.Tool, src Sources) (*Box, error) {
	b := &Box{tools: map[string]runner{}}
	for _, t := range tools {
		if t.TopK == 0 {
			t.TopK = 3
		}
		pics := &pictures{store: src.Store, from: src.From, pixels: t.ImagePixels}
		var r runner
		var missing string
		switch KindOf(t) {
		case TextSearch:
			r = textSearch{t, src.Text}
			if src.Text == nil {
				missing = "--text-index or retrieval.text_url"
			}
		case ImageByText:
			r = imageSearch{t, src.Image, pics}
			if src.Image == nil {
				missing = "--image-index or retrieval.image_url"
			}
		case ImageByLens:
			r = lens{t, src.Lens, pics}
			if src.Lens == nil {
				missing = "--lens"
			}
		case CropAndSearch:
			r = crop{t, src.Crops, src.Store}
			if src.Crops == nil {
				missing = "--gallery"
			}
		case Visit:
			r = visit{t, src.Pages, src.Reader}
			if src.Pages == nil {
				missing = "--pages"
			}
		case ModelSearch:
			r = modelSearch{t, src.Model}
			if src.Model == nil {
				missing = "retrieval.model_url"
			}
		default:
			return nil, fail.WithHint(fail.New(fail.Usage, "read recipe", "", "tools: there is no tool %q", KindOf(t)),
				"tools: "+strings.Join([]string{TextSearch, ImageByText, ImageByLens, CropAndSearch, Visit, ModelSearch}, ", "))
		}
		if missing != "" {
			return nil, fail.WithHint(fail.New(fail.Usage, "read recipe", "", "the tool %s has nothing to search", t.Name), "give "+missing)
		}
		b.tools[t.Name] = r
		b.names = append(b.names, t.Name)
	}
	b.specs = Schemas(tools)
	return b, nil
}

// Schemas describes the tools for a chat template, in the recipe's order.
func (b *Box) Schemas() []llm.Tool { return slices.Clone(b.specs) }

// Run answers one call. The error is about a service, or is ctx's.
func (b *Box) Run(ctx context.Context, q *corpus.Question, c protocol.Call) (Result, error) {
	if c.Name != "" && b.tools[c.Name] == nil && c.Problem != protocol.NotACall {
		c.Problem = protocol.UnknownTool(c.Name, b.names)
	}
	if c.Problem != "" {
		return refuse(c.Problem), nil
	}
	return b.tools[c.Name].run(ctx, q, c)
}

// refuse is the answer to a call that cannot be run: the model reads the reason.
func refuse(problem string) Result { return Result{Text: problem, Problem: problem} }
