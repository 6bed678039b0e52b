package rollout

import (
	"fmt"

	"searchloop/internal/llm"
	"searchloop/rollout/trajectory"
)

// ledger keeps the exact tokens of a trajectory. The policy server tells with
// every turn the whole prompt that the model saw; the ledger holds it against
// what it knows already: a prompt must begin with the last prompt and the turn
// that was sampled from it. What lies between is the observation and the
// template's glue, and is never trained on.
type ledger struct {
	ids    []int32
	mask   []bool
	logp   []float32
	images []trajectory.Image
	mode   string
	pad    int32 // id of the image placeholder, known once an image was seen
	used   bool  // a turn was entered
}

// mergedPatches is how many patches one placeholder token stands for.
const mergedPatches = 4

// check says what is wrong with a turn: it must continue the ledger, and its
// images must be those of the conversation, in order. The ledger is unchanged.
func (l *ledger) check(r *llm.Reply, imageIDs []string) error {
	if len(r.PromptIDs) < len(l.ids) {
		return fmt.Errorf("the prompt has %d tokens, less than the %d before it", len(r.PromptIDs), len(l.ids))
	}
	for i, id := range l.ids {
		if r.PromptIDs[i] != id {
			return fmt.Errorf("the prompt does not continue what was sampled: token %d is %d, was %d", i, r.PromptIDs[i], id)
		}
	}
	if len(r.Images) != len(imageIDs) {
		return fmt.Errorf("the server placed %d images, the conversation has %d", len(r.Images), len(imageIDs))
	}
	pad, last := int32(-1), 0
	if len(l.images) > 0 {
		pad = l.pad
	}
	for i, img := range r.Images {
		n, from := area(img.Grid), int(img.Offset)
		if n <= 0 || n%mergedPatches != 0 || from < last || from+n/mergedPatches > len(r.PromptIDs) {
			return fmt.Errorf("image %d has grid %v at token %d of %d", i, img.Grid, from, len(r.PromptIDs))
		}
		if pad < 0 {
			pad = r.PromptIDs[from]
		}
		last = from + n/mergedPatches
		for j := from; j < last; j++ {
			if r.PromptIDs[j] != pad {
				return fmt.Errorf("image %d: token %d of its %d is no placeholder", i, j-from, n/mergedPatches)
			}
		}
		if i < len(l.images) && img.Offset != l.images[i].Offset {
			return fmt.Errorf("image %d moved from token %d to %d", i, l.images[i].Offset, img.Offset)
		}
	}
	if len(r.Images) > 0 {
		// A sampled placeholder would be taken for an image by whoever reads the row.
		for _, id := range r.TokenIDs {
			if id == pad {
				return fmt.Errorf("the policy sampled an image placeholder")
			}
		}
	}
	if l.used && r.LogprobMode != l.mode {
		return fmt.Errorf("the log-prob mode changed from %s to %s", l.mode, r.LogprobMode)
	}
	return nil
}

// unmark takes a mark of images off the end of a sampled turn and says whether
// there was one. A server ends a turn at such a token, because no image belongs to
// it; in a row it would be taken for one. The marks are known from the images of
// the prompt: the placeholder and what stands before and after it.
func unmark(r *llm.Reply) bool {
	n := len(r.TokenIDs)
	if n == 0 || len(r.Images) == 0 {
		return false
	}
	img := r.Images[0]
	from, to := int(img.Offset), int(img.Offset)+area(img.Grid)/mergedPatches
	for _, at := range []int{from - 1, from, to} {
		if at >= 0 && at < len(r.PromptIDs) && r.TokenIDs[n-1] == r.PromptIDs[at] {
			r.TokenIDs = r.TokenIDs[:n-1]
			if r.Logprobs != nil {
				r.Logprobs = r.Logprobs[:n-1]
			}
			r.ReplyTokens--
			return true
		}
	}
	return false
}

// area is the number of patches of a grid; 0 for one that no image has.
func area(g [3]int32) int {
	n := 1
	for _, d := range g {
		if d <= 0 || d > 1<<16 {
			return 0
		}
		n *= int(d)
	}
	return n
}

// enter adds a turn that passed check.
func (l *ledger) enter(r *llm.Reply, imageIDs []string) {
	extend := func(ids []int32, sampled bool, logp []float32) {
		for i, id := range ids {
			l.ids = append(l.ids, id)
			l.mask = append(l.mask, sampled)
			p := float32(0)
			if sampled && logp != nil {
				p = logp[i]
			}
			l.logp = append(l.logp, p)
		}
	}
	extend(r.PromptIDs[len(l.ids):], false, nil)
	extend(r.TokenIDs, true, r.Logprobs)
	for i := len(l.images); i < len(r.Images); i++ {
		g := r.Images[i].Grid
		l.images = append(l.images, trajectory.Image{ID: imageIDs[i], GridT: g[0], GridH: g[1], GridW: g[2], Offset: r.Images[i].Offset})
		l.pad = r.PromptIDs[r.Images[i].Offset]
	}
	l.mode, l.used = r.LogprobMode, true
}

// fill puts the ledger into a row.
func (l *ledger) fill(row *trajectory.Row) {
	row.TokenIDs, row.LossMask, row.Logprobs, row.Images = l.ids, l.mask, l.logp, l.images
	row.LogprobMode = l.mode
	switch {
	case !l.used:
		row.LogprobMode = trajectory.LogprobNone
	case row.TokenSource == "":
		row.TokenSource = trajectory.Sampled
	}
}
