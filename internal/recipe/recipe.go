// Package recipe holds the settings that make one system that system: prompts,
// protocol, tools, limits, sampling, rewards, judge, SFT and GRPO. A recipe is a
// YAML file; it can extend another, and any field can be overridden by a dotted
// path (grpo.lr=2e-6). Unknown keys are errors. The package reads recipes; it
// gives no meaning to them.
package recipe

import "cmp"

// Recipe is one system's settings. Every job hashes only the sections it
// depends on, so that changing grpo.lr never makes a rollout stale.
type Recipe struct {
	Name      string    `yaml:"name" json:"name"`
	Extends   string    `yaml:"extends,omitempty" json:"-"`
	Seed      uint64    `yaml:"seed" json:"seed"`
	Protocol  Protocol  `yaml:"protocol" json:"protocol"`
	Tools     []Tool    `yaml:"tools" json:"tools"`
	Retrieval Retrieval `yaml:"retrieval" json:"retrieval"`
	Sampling  Samplings `yaml:"sampling" json:"sampling"`
	Rollout   Rollout   `yaml:"rollout" json:"rollout"`
	Reward    Reward    `yaml:"reward" json:"reward"`
	Judge     Judge     `yaml:"judge" json:"judge"`
	Model     Model     `yaml:"model" json:"model"`
	SFT       SFT       `yaml:"sft" json:"sft"`
	GRPO      GRPO      `yaml:"grpo" json:"grpo"`
	Eval      Eval      `yaml:"eval" json:"eval"`
	Curate    Curate    `yaml:"curate,omitempty" json:"curate,omitzero"`
	Lessons   Lessons   `yaml:"lessons,omitempty" json:"lessons,omitzero"`
	Synth     Synth     `yaml:"synth,omitempty" json:"synth,omitzero"`

	Launch   map[string]Task    `yaml:"launch,omitempty" json:"-"`                    // what a task of a stage takes, by the name of its job; default is for the others
	Mappings map[string]Mapping `yaml:"mappings,omitempty" json:"mappings,omitempty"` // formats of prep, by name
}

// Task is what one task of a stage takes when the stage is made by many processes
// (docs/slurm.md). It changes no result.
type Task struct {
	CPUs     int     `yaml:"cpus,omitempty"`      // 0: one
	MemoryGB float64 `yaml:"memory_gb,omitempty"` // of the whole task
	Minutes  int     `yaml:"minutes,omitempty"`   // after which a cluster ends it
	GPUs     int     `yaml:"gpus,omitempty"`      //
	GPU      string  `yaml:"gpu,omitempty"`       // kind of GPU, as the cluster names it
	Shards   int     `yaml:"shards,omitempty"`    // made by one task; 0: as many as give every place two tasks
	Tasks    int     `yaml:"tasks,omitempty"`     // at once; 0: as many as there is room for
}

// Needs is what a task of the job takes: what launch.JOB says, and launch.default
// for what it does not say.
func (r *Recipe) Needs(job string) Task {
	t, d := r.Launch[job], r.Launch["default"]
	return Task{cmp.Or(t.CPUs, d.CPUs, 1), cmp.Or(t.MemoryGB, d.MemoryGB), cmp.Or(t.Minutes, d.Minutes), cmp.Or(t.GPUs, d.GPUs),
		cmp.Or(t.GPU, d.GPU), cmp.Or(t.Shards, d.Shards), cmp.Or(t.Tasks, d.Tasks)}
}

// Protocol is how policy and environment talk.
type Protocol struct {
	Name           string `yaml:"name" json:"name"`                       // how turns are read: mm-deepresearch, search-r1, mmsearch-r1, vision-deepresearch, rag, direct
	System         string `yaml:"system" json:"system"`                   // system message
	UserPrefix     string `yaml:"user_prefix" json:"user_prefix"`         // before the question in the user message
	ToolSchemas    bool   `yaml:"tool_schemas" json:"tool_schemas"`       // send the tools' JSON schemas for the chat template
	MaxToolCalls   int    `yaml:"max_tool_calls" json:"max_tool_calls"`   // tool rounds a trajectory may use; after the last one a turn without tools remains
	CallsPerTurn   int    `yaml:"calls_per_turn" json:"calls_per_turn"`   // calls executed of one turn; further ones are answered with an error
	ResponseTokens int    `yaml:"response_tokens" json:"response_tokens"` // all tokens after the first prompt, observations included
	TurnTokens     int    `yaml:"turn_tokens" json:"turn_tokens"`         // sampled tokens of one turn
	ToolChars      int    `yaml:"tool_chars" json:"tool_chars"`           // observation text limit, cut in the middle

	// What other systems than the first need; a recipe without them is as before.
	SystemText        string  `yaml:"system_text,omitempty" json:"system_text,omitempty"`               // system message of a question without images; empty: System
	Date              string  `yaml:"date,omitempty" json:"date,omitempty"`                             // told in the system message; a recipe's, not the clock's
	ObservationTokens int     `yaml:"observation_tokens,omitempty" json:"observation_tokens,omitempty"` // observation limit in the model's tokens, cut at the end
	AfterImage        string  `yaml:"after_image,omitempty" json:"after_image,omitempty"`               // mmsearch-r1, rag: stands behind an image search's result
	AfterText         string  `yaml:"after_text,omitempty" json:"after_text,omitempty"`                 // likewise, of a text search
	FinalAnswer       bool    `yaml:"final_answer,omitempty" json:"final_answer,omitempty"`             // with its last result the policy is told to answer now
	FinalText         string  `yaml:"final_text,omitempty" json:"final_text,omitempty"`                 // in these words; empty: the protocol's
	MaxBadTurns       int     `yaml:"max_bad_turns,omitempty" json:"max_bad_turns,omitempty"`           // so many turns in a row that ask for nothing that can be run end the trajectory; 0 = no limit
	Repetition        float64 `yaml:"repetition,omitempty" json:"repetition,omitempty"`                 // a turn with a smaller share of different 30-character runs ends the trajectory; 0 = off
	RepetitionWords   int     `yaml:"repetition_words,omitempty" json:"repetition_words,omitempty"`     // looked at only in turns of more words
	Bridge            string  `yaml:"bridge,omitempty" json:"bridge,omitempty"`                         // .Question .Looks: the user message of a policy without eyes, which goes on after the looks of synthesised questions (docs/synth.md)
}

// Tool is one tool of the policy.
type Tool struct {
	Name         string  `yaml:"name" json:"name"` // text_search, image_search_by_text_query, image_search_by_lens
	Description  string  `yaml:"description" json:"description"`
	TopK         int     `yaml:"topk" json:"topk"`
	Threshold    float32 `yaml:"threshold" json:"threshold"`         // hits below are dropped
	Images       int     `yaml:"images" json:"images"`               // images returned to the policy
	ImagePixels  int     `yaml:"image_pixels" json:"image_pixels"`   // area limit of a returned image
	PassageChars int     `yaml:"passage_chars" json:"passage_chars"` // per passage, 0 = whole

	Kind     string  `yaml:"kind,omitempty" json:"kind,omitempty"`           // what it does, when the name does not say: text_search, …
	Format   string  `yaml:"format,omitempty" json:"format,omitempty"`       // how hits are written: doc (default), doc_tight, numbered, links
	MaxCalls int     `yaml:"max_calls,omitempty" json:"max_calls,omitempty"` // in a trajectory; one more ends it. 0 = no limit
	Scales   []int   `yaml:"scales,omitempty" json:"scales,omitempty"`       // crop_and_search: each box is also looked at with so many percent of its size; empty: 100
	Enlarge  int     `yaml:"enlarge,omitempty" json:"enlarge,omitempty"`     // crop_and_search: factor on a crop's sides
	Model    string  `yaml:"model,omitempty" json:"model,omitempty"`         // model_search, and the reader of pages: its model
	Heat     float32 `yaml:"temperature,omitempty" json:"temperature,omitempty"`
}

// Retrieval is the client side of search.
type Retrieval struct {
	TextURL  string `yaml:"text_url" json:"text_url"` // empty: the index is opened in the process
	ImageURL string `yaml:"image_url" json:"image_url"`

	ModelURL    string `yaml:"model_url,omitempty" json:"model_url,omitempty"`       // OpenAI-compatible server that model_search asks
	ReaderURL   string `yaml:"reader_url,omitempty" json:"reader_url,omitempty"`     // and that sums up pages for visit; empty: pages are shown as they are
	ReaderModel string `yaml:"reader_model,omitempty" json:"reader_model,omitempty"` // its model

	// Live search: which provider answers in the place of a local index or store.
	Web       string            `yaml:"web,omitempty" json:"web,omitempty"`               // text search: serper, serpapi, jina
	Read      bool              `yaml:"read,omitempty" json:"read,omitempty"`             // its hits are read: what their pages say, through the reader if there is one, stands in the place of the snippets
	Images    string            `yaml:"images,omitempty" json:"images,omitempty"`         // image search by text: serper, serpapi
	Lens      string            `yaml:"lens,omitempty" json:"lens,omitempty"`             // image search by lens: serper, serpapi
	Crops     string            `yaml:"crops,omitempty" json:"crops,omitempty"`           // crop_and_search: crops are uploaded and searched for by lens: serper, serpapi; empty: --gallery
	ReadCrops bool              `yaml:"read_crops,omitempty" json:"read_crops,omitempty"` // pages that crops are found on are read, with the crop before the reader's eyes
	Pages     string            `yaml:"pages,omitempty" json:"pages,omitempty"`           // visits, and what is read: jina, serper, direct
	Language  string            `yaml:"language,omitempty" json:"language,omitempty"`     // of searches: en
	Country   string            `yaml:"country,omitempty" json:"country,omitempty"`       // likewise: us
	Allow     []string          `yaml:"allow,omitempty" json:"allow,omitempty"`           // host:port that may be fetched although private: an intranet
	Gateways  map[string]string `yaml:"gateways,omitempty" json:"gateways,omitempty"`     // addresses in the place of the providers' own, by provider
	KeepDays  int               `yaml:"keep_days,omitempty" json:"-"`                     // how long results are kept in the cache; 0: 30
	Limits    map[string]Limit  `yaml:"limits,omitempty" json:"-"`                        // by provider
}

// Limit is how a provider may be used, and what it takes.
type Limit struct {
	PerSecond float64 `yaml:"per_second,omitempty" json:"-"` // requests, over all processes that share the cache; 0: no limit
	Burst     int     `yaml:"burst,omitempty" json:"-"`      // requests that may come at once
	Price     float64 `yaml:"price,omitempty" json:"-"`      // dollars a thousand requests; 0: not known
}

// Samplings holds the sampling of training rollouts and of evaluation.
type Samplings struct {
	Train Sampling `yaml:"train" json:"train"`
	Eval  Sampling `yaml:"eval" json:"eval"`
}

// Sampling is how turns are drawn. TopK 0 or -1 and TopP 1 mean off.
type Sampling struct {
	N           int     `yaml:"n" json:"n"` // trajectories a question
	Temperature float32 `yaml:"temperature" json:"temperature"`
	TopP        float32 `yaml:"top_p" json:"top_p"`
	TopK        int     `yaml:"top_k" json:"top_k"`
}

// Rollout is how many questions an epoch takes and how they are run.
type Rollout struct {
	Questions   int      `yaml:"questions" json:"questions"`      // questions per epoch, drawn by seed and epoch; 0 = all
	PolicyURLs  []string `yaml:"policy_urls,omitempty" json:"-"`  // servers of the policy, unless a flag names one; no keys, no user names
	PolicyModel string   `yaml:"policy_model,omitempty" json:"-"` // their model; empty: their only one
	Concurrency int      `yaml:"concurrency" json:"-"`            // trajectories at once; does not change the result
	PerServer   int      `yaml:"per_server,omitempty" json:"-"`   // requests at once to one of several policy servers; 0 = any number
	TimeoutSec  int      `yaml:"timeout_sec" json:"-"`            // one policy request
	DeadlineSec int      `yaml:"deadline_sec" json:"-"`           // one trajectory
	Price       float64  `yaml:"price" json:"-"`                  // dollars a million sampled tokens; 0 = not known
	PromptPrice float64  `yaml:"prompt_price,omitempty" json:"-"` // and of prompts

	// Of training rollouts of curated questions; others have nothing to choose by.
	Filter Filter `yaml:"filter,omitempty" json:"filter,omitzero"`
	Order  string `yaml:"order,omitempty" json:"order,omitempty"` // curriculum: easy_first, hard_first; empty: questions are drawn by seed and epoch
}

// Filter takes questions by their trials.
type Filter struct {
	Needs   []string `yaml:"needs,omitempty" json:"needs,omitempty"`       // free, image, text, mixed; empty: all
	MinPass float64  `yaml:"min_pass,omitempty" json:"min_pass,omitempty"` // least pass rate
	MaxPass float64  `yaml:"max_pass,omitempty" json:"max_pass,omitempty"` // greatest; 0: no limit
}

// IsZero says that nothing is asked for.
func (f Filter) IsZero() bool { return len(f.Needs) == 0 && f.MinPass == 0 && f.MaxPass == 0 }

// Reward is how a judged trajectory becomes a number.
type Reward struct {
	Name     string  `yaml:"name" json:"name"` // mm-deepresearch, search-r1, search-r1-format, mmsearch-r1, vision-deepresearch, exact, sub_exact, f1, numeric, date
	Format   float64 `yaml:"format" json:"format"`
	Accuracy float64 `yaml:"accuracy" json:"accuracy"`

	Match     string  `yaml:"match,omitempty" json:"match,omitempty"`           // what makes an answer right without a judge: exact (default), sub_exact, f1, numeric, date
	Penalty   float64 `yaml:"penalty,omitempty" json:"penalty,omitempty"`       // mmsearch-r1, mm-deepresearch: share of the accuracy that searching costs
	PerSearch bool    `yaml:"per_search,omitempty" json:"per_search,omitempty"` // likewise: it costs that for every search
	Structure float64 `yaml:"structure,omitempty" json:"structure,omitempty"`   // search-r1-format: for good form
	Final     float64 `yaml:"final,omitempty" json:"final,omitempty"`           // search-r1-format: for an answer tag
	Retrieval float64 `yaml:"retrieval,omitempty" json:"retrieval,omitempty"`   // search-r1-format: for a result that holds the answer
}

// Judge is the LLM judge that is asked when exact match fails.
type Judge struct {
	URL         string     `yaml:"url,omitempty" json:"-"` // its server, unless --judge-url names one; no key, no user name
	Model       string     `yaml:"model" json:"model"`
	System      string     `yaml:"system" json:"system"`
	Prompt      string     `yaml:"prompt" json:"prompt"` // text/template over .Question .Truth .Candidates .Answer
	Temperature float32    `yaml:"temperature" json:"temperature"`
	MaxTokens   int        `yaml:"max_tokens" json:"max_tokens"`
	Concurrency int        `yaml:"concurrency" json:"-"`
	TimeoutSec  int        `yaml:"timeout_sec" json:"-"`
	Panel       []Panelist `yaml:"panel,omitempty" json:"panel,omitempty"`             // several judges, instead of that of --judge-url; more than half of them decide
	CheckExact  bool       `yaml:"check_exact,omitempty" json:"check_exact,omitempty"` // judges are asked about exact matches too, to see how far they agree; the verdict stays
	Images      bool       `yaml:"images,omitempty" json:"images,omitempty"`           // judges see the question's images
	Votes       int        `yaml:"votes,omitempty" json:"votes,omitempty"`             // verdicts asked of the judge, with different seeds; the majority decides. 0 and 1: one
	Structured  bool       `yaml:"structured,omitempty" json:"structured,omitempty"`   // ask for {"verdict": "yes" or "no"} by schema, where the server takes one
	Price       float64    `yaml:"price" json:"-"`                                     // dollars a million sampled tokens, for estimates; 0 = not known
	MaxFailed   float64    `yaml:"max_failed" json:"max_failed"`                       // share of rows without a verdict above which the job ends with exit 3
}

// Panelist is one judge of a panel.
type Panelist struct {
	Model  string `yaml:"model" json:"model"`         // no two of a panel have the same name
	URL    string `yaml:"url" json:"-"`               // where it is served does not change what it says
	KeyEnv string `yaml:"key_env,omitempty" json:"-"` // environment variable of its key; empty: JUDGE_API_KEY
}

// Model describes a policy made from scratch (the demo); real policies are folders.
type Model struct {
	Vocab        int `yaml:"vocab" json:"vocab"`
	Hidden       int `yaml:"hidden" json:"hidden"`
	Layers       int `yaml:"layers" json:"layers"`
	Heads        int `yaml:"heads" json:"heads"`
	KVHeads      int `yaml:"kv_heads" json:"kv_heads"`
	HeadDim      int `yaml:"head_dim" json:"head_dim"`
	Intermediate int `yaml:"intermediate" json:"intermediate"`
	VisionHidden int `yaml:"vision_hidden" json:"vision_hidden"`
	VisionLayers int `yaml:"vision_layers" json:"vision_layers"`
	VisionHeads  int `yaml:"vision_heads" json:"vision_heads"`
	PatchSize    int `yaml:"patch_size" json:"patch_size"`
	MaxPixels    int `yaml:"max_pixels" json:"max_pixels"`
	MinPixels    int `yaml:"min_pixels" json:"min_pixels"`
	// InitStd is the standard deviation of random matrices; 0: 0.02.
	InitStd float64 `yaml:"init_std,omitempty" json:"init_std,omitempty"`
}

// Optimizer is AdamW with decoupled weight decay and global-norm clipping.
type Optimizer struct {
	LR          float64 `yaml:"lr" json:"lr"`
	Schedule    string  `yaml:"schedule" json:"schedule"` // constant, linear, cosine (to MinLR)
	Warmup      float64 `yaml:"warmup" json:"warmup"`     // share of the steps
	MinLR       float64 `yaml:"min_lr" json:"min_lr"`
	Beta1       float64 `yaml:"beta1" json:"beta1"`
	Beta2       float64 `yaml:"beta2" json:"beta2"`
	Eps         float64 `yaml:"eps" json:"eps"`
	WeightDecay float64 `yaml:"weight_decay" json:"weight_decay"`
	ClipNorm    float64 `yaml:"clip_norm" json:"clip_norm"`
	Master      string  `yaml:"master,omitempty" json:"master,omitempty"` // float32 or split: the policy sees its weights in bfloat16; empty: in float32
	Offload     bool    `yaml:"offload,omitempty" json:"-"`               // on a GPU: moments and masters stand in host memory; changes no bit
}

// SFT is the warm start.
type SFT struct {
	Optimizer    Optimizer `yaml:"optimizer" json:"optimizer"`
	Epochs       int       `yaml:"epochs" json:"epochs"`
	BatchTokens  int       `yaml:"batch_tokens" json:"batch_tokens"` // tokens of one optimizer batch
	PackTokens   int       `yaml:"pack_tokens" json:"pack_tokens"`   // tokens of one forward pass
	OnlyCorrect  bool      `yaml:"only_correct" json:"only_correct"` // needs a judged dataset
	FreezeVision bool      `yaml:"freeze_vision" json:"freeze_vision"`
	LoRA         LoRA      `yaml:"lora,omitempty" json:"lora,omitzero"`
	Recompute    string    `yaml:"recompute,omitempty" json:"-"` // what a pass computes again for its gradient: none, selective, full, auto (default; on a GPU the first that fits); changes no bit
	SaveSteps    int       `yaml:"save_steps" json:"-"`          // a resumable state every so many steps
}

// GRPO is the policy update from one judged rollout dataset. What is left empty
// means what it meant before it existed: those fields are not hashed then.
type GRPO struct {
	Optimizer    Optimizer `yaml:"optimizer" json:"optimizer"`
	Loss         string    `yaml:"loss,omitempty" json:"loss,omitempty"` // ppo (default), gspo, cispo, sapo, dppo
	Advantage    string    `yaml:"advantage" json:"advantage"`           // grpo (std-normalised), dr_grpo, none, rloo, batch, max_rl
	AdvantageEps float64   `yaml:"advantage_eps" json:"advantage_eps"`
	ClipLow      float64   `yaml:"clip_low" json:"clip_low"`
	ClipHigh     float64   `yaml:"clip_high" json:"clip_high"`
	DualClip     float64   `yaml:"dual_clip" json:"dual_clip"`                           // ppo; 0 = off
	TauPositive  float64   `yaml:"tau_positive,omitempty" json:"tau_positive,omitempty"` // sapo; 0 = 1
	TauNegative  float64   `yaml:"tau_negative,omitempty" json:"tau_negative,omitempty"` // sapo; 0 = 1.05
	OldKL        float64   `yaml:"old_kl,omitempty" json:"old_kl,omitempty"`             // dppo: coefficient of (new-old)²
	KL           float64   `yaml:"kl" json:"kl"`                                         // coefficient of the term against the reference
	KLEstimator  string    `yaml:"kl_estimator" json:"kl_estimator"`                     // k1, k2, k3, k3+ (value of k3, gradient of k2)
	KLImportance bool      `yaml:"kl_importance,omitempty" json:"kl_importance,omitempty"`
	Entropy      float64   `yaml:"entropy" json:"entropy"`
	Aggregation  string    `yaml:"aggregation" json:"aggregation"`                         // token-mean, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm, rollout-mean-token-mean
	NormTokens   int       `yaml:"norm_tokens,omitempty" json:"norm_tokens,omitempty"`     // the constant of seq-mean-token-sum-norm
	OldLogprobs  string    `yaml:"old_logprobs" json:"old_logprobs"`                       // bypass (as sampled), recompute (decoupled pass before the first update), current
	RouterReplay string    `yaml:"router_replay,omitempty" json:"router_replay,omitempty"` // of a policy with experts, with old_logprobs recompute: old (default; empty), the experts of that pass in all updates; off
	Updates      int       `yaml:"updates" json:"updates"`                                 // optimizer steps over the file
	Passes       int       `yaml:"passes" json:"passes"`                                   // times every row is used
	PackTokens   int       `yaml:"pack_tokens" json:"pack_tokens"`
	Truncated    string    `yaml:"truncated" json:"truncated"`                         // truncated rows: keep, mask (in the statistics only), drop
	Retokenised  string    `yaml:"retokenised,omitempty" json:"retokenised,omitempty"` // rows whose tokens were made of the texts: refuse (default), accept
	Failed       string    `yaml:"failed,omitempty" json:"failed,omitempty"`           // failed rows: exclude (default), zero, drop_group
	// ZeroVariance is what becomes of groups whose rewards are all equal: keep,
	// drop, or (default) drop exactly when neither KL nor entropy acts on them.
	ZeroVariance         string     `yaml:"zero_variance,omitempty" json:"zero_variance,omitempty"`
	ZeroAdvInDenominator bool       `yaml:"zero_adv_in_denominator,omitempty" json:"zero_adv_in_denominator,omitempty"` // dropped ones still count in the divisor
	Overlong             Overlong   `yaml:"overlong,omitempty" json:"overlong,omitzero"`
	Correction           Correction `yaml:"correction,omitempty" json:"correction,omitzero"`
	FreezeVision         bool       `yaml:"freeze_vision" json:"freeze_vision"`
	LoRA                 LoRA       `yaml:"lora,omitempty" json:"lora,omitzero"`
	MaxMismatch          float64    `yaml:"max_mismatch" json:"max_mismatch"` // stop when mean |new-old log-prob| before the first update exceeds it
	Recompute            string     `yaml:"recompute,omitempty" json:"-"`     // as in SFT
	SaveSteps            int        `yaml:"save_steps" json:"-"`
}

// Overlong is DAPO's soft penalty: a row of more than MaxTokens-Buffer tokens
// after the first prompt loses reward, linearly up to Penalty at MaxTokens.
type Overlong struct {
	MaxTokens int     `yaml:"max_tokens,omitempty" json:"max_tokens,omitempty"` // 0 = off
	Buffer    int     `yaml:"buffer_tokens,omitempty" json:"buffer_tokens,omitempty"`
	Penalty   float64 `yaml:"penalty,omitempty" json:"penalty,omitempty"` // 0 = 1
}

// Correction is how rows are weighed and rejected when the sampler's log-probs
// differ from those recomputed here. It needs old_logprobs: recompute.
type Correction struct {
	Weights             string      `yaml:"weights,omitempty" json:"weights,omitempty"` // token, sequence (product), geometric (mean); empty = 1
	Low                 float64     `yaml:"low,omitempty" json:"low,omitempty"`         // 0 = none
	High                float64     `yaml:"high,omitempty" json:"high,omitempty"`
	Outside             string      `yaml:"outside,omitempty" json:"outside,omitempty"` // clamp (default; truncated importance sampling), zero (IcePop)
	Normalize           bool        `yaml:"normalize,omitempty" json:"normalize,omitempty"`
	Reject              []Rejection `yaml:"reject,omitempty" json:"reject,omitempty"`
	RejectInDenominator bool        `yaml:"reject_in_denominator,omitempty" json:"reject_in_denominator,omitempty"`
}

// Rejection takes tokens or rows out of the loss. By is token, seq-sum, seq-mean
// or seq-max, a hyphen, and k1, k2 or k3. Of k1 the bounds are ratios, of the
// others High bounds the divergence.
type Rejection struct {
	By   string  `yaml:"by" json:"by"`
	Low  float64 `yaml:"low,omitempty" json:"low,omitempty"`
	High float64 `yaml:"high" json:"high"`
}

// LoRA trains low-rank factors beside frozen weights (arXiv 2106.09685).
type LoRA struct {
	Rank    int      `yaml:"rank,omitempty" json:"rank,omitempty"`   // 0 = all weights are trained
	Alpha   float64  `yaml:"alpha,omitempty" json:"alpha,omitempty"` // the factors' product is scaled by alpha/rank; 0 = rank
	RSLoRA  bool     `yaml:"rslora,omitempty" json:"rslora,omitempty"`
	Targets []string `yaml:"targets,omitempty" json:"targets,omitempty"` // last parts of module names; empty = all linear layers of the decoder
}

// Eval is how results are summarised.
type Eval struct {
	Bootstrap int `yaml:"bootstrap" json:"bootstrap"` // resamples of the interval
	Samples   int `yaml:"samples" json:"samples"`     // trajectories shown in the report per epoch

	Nightly Nightly `yaml:"nightly,omitempty" json:"-"` // changes no result
}

// Nightly is what make nightly evaluates, and what it takes for a regression.
type Nightly struct {
	Benchmarks []string `yaml:"benchmarks,omitempty" json:"-"` // empty: BENCH
	MaxDrop    float64  `yaml:"max_drop,omitempty" json:"-"`   // share by which accuracy may fall below the last good night; 0: no bound
}

// Curate is how questions are labelled and drawn by what rollouts of them searched.
type Curate struct {
	Rollouts int `yaml:"rollouts,omitempty" json:"rollouts,omitempty"` // judged rollouts that a question must have
	MinFree  int `yaml:"min_free,omitempty" json:"min_free,omitempty"` // right ones without a search that make it search-free; 0: 1
	Required int `yaml:"required,omitempty" json:"required,omitempty"` // questions drawn that need a search; both 0: all
	Free     int `yaml:"free,omitempty" json:"free,omitempty"`         // and that need none
	Bins     int `yaml:"bins,omitempty" json:"bins,omitempty"`         // strata of the pass rate; 0: 4

	Truth map[string]string `yaml:"truth,omitempty" json:"truth,omitempty"` // what the questions of a category need, where that is known: labels are compared with it
}

// Strata is the number of strata of the pass rate.
func (c Curate) Strata() int { return cmp.Or(c.Bins, 4) }

// Lessons is which trajectories are chosen to learn from.
type Lessons struct {
	Select          string  `yaml:"select,omitempty" json:"select,omitempty"`             // best (default): one right one a question; all: every right one
	PerQuestion     int     `yaml:"per_question,omitempty" json:"per_question,omitempty"` // all: so many of a question at most; 0 = no limit
	MinReward       float64 `yaml:"min_reward,omitempty" json:"min_reward,omitempty"`
	MinTurns        int     `yaml:"min_turns,omitempty" json:"min_turns,omitempty"`   // of the policy
	MaxTurns        int     `yaml:"max_turns,omitempty" json:"max_turns,omitempty"`   // likewise; 0 = no limit
	MaxTokens       int     `yaml:"max_tokens,omitempty" json:"max_tokens,omitempty"` // sampled; 0 = no limit
	Repetition      float64 `yaml:"repetition,omitempty" json:"repetition,omitempty"` // as in protocol
	RepetitionWords int     `yaml:"repetition_words,omitempty" json:"repetition_words,omitempty"`
	Clean           bool    `yaml:"clean,omitempty" json:"clean,omitempty"` // refuse rows with a turn whose call could not be read, instead of leaving the turn out of the loss
	Near            float64 `yaml:"near,omitempty" json:"near,omitempty"`   // two of a question whose word pairs are so similar (Jaccard) are the same; 0: only equal ones
}
