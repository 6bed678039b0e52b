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
	Name           string `yaml:"name" json:"name"`                       // parser: mm-deepresearch
	System         string `yaml:"system" json:"system"`                   // system message
	UserPrefix     string `yaml:"user_prefix" json:"user_prefix"`         // before the question in the user message
	ToolSchemas    bool   `yaml:"tool_schemas" json:"tool_schemas"`       // send the tools' JSON schemas for the chat template
	MaxToolCalls   int    `yaml:"max_tool_calls" json:"max_tool_calls"`   // tool rounds a trajectory may use; after the last one a turn without tools remains
	CallsPerTurn   int    `yaml:"calls_per_turn" json:"calls_per_turn"`   // calls executed of one turn; further ones are answered with an error
	ResponseTokens int    `yaml:"response_tokens" json:"response_tokens"` // all tokens after the first prompt, observations included
	TurnTokens     int    `yaml:"turn_tokens" json:"turn_tokens"`         // sampled tokens of one turn
	ToolChars      int    `yaml:"tool_chars" json:"tool_chars"`           // observation text limit, cut in the middle
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
}

// Retrieval is the client side of search.
type Retrieval struct {
	TextURL  string `yaml:"text_url" json:"text_url"` // empty: the index is opened in the process
	ImageURL string `yaml:"image_url" json:"image_url"`
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
	Questions   int `yaml:"questions" json:"questions"` // questions per epoch, drawn by seed and epoch; 0 = all
	Concurrency int `yaml:"concurrency" json:"-"`       // trajectories at once; does not change the result
	TimeoutSec  int `yaml:"timeout_sec" json:"-"`       // one policy request
	DeadlineSec int `yaml:"deadline_sec" json:"-"`      // one trajectory
}

// Reward is how a judged trajectory becomes a number.
type Reward struct {
	Name     string  `yaml:"name" json:"name"` // mm-deepresearch
	Format   float64 `yaml:"format" json:"format"`
	Accuracy float64 `yaml:"accuracy" json:"accuracy"`
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
	MaxFailed   float64 `yaml:"max_failed" json:"max_failed"` // share of rows without a verdict above which the job ends with exit 3
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
	SaveSteps    int       `yaml:"save_steps" json:"-"` // a resumable state every so many steps
}

// GRPO is the policy update from one judged rollout dataset.
type GRPO struct {
	Optimizer    Optimizer `yaml:"optimizer" json:"optimizer"`
	Advantage    string    `yaml:"advantage" json:"advantage"` // grpo (std-normalised), dr_grpo, rloo
	AdvantageEps float64   `yaml:"advantage_eps" json:"advantage_eps"`
	ClipLow      float64   `yaml:"clip_low" json:"clip_low"`
	ClipHigh     float64   `yaml:"clip_high" json:"clip_high"`
	DualClip     float64   `yaml:"dual_clip" json:"dual_clip"`       // 0 = off
	KL           float64   `yaml:"kl" json:"kl"`                     // coefficient of the k3 term against the reference
	KLEstimator  string    `yaml:"kl_estimator" json:"kl_estimator"` // k1, k2, k3
	Entropy      float64   `yaml:"entropy" json:"entropy"`
	Aggregation  string    `yaml:"aggregation" json:"aggregation"`   // token-mean, seq-mean-token-sum, seq-mean-token-mean
	OldLogprobs  string    `yaml:"old_logprobs" json:"old_logprobs"` // bypass (as sampled), recompute (decoupled pass before the first update)
	Updates      int       `yaml:"updates" json:"updates"`           // optimizer steps over the file
	Passes       int       `yaml:"passes" json:"passes"`             // times every row is used
	PackTokens   int       `yaml:"pack_tokens" json:"pack_tokens"`
	Truncated    string    `yaml:"truncated" json:"truncated"` // policy for truncated rows: keep, drop
	FreezeVision bool      `yaml:"freeze_vision" json:"freeze_vision"`
	MaxMismatch  float64   `yaml:"max_mismatch" json:"max_mismatch"` // stop when mean |new-old log-prob| before the first update exceeds it
	SaveSteps    int       `yaml:"save_steps" json:"-"`
}

// Eval is how results are summarised.
type Eval struct {
	Bootstrap int `yaml:"bootstrap" json:"bootstrap"` // resamples of the interval
	Samples   int `yaml:"samples" json:"samples"`     // trajectories shown in the report per epoch
}
