package rollout

import (
	"cmp"
	"slices"

	"searchloop/corpus"
	"searchloop/internal/lot"
)

// Seed is the sampling seed of one turn: the first 31 bits of
// SHA-256("turn" 0 seed epoch sample turn question), the numbers as 64-bit
// little endian. 31 bits, because some servers read no more.
func Seed(seed uint64, epoch int, question string, sample, turn int) int64 {
	return int64(lot.Draw("turn", question, seed, uint64(epoch), uint64(sample), uint64(turn)) >> 33)
}

// Draw picks the questions of an epoch: the n with the smallest hash of seed,
// epoch and id; all of them when n is 0. The order is by that hash, so that the
// first m of a draw of n are the draw of m.
func Draw(qs []corpus.Question, seed uint64, epoch, n int) []corpus.Question {
	type ranked struct {
		key uint64
		q   *corpus.Question
	}
	list := make([]ranked, len(qs))
	for i := range qs {
		list[i] = ranked{lot.Draw("draw", qs[i].ID, seed, uint64(epoch)), &qs[i]}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.q.ID, b.q.ID))
	})
	if n > 0 && n < len(list) {
		list = list[:n]
	}
	out := make([]corpus.Question, len(list))
	for i, r := range list {
		out[i] = *r.q
	}
	return out
}
