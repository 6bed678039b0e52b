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
	"searchloop/internal/sandbox"
	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// Names of the tools.
const (
	TextSearch  = "text_search"
	ImageByText = "image_search_by_text_query"
	ImageByLens = "image_search_by_lens"

	CropAndSearch = "crop_and_search"
	Visit         = "visit"
	ModelSearch   = "model_search"
	Python        = "python"
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
	Image    []byte // encoded image, for one that is in no store
}

// Searcher finds passages: at most k for each query, best first. Implementations
// are safe for concurrent use. An error is about the service, never about a query.
type Searcher interface {
	Search(ctx context.Context, queries []string, k int) ([][]Hit, error)
}

// Reverse finds where the image of a question, or one like it, appears: at most k
// hits, best first; none when nothing is known of it. The contents of a hit are its
// title. Implementations are safe for concurrent use.
type Reverse interface {
	Reverse(ctx context.Context, q *corpus.Question, k int) ([]Hit, error)
}

// Pages are what can be visited. A page's first line is its title. That a page
// cannot be read is an Unreadable; any other error is about the service or the disk.
// Implementations are safe for concurrent use.
type Pages interface {
	Get(ctx context.Context, address string) (string, error)
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
	Sources []trajectory.Source
}

// Sources are what the tools search. A tool without its source cannot be in a Box.
type Sources struct {
	Text  Searcher
	Image Searcher
	Lens  Reverse
	Store *corpus.ImageStore   // where images are looked up, and those for the policy written
	From  []*corpus.ImageStore // where they are looked up next

	Crops  LookAlike // what crops are compared with
	Pages  Pages     // what can be visited
	Reader Chatter   // sums pages up; may be nil
	Model  Chatter   // what model_search asks
	Python *sandbox.Python
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
				missing = "--text-index, retrieval.text_url or retrieval.web"
			}
		case ImageByText:
			r = imageSearch{t, src.Image, pics}
			if src.Image == nil {
				missing = "--image-index, retrieval.image_url or retrieval.images"
			}
		case ImageByLens:
			r = lens{t, src.Lens, pics}
			if src.Lens == nil {
				missing = "--lens, or retrieval.lens and --published"
			}
		case CropAndSearch:
			r = crop{Cropper{t, src.Crops}, src.Store}
			if src.Crops == nil {
				missing = "--gallery"
			}
		case Visit:
			r = visit{t, src.Pages, src.Reader}
			if src.Pages == nil {
				missing = "--pages or retrieval.pages"
			}
		case ModelSearch:
			r = modelSearch{t, src.Model}
			if src.Model == nil {
				missing = "retrieval.model_url"
			}
		case Python:
			r = python{src.Python}
			if src.Python == nil {
				missing = "a sandbox"
			}
		default:
			return nil, fail.WithHint(fail.New(fail.Usage, "read recipe", "", "tools: there is no tool %q", KindOf(t)),
				"tools: "+strings.Join([]string{TextSearch, ImageByText, ImageByLens, CropAndSearch, Visit, ModelSearch, Python}, ", "))
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
	ctx, list := noting(ctx)
	r, err := b.tools[c.Name].run(ctx, q, c)
	r.Sources = list.sorted()
	return r, err
}

// refuse is the answer to a call that cannot be run: the model reads the reason.
func refuse(problem string) Result { return Result{Text: problem, Problem: problem} }
