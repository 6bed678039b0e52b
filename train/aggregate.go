package train

import "searchloop/internal/fail"

// Aggregation modes: how token losses become one number.
const (
	TokenMean        = "token-mean"          // every trained token of the optimizer batch weighs the same
	SeqMeanTokenSum  = "seq-mean-token-sum"  // rows are averaged, tokens of a row are summed
	SeqMeanTokenMean = "seq-mean-token-mean" // rows are averaged, and tokens within a row
	// SeqMeanTokenSumNorm is SeqMeanTokenSum divided by a constant number of tokens
	// (Dr.GRPO, arXiv 2503.20783).
	SeqMeanTokenSumNorm = "seq-mean-token-sum-norm"
	// RolloutMeanTokenMean is SeqMeanTokenMean with all rows of one rollout (a
	// compacted context, a sub-agent) as one: a rollout weighs 1 whatever it was cut
	// into (slime).
	RolloutMeanTokenMean = "rollout-mean-token-mean"
)

// Denominator is what an optimizer batch is divided by. It is filled from the
// plan, over all packs of the batch, before the first backward pass; packs only
// add sums. So the loss and its gradient do not depend on how rows are packed.
// A row without a trained token counts nowhere.
type Denominator struct {
	Mode   string
	Norm   int   // the constant of SeqMeanTokenSumNorm
	Rows   int64 // rows (or rollouts) with at least one trained token
	Tokens int64 // trained tokens
}

// NewDenominator checks the mode; the counts start at 0.
func NewDenominator(mode string, norm int) (Denominator, error) {
	switch mode {
	case TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, RolloutMeanTokenMean:
		if norm != 0 {
			return Denominator{}, fail.New(fail.Usage, "grpo.norm_tokens", "", "%d: only %s divides by it", norm, SeqMeanTokenSumNorm)
		}
		return Denominator{Mode: mode}, nil
	case SeqMeanTokenSumNorm:
		if norm < 1 {
			return Denominator{}, fail.New(fail.Usage, "grpo.norm_tokens", "", "%d: %s needs a constant, for example the longest response", norm, mode)
		}
		return Denominator{Mode: mode, Norm: norm}, nil
	}
	return Denominator{}, fail.New(fail.Usage, "grpo.aggregation", "", "unknown mode %q: want %s, %s, %s, %s or %s", mode,
		TokenMean, SeqMeanTokenSum, SeqMeanTokenMean, SeqMeanTokenSumNorm, RolloutMeanTokenMean)
}

// Count adds a row, or a rollout, of that many trained tokens.
func (d *Denominator) Count(tokens int) {
	if tokens > 0 {
		d.Rows++
		d.Tokens += int64(tokens)
	}
}

// Weight is what each token of a row (or rollout) with that many trained tokens is
// multiplied by; 0 when there is nothing to divide by.
func (d Denominator) Weight(tokens int) float64 {
	if tokens <= 0 || d.Rows == 0 {
		return 0
	}
	switch d.Mode {
	case SeqMeanTokenSum:
		return 1 / float64(d.Rows)
	case SeqMeanTokenSumNorm:
		return 1 / (float64(d.Rows) * float64(d.Norm))
	case SeqMeanTokenMean, RolloutMeanTokenMean:
		return 1 / (float64(d.Rows) * float64(tokens))
	}
	return 1 / float64(d.Tokens)
}
