// Command rollout lets a policy answer questions with tools and records every
// turn and token; see docs/rollouts.md.
package main

import (
	"context"
	"time"

	"searchloop/corpus/publish"
	"searchloop/indexer/flat/gpu"
	"searchloop/internal/budget"
	"searchloop/internal/job"
	"searchloop/rollout"
)

type command struct {
	job.Flags
	Questions   string        `placeholder:"DIR" help:"Questions dataset."`
	Images      []string      `sep:"none" placeholder:"DIR" help:"Folder of images, beside those in the datasets (repeatable)."`
	Lens        string        `placeholder:"DIR" help:"Lens dataset, for image_search_by_lens."`
	TextIndex   string        `placeholder:"DIR" help:"Index of passages, for text_search."`
	ImageIndex  string        `placeholder:"DIR" help:"Index of an image corpus, for image_search_by_text_query."`
	Encoder     string        `placeholder:"URL" help:"Server of the indices' encoder (key: EMBED_API_KEY), when it is not where it was when they were made."`
	Search      gpu.Flags     `embed:"" prefix:"index-" group:"Search in this process"`
	Gallery     string        `placeholder:"DIR" help:"Passages with images, for crop_and_search."`
	Pages       []string      `sep:"none" placeholder:"DIR" help:"Passages whose ids are addresses, for visit (repeatable)."`
	Published   string        `placeholder:"DIR" help:"Public addresses of the questions' images (lens --publish), for live lens search."`
	Publish     string        `group:"Crops" placeholder:"URL" help:"Where crops are uploaded for live lens search (retrieval.crops): s3://BUCKET/PREFIX or https://HOST/FOLDER, as of lens --publish."`
	Endpoint    string        `group:"Crops" placeholder:"URL" help:"S3-compatible storage, instead of AWS."`
	Public      string        `group:"Crops" placeholder:"URL" help:"Address below which everyone can read what was uploaded (default: signed addresses of S3, the address of PUT)."`
	Expires     time.Duration `group:"Crops" default:"24h" help:"How long signed addresses last."`
	Cache       string        `default:"data/cache" placeholder:"DIR|redis://HOST" help:"Where results of live search are kept, and limits shared: ${default}."`
	Record      string        `placeholder:"DIR" help:"Record what models and providers of live search answer."`
	Replay      string        `placeholder:"DIR" help:"Take all answers from a record; no model and no provider is asked."`
	Frozen      string        `placeholder:"DIR" help:"Take the answers of live search from a record, and everything else from where it is; what it lacks is not found."`
	MaxCost     float64       `placeholder:"DOLLARS" help:"Stop before live search costs more (default: no cap)."`
	MaxRequests int64         `placeholder:"N" help:"Stop after so many requests to the policy."`
	MaxTokens   int64         `placeholder:"N" help:"Stop after so many tokens of its prompts and turns. With prices in the recipe (rollout.price, prompt_price) --max-cost bounds what it costs too."`
	Policy      string        `placeholder:"DIR" help:"Folder of the policy; it is served in this process."`
	PolicyURL   []string      `sep:"none" placeholder:"URL" help:"OpenAI-compatible server of the policy, instead of a folder (key: POLICY_API_KEY); repeatable: all must serve the same model. @FILE: the addresses in that file. With --policy: servers of that folder."`
	PolicyModel string        `placeholder:"NAME" help:"Model of the policy servers (default: their only one)."`
	PolicyAPI   string        `name:"policy-api" enum:"openai,sglang,auto" default:"auto" help:"openai: chat completions. sglang: its own /generate, in token ids. auto: that where the server has it and the model's folder is here."`
	Tokenizer   string        `name:"policy-tokenizer" placeholder:"DIR" help:"Folder of the policy's tokenizer and processor (default: where the server says its model lies). Rows of a server without token ids get tokens of their texts by it, and say so."`
	Script      string        `name:"policy-script" placeholder:"NAME" help:"Script that plays the policy, instead of a model: teacher, oracle."`
	Out         string        `placeholder:"DIR" help:"Folder of the rollouts dataset."`
	RunName     string        `name:"run" placeholder:"NAME" help:"Name of the run."`
	Epoch       int           `help:"Epoch; it decides which questions are drawn, and the seeds."`
	Mode        string        `enum:"train,eval" default:"train" help:"train: the epoch's questions, exact tokens. eval: every question."`
	Limit       int           `placeholder:"N" help:"At most N questions."`
	Samples     int           `placeholder:"N" help:"Trajectories a question (default: by recipe)."`
	TensorBoard string        `name:"tensorboard" placeholder:"DIR" help:"Also write the metrics to event files in this folder."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return rollout.Run(ctx, r, rollout.Options{
		Questions: c.Questions, Images: c.Images, Lens: c.Lens, TextIndex: c.TextIndex, ImageIndex: c.ImageIndex, Encoder: c.Encoder, Search: c.Search, Gallery: c.Gallery, Pages: c.Pages,
		Publish:   publish.Options{To: c.Publish, Endpoint: c.Endpoint, Public: c.Public, Expires: c.Expires},
		Published: c.Published, Cache: c.Cache, Record: c.Record, Replay: c.Replay, Frozen: c.Frozen, MaxCost: c.MaxCost, Limits: budget.Limits{Dollars: c.MaxCost, Requests: c.MaxRequests, Tokens: c.MaxTokens},
		Policy: c.Policy, PolicyURLs: c.PolicyURL, PolicyModel: c.PolicyModel, PolicyAPI: c.PolicyAPI, Tokenizer: c.Tokenizer, Script: c.Script,
		Out: c.Out, Run: c.RunName, Epoch: c.Epoch, Mode: c.Mode, Limit: c.Limit, Samples: c.Samples, TensorBoard: c.TensorBoard,
	})
}

func main() {
	job.Main("rollout", "Let a policy answer questions with search tools.", &command{})
}
