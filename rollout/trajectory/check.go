package trajectory

import (
	"fmt"
	"math"
)

// Check says what is wrong with a row that claims to have tokens: lengths that
// differ, a log-prob that is no number or stands on a token nobody sampled, an
// image that reaches beyond the tokens or onto sampled ones. Rows without tokens
// pass when their mode says so.
func (r *Row) Check() error {
	n := len(r.TokenIDs)
	switch {
	case len(r.LossMask) != n || len(r.Logprobs) != n:
		return fmt.Errorf("%d token ids, %d mask bits, %d log-probs", n, len(r.LossMask), len(r.Logprobs))
	case n == 0 && r.LogprobMode != LogprobNone:
		return fmt.Errorf("no tokens, but log-prob mode %q", r.LogprobMode)
	case n == 0 && r.TokenSource != "":
		return fmt.Errorf("no tokens, but their source is %q", r.TokenSource)
	case r.TokenSource != "" && r.TokenSource != Sampled && r.TokenSource != Retokenised:
		return fmt.Errorf("tokens of the source %q", r.TokenSource)
	case r.TokenSource == Retokenised && r.LogprobMode != LogprobNone:
		return fmt.Errorf("tokens that were not sampled, but log-prob mode %q", r.LogprobMode)
	}
	for i, p := range r.Logprobs {
		switch {
		case math.IsNaN(float64(p)) || math.IsInf(float64(p), 0) || p > 1e-3:
			return fmt.Errorf("token %d has the log-prob %g", i, p)
		case !r.LossMask[i] && p != 0:
			return fmt.Errorf("token %d was not sampled, but has the log-prob %g", i, p)
		}
	}
	last := 0
	for i, img := range r.Images {
		pads, from := int(img.GridT)*int(img.GridH)*int(img.GridW)/4, int(img.Offset)
		if max(img.GridT, img.GridH, img.GridW) > 1<<16 || pads <= 0 || from < last || from+pads > n {
			return fmt.Errorf("image %d (%d×%d×%d at token %d) is outside of %d tokens", i, img.GridT, img.GridH, img.GridW, from, n)
		}
		last = from + pads
		for j := from; j < last; j++ {
			if r.LossMask[j] {
				return fmt.Errorf("image %d lies on sampled tokens", i)
			}
		}
	}
	return nil
}
