// Package eval turns judged rollouts of a benchmark into numbers one can trust
// and a page one can read: metrics with intervals, one row a sample with
// everything that explains it, and a self-contained HTML report of a run. It
// never runs a policy: rollout does, and a model reaches it as trajectories.
package eval
