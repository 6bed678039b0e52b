// Package rollout lets a policy answer questions with tools and records what
// happens. Questions, indices, a lens dataset and a policy go in; a rollouts
// dataset comes out, one row per trajectory, with every turn and, where the
// policy server gives them, the exact tokens.
//
// The policy is always an OpenAI-compatible server; a folder is served in the
// process. The package grades nothing (judge and reward do) and trains nothing.
// The format of a row is in docs/rollouts.md.
package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"searchloop/corpus/publish"
	"searchloop/indexer/flat/gpu"
	"searchloop/internal/budget"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
	"searchloop/internal/recipe"
	"searchloop/internal/sandbox"
	"searchloop/internal/secret"
	"searchloop/internal/tape"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// Modes.
const (
	Train = "train" // the questions of an epoch, by recipe; tokens must be exact
	Eval  = "eval"  // every question, sampling for evaluation
)

// Options say what is rolled out and with what.
type Options struct {
	Questions  string   // questions dataset
	Images     []string // image stores of the questions and of image passages, beside those that lie in the datasets
	Lens       string   // lens dataset; needed when the recipe has the lens tool
	TextIndex  string   // index dataset; needed for text search unless the recipe names a server
	ImageIndex string   // likewise for image search by text
	Encoder    string   // server of the indices' encoder, when it moved
	Search     gpu.Flags
	Gallery    string   // passages dataset with images, for crop_and_search
	Pages      []string // passages datasets whose ids are addresses, for visit

	Publish   publish.Options // storage to which crops are uploaded for live lens search: To, Endpoint, Public, Expires
	Published string          // folder or file of the public addresses of the questions' images, for live lens search
	Cache     string          // where results of live search are kept: a folder, or redis://…
	Record    string          // folder that takes what models and providers answer, or:
	Replay    string          // folder that answers in their place
	Frozen    string          // folder that answers in the place of providers of live search alone; what it lacks is not found
	MaxCost   float64         // dollars that live search may cost; 0 = no cap

	TensorBoard string // folder for event files; empty: none are written

	Limits budget.Limits // of the policy: requests, tokens, and dollars by the recipe's prices

	tape   *tape.Tape      // of Record or Replay
	frozen *tape.Tape      // of Frozen
	python *sandbox.Python // nil: no tool runs programs

	Policy      string   // folder of the policy, served in this process, or:
	PolicyURLs  []string // OpenAI-compatible servers of one model, or @FILE with their addresses; with Policy: of that folder
	PolicyModel string   // that model; "" = the only one of each
	PolicyAPI   string   // how they are talked to: llm.APIAuto, …; "" = auto
	Tokenizer   string   // folder of the model, for servers that take or give nothing but token ids, or:
	Script      string   // a script of package scripted, served in this process

	Out     string
	Run     string // name of the run, kept in the rows
	Epoch   int
	Mode    string // Train or Eval
	Limit   int    // questions at most; 0 = no limit
	Samples int    // trajectories a question; 0 = by recipe
}

// plan is what the rows depend on beside the inputs.
type plan struct {
	Run       string            `json:"run"`
	Epoch     int               `json:"epoch"`
	Mode      string            `json:"mode"`
	Limit     int               `json:"limit,omitempty"`
	Questions int               `json:"questions,omitempty"`
	Filter    recipe.Filter     `json:"filter,omitzero"`
	Order     string            `json:"order,omitempty"`
	Seed      uint64            `json:"seed"`
	Protocol  recipe.Protocol   `json:"protocol"`
	Tools     []recipe.Tool     `json:"tools"`
	Retrieval *recipe.Retrieval `json:"retrieval,omitempty"`
	Sampling  recipe.Sampling   `json:"sampling"`
	PolicyURL string            `json:"policy_url,omitempty"`
	Model     string            `json:"policy_model,omitempty"`
	Script    string            `json:"policy_script,omitempty"`
	Frozen    string            `json:"frozen,omitempty"` // digest of the record that answers live searches
}

// servers takes the policy's servers from the recipe when no flag says who plays.
func (o *Options) servers(r *recipe.Recipe) {
	if given(o.Policy, strings.Join(o.PolicyURLs, " "), o.Script) > 0 {
		return
	}
	o.PolicyURLs, o.PolicyModel = r.Rollout.PolicyURLs, cmp.Or(o.PolicyModel, r.Rollout.PolicyModel)
}

// plan checks the options and puts together what the rows depend on.
func (o *Options) plan(r *recipe.Recipe) (plan, error) {
	usage := func(format string, args ...any) (plan, error) {
		return plan{}, fail.New(fail.Usage, "roll out", "", format, args...)
	}
	p := plan{Run: o.Run, Epoch: o.Epoch, Mode: o.Mode, Limit: o.Limit, Seed: r.Seed, Protocol: r.Protocol, Tools: r.Tools}
	switch o.Mode {
	case Train:
		p.Sampling, p.Questions = r.Sampling.Train, r.Rollout.Questions
		p.Filter, p.Order = r.Rollout.Filter, r.Rollout.Order
	case Eval:
		p.Sampling = r.Sampling.Eval
	default:
		return usage("--mode is %q, want %s or %s", o.Mode, Train, Eval)
	}
	if o.Samples > 0 {
		p.Sampling.N = o.Samples
	}
	switch {
	case r.Protocol.Name == "search-r1" && slices.ContainsFunc(r.Tools, func(t recipe.Tool) bool { return t.Images > 0 }):
		return usage("protocol search-r1 puts results into the policy's turn, where no image can stand: tools[].images must be 0")
	case p.Sampling.N < 1 || o.Samples < 0 || o.Limit < 0 || o.Epoch < 0:
		return usage("%d samples, limit %d, epoch %d: a number is too small", p.Sampling.N, o.Limit, o.Epoch)
	case r.Protocol.Bridge != "" && o.Mode != Eval:
		return usage("a bridge (protocol.bridge) gives no exact tokens to train on: --mode must be %s", Eval)
	case o.Policy != "" && len(o.PolicyURLs) > 0 && o.Script == "": // the folder, served elsewhere
	case given(o.Policy, strings.Join(o.PolicyURLs, " "), o.Script) != 1:
		return usage("give one of a policy folder (--policy), servers (--policy-url, or rollout.policy_urls in the recipe) and a script (--policy-script)")
	case o.Questions == "" || o.Out == "" || o.Run == "":
		return usage("--questions, --out and --run are needed")
	}
	switch {
	case len(o.PolicyURLs) == 0:
	case o.Policy != "": // what is served is known, where it is served is of no matter
		p.Model = ""
	case len(o.PolicyURLs) == 1 && !strings.HasPrefix(o.PolicyURLs[0], "@"):
		p.PolicyURL, p.Model = secret.WithoutUser(o.PolicyURLs[0]), o.PolicyModel
	default: // which of them answers is of no matter: servers may come and go between two attempts
		p.Model = o.PolicyModel
	}
	p.Script = o.Script
	if o.Frozen != "" {
		if o.Record != "" || o.Replay != "" {
			return usage("--frozen excludes --record and --replay")
		}
		var err error
		if o.frozen, p.Frozen, err = tape.Frozen(o.Frozen); err != nil {
			return plan{}, err
		}
	}
	if set, _ := json.Marshal(r.Retrieval); string(set) != unset { // limits and prices change no row
		p.Retrieval = &r.Retrieval
	}
	return p, nil
}

// unset is what a recipe without retrieval hashes.
var unset = func() string { b, _ := json.Marshal(recipe.Retrieval{}); return string(b) }()

// given counts the strings that are not empty.
func given(options ...string) (n int) {
	for _, o := range options {
		if o != "" {
			n++
		}
	}
	return n
}

// hash names the recipe sections that the rows depend on, for Row.Recipe.
func (p plan) hash() string {
	p.Run, p.Epoch, p.Limit, p.PolicyURL, p.Model = "", 0, 0, "", ""
	p.Filter, p.Order = recipe.Filter{}, "" // which questions, not how
	p.Script = ""
	text, _ := json.Marshal(p)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// spec describes the output: only inputs that a tool of the recipe reads count.
func (o *Options) spec(p plan, r *recipe.Recipe) (job.Spec, error) {
	s := job.Spec{Dir: o.Out, Schema: trajectory.RolloutsSchema, Version: trajectory.Version, Params: p, Ext: "parquet", Inputs: map[string]string{"questions": o.Questions}}
	for _, t := range r.Tools {
		kind := tool.KindOf(t)
		switch {
		case kind == tool.TextSearch && r.Retrieval.TextURL == "" && r.Retrieval.Web == "":
			s.Inputs["text_index"] = o.TextIndex
		case kind == tool.ImageByText && r.Retrieval.ImageURL == "" && r.Retrieval.Images == "":
			s.Inputs["image_index"] = o.ImageIndex
		case kind == tool.ImageByLens && r.Retrieval.Lens == "":
			s.Inputs["lens"] = o.Lens
		case kind == tool.CropAndSearch && r.Retrieval.Crops == "":
			s.Inputs["gallery"] = o.Gallery
		case kind == tool.Visit:
			for i, dir := range o.Pages {
				s.Inputs[fmt.Sprintf("pages_%d", i)] = dir
			}
		}
	}
	if o.Policy != "" {
		if _, err := os.Stat(manifest.Path(o.Policy)); err == nil {
			s.Inputs["policy"] = o.Policy
			return s, nil
		}
		// A folder as Hugging Face has it: every weight file and the configuration.
		files, _ := fs.Glob(os.DirFS(o.Policy), "*.safetensors")
		for i, f := range files {
			files[i] = filepath.Join(o.Policy, f)
		}
		if len(files) == 0 {
			return s, fail.WithHint(fail.New(fail.BadInput, "open policy", o.Policy, "no manifest.json and no *.safetensors"), "name the folder of a checkpoint")
		}
		for _, name := range []string{"config.json", "tokenizer.json", "preprocessor_config.json", "chat_template.json", "chat_template.jinja"} {
			if f := filepath.Join(o.Policy, name); exists(f) {
				files = append(files, f)
			}
		}
		for _, f := range files {
			s.Inputs["policy/"+filepath.Base(f)] = f
		}
	}
	return s, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
