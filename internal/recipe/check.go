package recipe

import (
	"fmt"
	"slices"
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
		oneOf("grpo.aggregation", r.GRPO.Aggregation, "token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
		oneOf("grpo.kl_estimator", r.GRPO.KLEstimator, "k1", "k2", "k3", "k3+"),
		oneOf("grpo.loss", r.GRPO.Loss, "ppo", "gspo", "cispo", "sapo"),
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
	} {
		if err != nil {
			return err
		}
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
	return nil
}
