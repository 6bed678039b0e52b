// Package train turns files of trajectories into the next checkpoint: SFT (a
// warm start by imitation) and GRPO (a policy update from judged rollouts).
//
// In go a policy folder in Hugging Face layout, a rollouts dataset
// (rollout/trajectory.Row), for GRPO a judged dataset (trajectory.Judged) and a
// reference policy, image stores, and a recipe. Out comes a checkpoint folder
// (docs/checkpoint.md): the same layout with new weights, metrics.jsonl with one
// line per optimizer step, and trainer/ with what the next run continues from.
//
// The steps of a run are planned before the first one, and a step is a function
// of the plan and the state alone: no clock, no map order, no random state that
// lives on. Therefore a run that was killed anywhere ends with the same bytes as
// a quiet one.
//
// The package samples nothing, judges nothing and, in GRPO, tokenises nothing:
// token ids, masks, log-probs and image grids are taken from the file as they
// were sampled, or the row is refused by name (validate.go).
package train
