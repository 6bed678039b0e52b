package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"searchloop/corpus"
)

// Seed is the sampling seed of one turn: the first 31 bits of
// SHA-256("turn" 0 seed epoch sample turn question), the numbers as 64-bit
// little endian. 31 bits, because some servers read no more.
func Seed(seed uint64, epoch int, question string, sample, turn int) int64 {
	return int64(hash("turn", question, seed, uint64(epoch), uint64(sample), uint64(turn)) >> 33)
}

// Draw picks the questions of an epoch: the n with the smallest hash of seed,
// epoch and id; all of them when n is 0. The order is by that hash, so that the
// first m of a draw of n are the draw of m.
func Draw(qs []corpus.Question, seed uint64, epoch, n int) []corpus.Question {
	type ranked struct {
		key uint64
		q   corpus.Question
	}
	list := make([]ranked, len(qs))
	for i, q := range qs {
		list[i] = ranked{hash("draw", q.ID, seed, uint64(epoch)), q}
	}
	slices.SortFunc(list, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.q.ID, b.q.ID))
	})
	if n > 0 && n < len(list) {
		list = list[:n]
	}
	out := make([]corpus.Question, len(list))
	for i, r := range list {
		out[i] = r.q
	}
	return out
}

func hash(domain, text string, numbers ...uint64) uint64 {
	b := append([]byte(domain), 0)
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	sum := sha256.Sum256(append(b, text...))
	return binary.BigEndian.Uint64(sum[:8])
}
