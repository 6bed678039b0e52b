// Package trajectory is the record of a rollout and of its judgement: the
// contract between rollout, judge, train and eval. It holds types and their
// Parquet schema, and no behaviour but reading and checking rows.
// See docs/rollouts.md and docs/judged.md.
package trajectory

// Status of a trajectory.
const (
	OK        = "ok"        // ended with a turn of its own
	Truncated = "truncated" // ended by a limit; Why says which
	Failed    = "failed"    // a server or tool broke it; Why says how; never graded as an answer
)

// Log-prob modes: what distribution Row.Logprobs were taken from.
const (
	LogprobProcessed = "processed" // after temperature, before top-p/top-k
	LogprobRaw       = "raw"       // temperature 1
	LogprobNone      = "none"      // the server gives none: the row cannot train GRPO
)

// Sources of Row.TokenIDs.
const (
	Sampled     = "sampled"     // the server's own: what the policy read and sampled
	Retokenised = "retokenised" // made of the texts afterwards: what was sampled may have been other tokens of the same text
)

// Row is one trajectory. TokenIDs, LossMask and Logprobs have equal lengths
// (zero length when the policy server gives no token ids). No column depends on
// the clock, so that equal runs give equal bytes; timings are in a side file.
type Row struct {
	ID         string   `parquet:"id"` // Question + "#" + Sample
	Run        string   `parquet:"run,dict"`
	Epoch      int32    `parquet:"epoch"`
	Question   string   `parquet:"question"` // Question.ID
	Sample     int32    `parquet:"sample"`
	Group      string   `parquet:"group"` // key of the advantage group: the question
	DataSource string   `parquet:"data_source,dict"`
	Category   string   `parquet:"category,dict"`
	Text       string   `parquet:"text"` // the bare question
	Answers    []string `parquet:"answers,list"`

	Status    string `parquet:"status,dict"`
	Why       string `parquet:"why"`
	Answer    string `parquet:"answer"` // content of the last answer tag the MODEL wrote; "" if none
	HasAnswer bool   `parquet:"has_answer"`
	Turns     []Turn `parquet:"turns,list"`

	TokenIDs    []int32   `parquet:"token_ids,list"`
	LossMask    []bool    `parquet:"loss_mask,list"` // true exactly on sampled tokens
	Logprobs    []float32 `parquet:"logprobs,list"`  // 0 where LossMask is false
	LogprobMode string    `parquet:"logprob_mode,dict"`
	Images      []Image   `parquet:"images,list"`                                  // in order of their tokens
	TokenSource string    `parquet:"token_source,dict,optional" json:",omitempty"` // sampled, retokenised; "" without tokens, and in older files

	Temperature float32 `parquet:"temperature"`
	TopP        float32 `parquet:"top_p"`
	TopK        int32   `parquet:"top_k"`
	Seed        int64   `parquet:"seed"`
	Policy      string  `parquet:"policy,dict"` // identity of the checkpoint (hex digest) or URL#model
	Recipe      string  `parquet:"recipe,dict"` // hash of the recipe sections the rollout depends on
}

// Turn is one message. Roles are system, user, assistant, tool, and inline: what the
// environment says inside the assistant's turn before it, which goes on after it.
type Turn struct {
	Role   string   `parquet:"role,dict"`
	Text   string   `parquet:"text"`        // for assistant turns exactly what the model wrote, without the end mark
	Images []string `parquet:"images,list"` // SHA-256 of each image; they stand before the text
	Call   string   `parquet:"call,dict"`   // assistant: name of the tool that was called, "" if none; tool: name of the tool that answered
	Args   string   `parquet:"args"`        // JSON of the call's arguments
	Error  string   `parquet:"error"`       // tool: why it failed; assistant: why the call was malformed
	Tokens int32    `parquet:"tokens"`      // assistant: sampled tokens
	Finish string   `parquet:"finish,dict"` // assistant: stop, length

	Sources []Source `parquet:"sources,list,optional" json:",omitempty"` // observations of live tools: where it came from; empty for local ones
}

// Source is what a provider of live search gave for an observation.
type Source struct {
	Provider string `parquet:"provider,dict"` // serper, serpapi, jina, direct
	URL      string `parquet:"url"`           // what was asked, without keys
	Time     string `parquet:"time"`          // when it came, RFC 3339, UTC; a replay keeps the recorded time
	SHA256   string `parquet:"sha256"`        // of the bytes that came
}

// Observation says whether a turn is what the environment says to the policy after
// its first message: a result or what is wrong with a turn, in whatever role.
func (t *Turn) Observation() bool {
	return t.Role == "tool" || t.Role == "inline" || t.Role == "user" && (t.Call != "" || t.Error != "")
}

// Called says whether a turn is the result of a call, or what was wrong with it.
func (t *Turn) Called() bool { return t.Observation() && t.Call != "" }

// Image is one image as the policy saw it.
type Image struct {
	ID     string `parquet:"id"`     // SHA-256 of its encoded bytes in the image store
	GridT  int32  `parquet:"grid_t"` // patches in time (1 for stills), rows, columns before merging
	GridH  int32  `parquet:"grid_h"`
	GridW  int32  `parquet:"grid_w"`
	Offset int32  `parquet:"offset"` // index in TokenIDs of its first image_pad token
}

// Judged is one row of a judged dataset, one per rollout row.
type Judged struct {
	ID         string      `parquet:"id"` // Row.ID
	Question   string      `parquet:"question"`
	Group      string      `parquet:"group"`
	Status     string      `parquet:"status,dict"`  // Row.Status
	Verdict    string      `parquet:"verdict,dict"` // correct, incorrect, none (no answer), unparsable, failed
	By         string      `parquet:"by,dict"`      // exact_match, judge, "" (nothing to judge)
	Reply      string      `parquet:"reply"`        // the judge's raw reply
	JudgeModel string      `parquet:"judge_model,dict"`
	PromptHash string      `parquet:"prompt_hash,dict"`
	Components []Component `parquet:"components,list"`
	Reward     float64     `parquet:"reward"` // meaningful only when Scored
	Scored     bool        `parquet:"scored"` // false: failed trajectory or verdict missing; never a silent 0
	Correct    bool        `parquet:"correct"`
	Opinions   []Opinion   `parquet:"opinions,optional,list"` // of a panel's judges, and of judges that were asked about an exact match
}

// Opinion is what one judge says of a row.
type Opinion struct {
	Judge   string `parquet:"judge,dict"`   // its model
	Verdict string `parquet:"verdict,dict"` // correct, incorrect, unparsable, failed
}

// Component is one part of a reward: Reward = sum of Weight*Value, then scaled.
type Component struct {
	Name   string  `parquet:"name,dict"`
	Value  float64 `parquet:"value"`
	Weight float64 `parquet:"weight"`
}

// Verdicts.
const (
	Correct    = "correct"
	Incorrect  = "incorrect"
	NoAnswer   = "none"
	Unparsable = "unparsable"
	JudgeError = "failed"
)
