// Command synth makes questions from images and pages; see docs/synth.md.
package main

import (
	"context"
	"time"

	"searchloop/corpus/publish"
	"searchloop/internal/budget"
	"searchloop/internal/job"
	"searchloop/synth/vqa"
)

type command struct {
	job.Flags
	Concepts   string   `placeholder:"FILE" help:"What questions are made about: a name a line, or JSON lines {concept, query, image, page, source, licence}."`
	TextIndex  string   `placeholder:"DIR" help:"Index of pages, for concepts that bring none."`
	ImageIndex string   `placeholder:"DIR" help:"Index of an image corpus, for concepts that bring none."`
	Gallery    string   `placeholder:"DIR" help:"Passages with images, which parts of images are compared with (kinds with crops)."`
	Against    []string `sep:"none" placeholder:"DIR" help:"Questions dataset that must stay unseen (repeatable)."`
	Split      string   `default:"train" help:"Split of the questions."`
	Out        string   `placeholder:"DIR" help:"Folder of the questions dataset."`

	WriterURL    string `name:"writer-url" placeholder:"URL" help:"OpenAI-compatible server that writes questions (key: WRITER_API_KEY)."`
	WriterModel  string `placeholder:"NAME" help:"Its model (default: by recipe, or its only one)."`
	CheckerURL   string `name:"checker-url" placeholder:"URL" help:"OpenAI-compatible server that checks them (key: CHECKER_API_KEY): another model."`
	CheckerModel string `placeholder:"NAME" help:"Its model (default: by recipe, or its only one)."`

	Publish  string        `group:"Crops" placeholder:"URL" help:"Where parts of images are uploaded for live search (retrieval.crops): s3://BUCKET/PREFIX or https://HOST/FOLDER, as of lens --publish."`
	Endpoint string        `group:"Crops" placeholder:"URL" help:"S3-compatible storage, instead of AWS."`
	Public   string        `group:"Crops" placeholder:"URL" help:"Address below which everyone can read what was uploaded."`
	Expires  time.Duration `group:"Crops" default:"24h" help:"How long signed addresses last."`

	MaxCost     float64 `placeholder:"DOLLARS" help:"Stop at this cost of models and, likewise, of live search (default: no cap)."`
	MaxRequests int64   `placeholder:"N" help:"Stop after so many requests to models."`
	MaxTokens   int64   `placeholder:"N" help:"Stop after so many tokens of prompts and replies."`
	Limit       int     `placeholder:"N" help:"At most N concepts."`
	Cache       string  `default:"data/cache" placeholder:"DIR|redis://HOST" help:"Where results of live search are kept: ${default}."`
	Record      string  `placeholder:"DIR" help:"Record what models and providers answer (docs/record.md)."`
	Replay      string  `placeholder:"DIR" help:"Take all answers from a record."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return vqa.Run(ctx, r, vqa.Options{Concepts: c.Concepts, TextIndex: c.TextIndex, ImageIndex: c.ImageIndex, Gallery: c.Gallery, Against: c.Against, Split: c.Split, Out: c.Out,
		WriterURL: c.WriterURL, WriterModel: c.WriterModel, CheckerURL: c.CheckerURL, CheckerModel: c.CheckerModel,
		Publish: publish.Options{To: c.Publish, Endpoint: c.Endpoint, Public: c.Public, Expires: c.Expires},
		Limits:  budget.Limits{Dollars: c.MaxCost, Requests: c.MaxRequests, Tokens: c.MaxTokens}, Limit: c.Limit, Cache: c.Cache, Record: c.Record, Replay: c.Replay})
}

func main() { job.Main("synth", "Make questions from images and pages.", &command{}) }
