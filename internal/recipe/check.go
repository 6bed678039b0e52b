package recipe

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// check refuses settings that no job could carry out.
func (r *Recipe) check() error {
	oneOf := func(key, v string, allowed ...string) error {
		if v != "" && !slices.Contains(allowed, v) {
			return fmt.Errorf("%s is %q, want one of %v", key, v, allowed)
		}
		return nil
	}
	atLeast := func(key string, v, least float64) error {
		if v < least {
			return fmt.Errorf("%s is %v, want at least %v", key, v, least)
		}
		return nil
	}
	within := func(key string, v, least, most float64) error {
		if v < least || v > most {
			return fmt.Errorf("%s is %v, want %v to %v", key, v, least, most)
		}
		return nil
	}
	for _, err := range []error{
		oneOf("protocol.name", r.Protocol.Name, "mm-deepresearch", "search-r1", "mmsearch-r1", "vision-deepresearch", "rag", "direct"),
		oneOf("reward.name", r.Reward.Name, "mm-deepresearch", "search-r1", "search-r1-format", "mmsearch-r1", "vision-deepresearch", "exact", "sub_exact", "f1", "numeric", "date"),
		oneOf("reward.match", r.Reward.Match, "exact", "sub_exact", "f1", "numeric", "date"),
		within("reward.penalty", r.Reward.Penalty, -1, 1),
		within("protocol.repetition", r.Protocol.Repetition, 0, 1),
		atLeast("judge.votes", float64(r.Judge.Votes), 0),
		oneOf("grpo.advantage", r.GRPO.Advantage, "grpo", "dr_grpo", "none", "rloo", "batch", "max_rl"),
		oneOf("grpo.aggregation", r.GRPO.Aggregation, "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm", "rollout-mean-token-mean"),
		oneOf("grpo.kl_estimator", r.GRPO.KLEstimator, "k1", "k2", "k3", "k3+"),
		oneOf("grpo.loss", r.GRPO.Loss, "ppo", "gspo", "cispo", "sapo", "dppo"),
		oneOf("grpo.router_replay", r.GRPO.RouterReplay, "", "off"),
		oneOf("grpo.old_logprobs", r.GRPO.OldLogprobs, "bypass", "recompute", "current"),
		oneOf("grpo.truncated", r.GRPO.Truncated, "keep", "mask", "drop"),
		oneOf("grpo.failed", r.GRPO.Failed, "exclude", "zero", "drop_group"),
		oneOf("grpo.zero_variance", r.GRPO.ZeroVariance, "auto", "keep", "drop"),
		oneOf("grpo.correction.weights", r.GRPO.Correction.Weights, "none", "token", "sequence", "geometric"),
		oneOf("grpo.correction.outside", r.GRPO.Correction.Outside, "clamp", "zero"),
		oneOf("grpo.optimizer.schedule", r.GRPO.Optimizer.Schedule, "constant", "linear", "cosine"),
		oneOf("sft.optimizer.schedule", r.SFT.Optimizer.Schedule, "constant", "linear", "cosine"),
		atLeast("protocol.max_tool_calls", float64(r.Protocol.MaxToolCalls), 0),
		atLeast("sampling.train.n", float64(r.Sampling.Train.N), 1),
		atLeast("sampling.eval.n", float64(r.Sampling.Eval.N), 1),
		atLeast("sampling.train.temperature", float64(r.Sampling.Train.Temperature), 0),
		atLeast("sampling.eval.temperature", float64(r.Sampling.Eval.Temperature), 0),
		atLeast("rollout.questions", float64(r.Rollout.Questions), 0),
		r.Retrieval.check(oneOf), r.Synth.check(),
		oneOf("lessons.select", r.Lessons.Select, "best", "all"),
		within("lessons.repetition", r.Lessons.Repetition, 0, 1),
		within("lessons.near", r.Lessons.Near, 0, 1),
		within("eval.nightly.max_drop", r.Eval.Nightly.MaxDrop, 0, 1),
		atLeast("lessons.per_question", float64(r.Lessons.PerQuestion), 0),
		atLeast("lessons.max_turns", float64(r.Lessons.MaxTurns), 0),
		atLeast("lessons.max_tokens", float64(r.Lessons.MaxTokens), 0),
		oneOf("rollout.order", r.Rollout.Order, "easy_first", "hard_first"),
		within("rollout.filter.min_pass", r.Rollout.Filter.MinPass, 0, 1),
		within("rollout.filter.max_pass", r.Rollout.Filter.MaxPass, 0, 1),
		within("curate.rollouts", float64(r.Curate.Rollouts), 0, 1<<20),
		within("curate.min_free", float64(r.Curate.MinFree), 0, 1<<20),
		within("curate.required", float64(r.Curate.Required), 0, 1<<30),
		within("curate.free", float64(r.Curate.Free), 0, 1<<30),
		within("curate.bins", float64(r.Curate.Bins), 0, 1000),
	} {
		if err != nil {
			return err
		}
	}
	for _, category := range slices.Sorted(maps.Keys(r.Curate.Truth)) {
		if err := oneOf("curate.truth."+category, r.Curate.Truth[category], "free", "image", "text", "mixed"); err != nil {
			return err
		}
	}
	for _, need := range r.Rollout.Filter.Needs {
		if err := oneOf("rollout.filter.needs", need, "free", "image", "text", "mixed", "unknown"); err != nil {
			return err
		}
	}
	for _, b := range r.Eval.Nightly.Benchmarks {
		if b == "" || strings.ContainsAny(b, "/ \t") {
			return fmt.Errorf("eval.nightly.benchmarks: %q is no name of a benchmark", b)
		}
	}
	for _, u := range r.Rollout.PolicyURLs {
		if err := server("rollout.policy_urls", u); err != nil {
			return err
		}
	}
	if r.Judge.URL != "" {
		if len(r.Judge.Panel) > 0 {
			return errors.New("judge.url and judge.panel both say who judges")
		}
		if err := server("judge.url", r.Judge.URL); err != nil {
			return err
		}
	}
	judges := map[string]bool{}
	for _, j := range r.Judge.Panel {
		if j.Model == "" || j.URL == "" || judges[j.Model] {
			return fmt.Errorf("judge.panel: the model %q is empty, has no url, or is given twice", j.Model)
		}
		if err := server("judge.panel", j.URL); err != nil {
			return err
		}
		judges[j.Model] = true
	}
	seen := map[string]bool{}
	for _, t := range r.Tools {
		if seen[t.Name] || t.Name == "" {
			return fmt.Errorf("tools: the name %q is empty or given twice", t.Name)
		}
		seen[t.Name] = true
		for _, err := range []error{
			oneOf("tools[].format", t.Format, "doc", "doc_tight", "numbered", "links"),
			atLeast("tools[].topk", float64(t.TopK), 0), atLeast("tools[].images", float64(t.Images), 0), atLeast("tools[].max_calls", float64(t.MaxCalls), 0),
			within("tools[].enlarge", float64(t.Enlarge), 0, 8),
		} {
			if err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Launch)) {
		t := r.Launch[name]
		if err := oneOf("launch: the job", name, "default", "prep", "lens", "encoder", "embed", "index", "rollout", "judge", "policy", "sft", "grpo", "evaluate", "curate", "lessons", "synth", "serve"); err != nil {
			return err
		}
		if min(t.CPUs, t.Minutes, t.GPUs, t.Shards, t.Tasks) < 0 || t.MemoryGB < 0 {
			return fmt.Errorf("launch.%s: a number is negative", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Mappings)) {
		m := r.Mappings[name]
		if err := m.Check(); err != nil {
			return fmt.Errorf("mappings.%s: %w", name, err)
		}
	}
	return nil
}

// server refuses what is no address of a server, and addresses that hold a secret:
// recipes are shown, hashed and kept. The address itself is not in the message.
func server(key, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" {
		return fmt.Errorf("%s is no http address, or holds a user name or a query; keys come from the environment", key)
	}
	return nil
}

// providers of live search.
var providers = []string{"direct", "jina", "serpapi", "serper"}

// storage is what uploads of crops are limited and paid by.
const storage = "storage"

// check refuses providers that cannot do what is asked of them.
func (r *Retrieval) check(oneOf func(key, v string, allowed ...string) error) error {
	err := errors.Join(oneOf("retrieval.web", r.Web, "jina", "serpapi", "serper"), oneOf("retrieval.images", r.Images, "serpapi", "serper"),
		oneOf("retrieval.lens", r.Lens, "serpapi", "serper"), oneOf("retrieval.crops", r.Crops, "serpapi", "serper"), oneOf("retrieval.pages", r.Pages, "direct", "jina", "serper"))
	switch {
	case err != nil:
		return err
	case r.Web != "" && r.TextURL != "" || r.Images != "" && r.ImageURL != "":
		return errors.New("retrieval names both a server and a provider for the same search")
	case r.Read && (r.Web == "" || r.Pages == ""):
		return errors.New("retrieval.read needs retrieval.web and retrieval.pages")
	case r.ReadCrops && (r.Crops == "" || r.Pages == ""):
		return errors.New("retrieval.read_crops needs retrieval.crops and retrieval.pages")
	case r.KeepDays < 0:
		return fmt.Errorf("retrieval.keep_days is %d", r.KeepDays)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Gateways)) {
		if err := oneOf("retrieval.gateways", name, providers[1:]...); err != nil {
			return err
		}
		if err := server("retrieval.gateways."+name, r.Gateways[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limits)) {
		if err := oneOf("retrieval.limits", name, append(slices.Clone(providers), storage)...); err != nil {
			return err
		}
		if l := r.Limits[name]; l.PerSecond < 0 || l.Burst < 0 || l.Price < 0 {
			return fmt.Errorf("retrieval.limits.%s: a number is below 0", name)
		}
	}
	return nil
}
