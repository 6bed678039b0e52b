// Package recipe holds the settings that make one system that system: prompts,
// protocol, tools, limits, sampling, rewards, judge, SFT and GRPO. A recipe is a
// YAML file; it can extend another, and any field can be overridden by a dotted
// path (grpo.lr=2e-6). Unknown keys are errors. The package reads recipes; it
// gives no meaning to them.
package recipe

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
	Questions   int     `yaml:"questions" json:"questions"` // questions per epoch, drawn by seed and epoch; 0 = all
	Concurrency int     `yaml:"concurrency" json:"-"`       // trajectories at once; does not change the result
	TimeoutSec  int     `yaml:"timeout_sec" json:"-"`       // one policy request
	DeadlineSec int     `yaml:"deadline_sec" json:"-"`      // one trajectory
	Price       float64 `yaml:"price" json:"-"`             // dollars a million sampled tokens, for estimates; 0 = not known
}

// Reward is how a judged trajectory becomes a number.
type Reward struct {
	Name     string  `yaml:"name" json:"name"` // mm-deepresearch, search-r1, search-r1-format, mmsearch-r1, vision-deepresearch, exact, sub_exact, f1, numeric, date
	Format   float64 `yaml:"format" json:"format"`
	Accuracy float64 `yaml:"accuracy" json:"accuracy"`

	Match     string  `yaml:"match,omitempty" json:"match,omitempty"`           // what makes an answer right without a judge: exact (default), sub_exact, f1, numeric, date
	Penalty   float64 `yaml:"penalty,omitempty" json:"penalty,omitempty"`       // mmsearch-r1: share of the accuracy that searching costs
	PerSearch bool    `yaml:"per_search,omitempty" json:"per_search,omitempty"` // mmsearch-r1: it costs that for every search
	Structure float64 `yaml:"structure,omitempty" json:"structure,omitempty"`   // search-r1-format: for good form
	Final     float64 `yaml:"final,omitempty" json:"final,omitempty"`           // search-r1-format: for an answer tag
	Retrieval float64 `yaml:"retrieval,omitempty" json:"retrieval,omitempty"`   // search-r1-format: for a result that holds the answer
}

// Judge is the LLM judge that is asked when exact match fails.
type Judge struct {
	Model       string  `yaml:"model" json:"model"`
	System      string  `yaml:"system" json:"system"`
	Prompt      string  `yaml:"prompt" json:"prompt"` // text/template over .Question .Truth .Candidates .Answer
	Temperature float32 `yaml:"temperature" json:"temperature"`
	MaxTokens   int     `yaml:"max_tokens" json:"max_tokens"`
	Concurrency int     `yaml:"concurrency" json:"-"`
	TimeoutSec  int     `yaml:"timeout_sec" json:"-"`
	Votes       int     `yaml:"votes,omitempty" json:"votes,omitempty"`           // verdicts asked of the judge, with different seeds; the majority decides. 0 and 1: one
	Structured  bool    `yaml:"structured,omitempty" json:"structured,omitempty"` // ask for {"verdict": "yes" or "no"} by schema, where the server takes one
	Price       float64 `yaml:"price" json:"-"`                                   // dollars a million sampled tokens, for estimates; 0 = not known
	MaxFailed   float64 `yaml:"max_failed" json:"max_failed"`                     // share of rows without a verdict above which the job ends with exit 3
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
	SaveSteps    int       `yaml:"save_steps" json:"-"` // a resumable state every so many steps
}

// GRPO is the policy update from one judged rollout dataset. What is left empty
// means what it meant before it existed: those fields are not hashed then.
type GRPO struct {
	Optimizer    Optimizer `yaml:"optimizer" json:"optimizer"`
	Loss         string    `yaml:"loss,omitempty" json:"loss,omitempty"` // ppo (default), gspo, cispo, sapo
	Advantage    string    `yaml:"advantage" json:"advantage"`           // grpo (std-normalised), dr_grpo, none, rloo, batch, max_rl
	AdvantageEps float64   `yaml:"advantage_eps" json:"advantage_eps"`
	ClipLow      float64   `yaml:"clip_low" json:"clip_low"`
	ClipHigh     float64   `yaml:"clip_high" json:"clip_high"`
	DualClip     float64   `yaml:"dual_clip" json:"dual_clip"`                           // ppo; 0 = off
	TauPositive  float64   `yaml:"tau_positive,omitempty" json:"tau_positive,omitempty"` // sapo; 0 = 1
	TauNegative  float64   `yaml:"tau_negative,omitempty" json:"tau_negative,omitempty"` // sapo; 0 = 1.05
	KL           float64   `yaml:"kl" json:"kl"`                                         // coefficient of the term against the reference
	KLEstimator  string    `yaml:"kl_estimator" json:"kl_estimator"`                     // k1, k2, k3, k3+ (value of k3, gradient of k2)
	KLImportance bool      `yaml:"kl_importance,omitempty" json:"kl_importance,omitempty"`
	Entropy      float64   `yaml:"entropy" json:"entropy"`
	Aggregation  string    `yaml:"aggregation" json:"aggregation"`                     // token-mean, seq-mean-token-sum, seq-mean-token-mean, seq-mean-token-sum-norm
	NormTokens   int       `yaml:"norm_tokens,omitempty" json:"norm_tokens,omitempty"` // the constant of seq-mean-token-sum-norm
	OldLogprobs  string    `yaml:"old_logprobs" json:"old_logprobs"`                   // bypass (as sampled), recompute (decoupled pass before the first update), current
	Updates      int       `yaml:"updates" json:"updates"`                             // optimizer steps over the file
	Passes       int       `yaml:"passes" json:"passes"`                               // times every row is used
	PackTokens   int       `yaml:"pack_tokens" json:"pack_tokens"`
	Truncated    string    `yaml:"truncated" json:"truncated"`               // truncated rows: keep, mask (in the statistics only), drop
	Failed       string    `yaml:"failed,omitempty" json:"failed,omitempty"` // failed rows: exclude (default), zero, drop_group
	// ZeroVariance is what becomes of groups whose rewards are all equal: keep,
	// drop, or (default) drop exactly when neither KL nor entropy acts on them.
	ZeroVariance         string     `yaml:"zero_variance,omitempty" json:"zero_variance,omitempty"`
	ZeroAdvInDenominator bool       `yaml:"zero_adv_in_denominator,omitempty" json:"zero_adv_in_denominator,omitempty"` // dropped ones still count in the divisor
	Overlong             Overlong   `yaml:"overlong,omitempty" json:"overlong,omitzero"`
	Correction           Correction `yaml:"correction,omitempty" json:"correction,omitzero"`
	FreezeVision         bool       `yaml:"freeze_vision" json:"freeze_vision"`
	LoRA                 LoRA       `yaml:"lora,omitempty" json:"lora,omitzero"`
	MaxMismatch          float64    `yaml:"max_mismatch" json:"max_mismatch"` // stop when mean |new-old log-prob| before the first update exceeds it
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
}
