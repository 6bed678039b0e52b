package rollout

import (
	"context"
	"errors"
	"time"

	"searchloop/corpus"
	"searchloop/internal/budget"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/plainhttp"
	"searchloop/internal/recipe"
	"searchloop/internal/retry"
	"searchloop/rollout/protocol"
	"searchloop/rollout/tool"
	"searchloop/rollout/trajectory"
)

// Why a trajectory failed, besides the failures of services.
const (
	deadlinePassed = "deadline passed"
	promptTooLong  = "prompt and turn do not fit the model's context"
	inexactTokens  = "the policy server did not keep the sampled tokens"
)

// agent plays trajectories. Safe for concurrent use.
type agent struct {
	recipe   *recipe.Recipe
	protocol protocol.Protocol
	sampling recipe.Sampling
	epoch    int
	strict   bool // tokens must be exact: a row whose tokens are not fails
	policy   *llm.Pool
	tools    *tool.Box
	images   *corpus.ImageStore
	bridge   *bridge        // nil: the policy sees the question's images itself
	budget   *budget.Budget // nil: no limits
}

// timing is how long a trajectory took; it is kept beside the rows.
type timing struct {
	ID      string  `json:"id"`
	Seconds float64 `json:"seconds"`
	Policy  float64 `json:"policy_seconds"`
	Tools   float64 `json:"tool_seconds"`
	Turns   int     `json:"turns"`
	Calls   int     `json:"policy_calls"` // HTTP calls, retries included
	Prompt  int64   `json:"prompt_tokens"`
	Cost    float64 `json:"cost,omitempty"` // dollars, by the recipe's prices
}

// play runs one trajectory to its end. The row is complete, or of status failed.
// An error means that there is no row: the job must end (the service is gone, the
// disk is full) or was interrupted.
func (a *agent) play(ctx context.Context, q *corpus.Question, row *trajectory.Row) (timing, error) {
	start := time.Now()
	tm := timing{ID: row.ID}
	parent := ctx
	if d := a.recipe.Rollout.DeadlineSec; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(d)*time.Second, errors.New(deadlinePassed))
		defer cancel()
	}
	ctx, unwatch := plainhttp.Watched(ctx)
	defer unwatch()
	t := &talk{agent: a, q: q, row: row, time: &tm, policy: a.policy.Session(q.ID)}
	defer t.policy.Close()
	err := t.run(ctx)
	if err == nil {
		err = t.retokenise()
	}
	tm.Seconds = time.Since(start).Seconds()
	if err == nil {
		t.tokens.fill(row)
		return tm, nil
	}
	if parent.Err() != nil {
		return tm, fail.Wrap(fail.Interrupted, "roll out", "", context.Cause(parent))
	}
	reason, ok := why(ctx, err)
	if !ok {
		return tm, err
	}
	row.Status, row.Why = trajectory.Failed, reason
	row.Answer, row.HasAnswer = "", false
	row.TokenIDs, row.LossMask, row.Logprobs, row.Images, row.LogprobMode, row.TokenSource = nil, nil, nil, nil, trajectory.LogprobNone, ""
	return tm, nil
}

// why is the reason as it stands in a failed row: without addresses, which differ
// between equal runs. ok is false for errors that end the job.
func why(ctx context.Context, err error) (reason string, ok bool) {
	var e *fail.Error
	var b broken
	f := llm.FaultOf(err)
	switch {
	case ctx.Err() != nil:
		return deadlinePassed, true
	case errors.As(err, &b):
		return b.Error(), true
	case f == nil || f.Verdict == retry.Stop:
		return "", false
	case errors.As(err, &e):
		return e.Op + ": " + f.Error(), true
	}
	return f.Error(), true
}

// broken is an error of this trajectory alone: it fails, the job goes on.
type broken struct{ err error }

func (b broken) Error() string { return b.err.Error() }
func (b broken) Unwrap() error { return b.err }

func innermost(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	return err
}
