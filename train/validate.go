package train

import (
	"fmt"
	"math"
	"slices"

	"searchloop/rollout/trajectory"
)

// Refusal says why a row is not trained on. Reason is one of a small set, so
// that refusals can be counted; Detail names the place.
type Refusal struct{ Reason, Detail string }

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return r.Reason
	}
	return r.Reason + ": " + r.Detail
}

// Reasons of refusals.
const (
	NoTokens       = "no token ids"
	NotSampled     = "tokens were made of the text, not sampled"
	LengthsDiffer  = "lengths differ"
	BadToken       = "token outside of the vocabulary"
	NothingTrained = "no trained token"
	FirstTrained   = "the first token is trained"
	VisionTrained  = "an image token is trained"
	PaddingTrained = "a trained token is unknown to the tokenizer"
	NoMode         = "log-prob mode missing"
	BadMode        = "log-prob mode unknown"
	NoLogprobs     = "no log-probs"
	RawMode        = "log-probs are not of the sampling distribution"
	BadLogprob     = "log-prob not finite or positive"
	BadSampling    = "temperature not positive"
	Truncation     = "sampling was cut"
	BadImages      = "images and image tokens differ"
	NoImage        = "image file missing or damaged"
	TooLong        = "longer than a pack"
	NoJudgement    = "no judgement"
	BadReward      = "reward not finite"
	NoGroup        = "no group"
	Duplicate      = "id given twice"
	BadStatus      = "status unknown"
	NotRendered    = "does not render"
)

func refuse(reason, format string, args ...any) *Refusal {
	return &Refusal{reason, fmt.Sprintf(format, args...)}
}

// Checker refuses rows that cannot be trained on as they stand. Nothing is
// repaired: a repaired row is another row than the one that was sampled.
type Checker struct {
	Traits
	// Known is the tokenizer's size: ids between it and Vocab are padding rows of
	// the embedding, part of every softmax but nobody's target. 0 = not checked.
	Known  int
	Budget int // tokens of a pack
	// Recompute: old log-probs are computed here, so the sampled ones are only
	// compared and may be of another temperature.
	Recompute bool
	// Retokenised rows are taken too: their tokens may differ from the sampled ones, and
	// no log-prob was sampled with them. It needs old log-probs from here.
	Retokenised bool
}

// positiveLogprob is how far above 0 a rounded log-prob of a certain token is
// tolerated.
const positiveLogprob = 1e-4

// Row returns the sequence of a sampled row, without advantage and image
// content, or why it is refused.
func (c *Checker) Row(row *trajectory.Row) (*Sequence, *Refusal) {
	n := len(row.TokenIDs)
	switch {
	case n == 0:
		return nil, refuse(NoTokens, "the policy server gave none")
	case len(row.LossMask) != n || len(row.Logprobs) != n:
		return nil, refuse(LengthsDiffer, "%d token ids, %d mask values, %d log-probs", n, len(row.LossMask), len(row.Logprobs))
	}
	if r := c.mode(row); r != nil {
		return nil, r
	}
	s := &Sequence{ID: row.ID, Tokens: row.TokenIDs, Temperature: row.Temperature}
	for _, im := range row.Images {
		s.Images = append(s.Images, ImageRef{ID: im.ID, Grid: [3]int32{im.GridT, im.GridH, im.GridW}, Offset: im.Offset})
	}
	s.Spans, s.Trained = spansOf(row.LossMask)
	if r := c.Sequence(s); r != nil {
		return nil, r
	}
	if row.TokenSource == trajectory.Retokenised {
		return s, nil // nothing to compare with
	}
	s.Sampled = pick(row.Logprobs, s.Spans, s.Trained)
	for i, l := range s.Sampled {
		if !(l <= positiveLogprob) || math.IsInf(float64(l), 0) {
			return nil, refuse(BadLogprob, "%g at trained token %d", l, i)
		}
	}
	if row.LogprobMode == trajectory.LogprobRaw && row.Temperature != 1 {
		s.Sampled = nil // of another distribution than the trainer's: nothing to compare
	}
	return s, nil
}

// mode checks what the log-probs are of. They must be of the very distribution
// that was sampled from: the softmax at the row's temperature with nothing cut
// off.
func (c *Checker) mode(row *trajectory.Row) *Refusal {
	t := row.Temperature
	switch {
	case !(t > 0) || math.IsInf(float64(t), 0):
		return refuse(BadSampling, "temperature %g: greedy rows have no ratio", t)
	case row.TopP != 1:
		return refuse(Truncation, "top_p %g: the sampler renormalised over a part of the vocabulary", row.TopP)
	case row.TopK > 0:
		return refuse(Truncation, "top_k %d: the sampler renormalised over a part of the vocabulary", row.TopK)
	}
	if row.TokenSource == trajectory.Retokenised {
		if !c.Retokenised {
			return refuse(NotSampled, "the policy server gave no token ids; with grpo.retokenised: accept they are trained on, by log-probs that are computed here")
		}
		return nil
	}
	switch row.LogprobMode {
	case trajectory.LogprobProcessed:
	case trajectory.LogprobRaw:
		if t != 1 && !c.Recompute {
			return refuse(RawMode, "mode raw at temperature %g; recompute them (grpo.old_logprobs: recompute)", t)
		}
	case trajectory.LogprobNone:
		return refuse(NoLogprobs, "the policy server gave none")
	case "":
		return refuse(NoMode, "raw or processed must be said")
	default:
		return refuse(BadMode, "%q", row.LogprobMode)
	}
	return nil
}

// Sequence checks tokens, spans and images, and says what the row costs.
func (c *Checker) Sequence(s *Sequence) *Refusal {
	switch {
	case len(s.Tokens) > c.Budget:
		return refuse(TooLong, "%d tokens, pack_tokens is %d", len(s.Tokens), c.Budget)
	case s.Trained == 0:
		return refuse(NothingTrained, "")
	case s.Spans[0].From == 0:
		return refuse(FirstTrained, "nothing stands before it to predict it from")
	}
	for i, t := range s.Tokens {
		if t < 0 || int(t) >= c.Vocab {
			return refuse(BadToken, "id %d at %d, the model has %d", t, i, c.Vocab)
		}
	}
	for _, span := range s.Spans {
		for i := span.From; i < span.To; i++ {
			t := s.Tokens[i]
			if slices.Contains(c.NeverSaid, t) {
				return refuse(VisionTrained, "id %d at %d", t, i)
			}
			if c.Known > 0 && int(t) >= c.Known {
				return refuse(PaddingTrained, "id %d at %d, the tokenizer has %d", t, i, c.Known)
			}
		}
	}
	if r := c.images(s); r != nil {
		return r
	}
	grids := make([][3]int32, len(s.Images))
	for i, im := range s.Images {
		grids[i] = im.Grid
	}
	s.Cost = c.Cost.Row(len(s.Tokens), grids, c.Merge)
	return nil
}

// images checks that the runs of image pads are exactly those that the grids
// ask for: a tool's image whose tokens were cut, and tokens without an image,
// would shift every later image by one.
func (c *Checker) images(s *Sequence) *Refusal {
	next := 0 // first token not yet accounted for
	for k, im := range s.Images {
		g := im.Grid
		if c.ImagePad < 0 {
			return refuse(BadImages, "the model has no vision tower")
		}
		const most = 1 << 15 // patches a side; keeps the product small
		if min(g[0], g[1], g[2]) < 1 || max(g[0], g[1], g[2]) > most || g[1]%c.Merge != 0 || g[2]%c.Merge != 0 {
			return refuse(BadImages, "image %d has the grid %v, sides must be positive multiples of %d", k, g, c.Merge)
		}
		pads := int(g[0]) * int(g[1]/c.Merge) * int(g[2]/c.Merge)
		from := int(im.Offset)
		if from < next || pads > len(s.Tokens)-from {
			return refuse(BadImages, "image %d at %d with %d tokens does not fit behind %d of %d", k, from, pads, next, len(s.Tokens))
		}
		if i := slices.Index(s.Tokens[next:from], c.ImagePad); i >= 0 {
			return refuse(BadImages, "image token at %d belongs to no image", next+i)
		}
		for i := from; i < from+pads; i++ {
			if s.Tokens[i] != c.ImagePad {
				return refuse(BadImages, "image %d needs %d image tokens at %d, there are %d", k, pads, from, i-from)
			}
		}
		if from+pads < len(s.Tokens) && s.Tokens[from+pads] == c.ImagePad {
			return refuse(BadImages, "image %d needs %d image tokens at %d, there are more", k, pads, from)
		}
		next = from + pads
	}
	if c.ImagePad < 0 {
		return nil
	}
	if i := slices.Index(s.Tokens[next:], c.ImagePad); i >= 0 {
		return refuse(BadImages, "image token at %d belongs to no image", next+i)
	}
	return nil
}
