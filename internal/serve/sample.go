package serve

import (
	"math"

	"searchloop/internal/vec"
)

// sampling says how a token is drawn: logits are divided by temperature, then
// only the topK likeliest are kept (0: all), then, of these, the likeliest that
// together have topP of their probability (1: all); one of the rest is drawn.
// Temperature 0 takes the likeliest. Of equals the smaller id comes first.
type sampling struct {
	temperature float32
	topK        int
	topP        float32
	seed        uint64
}

// drawn is a token and its log-prob under the distribution after temperature,
// before topK and topP; temperature 0 reports that of temperature 1.
type drawn struct {
	id      int32
	logprob float32
	top     []likely // the likeliest tokens, when asked for
}

type likely struct {
	id      int32
	logprob float32
}

// scratch is the memory of draw, for one goroutine.
type scratch struct {
	p     []float32 // probabilities, not normalised
	order []int32   // ids, a heap or sorted
}

// draw is a pure function of the logits, the sampling and the token's position in
// its sequence: neither the batch nor the clock has a part in it. tops is the
// number of likeliest tokens to report. ok is false when the logits are no
// numbers. The logits are not changed.
func (s *sampling) draw(logits []float32, position, tops int, w *scratch) (d drawn, ok bool) {
	n := len(logits)
	if cap(w.p) < n {
		w.p, w.order = make([]float32, n), make([]int32, n)
	}
	p := w.p[:n]
	scale := float32(1)
	if s.temperature > 0 {
		scale = 1 / s.temperature
	}
	copy(p, logits)
	if scale != 1 {
		vec.Scale(p, p, scale)
	}
	peak := vec.Max(p)
	total := vec.ExpSum(p, p, peak)
	if !(total >= 0.5) || math.IsInf(float64(total), 0) || math.IsInf(float64(peak), 0) {
		return drawn{}, false
	}
	lse := peak + float32(math.Log(float64(total)))
	switch {
	case s.temperature <= 0:
		d.id = int32(vec.ArgMax(logits))
	case s.topK > 0 && s.topK < n || s.topP < 1:
		d.id = s.drawFew(p, position, w)
	default:
		d.id = pick(p, nil, float64(total), uniform(s.seed, position))
	}
	d.logprob = min(logits[d.id]*scale-lse, 0)
	if tops > 0 {
		ids := likeliest(p, min(tops, n), w.order)
		d.top = make([]likely, len(ids))
		for i, id := range ids {
			d.top[i] = likely{id, min(logits[id]*scale-lse, 0)}
		}
	}
	return d, true
}

// drawFew draws from the tokens that topK and topP leave.
func (s *sampling) drawFew(p []float32, position int, w *scratch) int32 {
	k := len(p)
	if s.topK > 0 {
		k = min(k, s.topK)
	}
	// Under topP alone few are needed as a rule: take them off a heap one by one.
	h := w.order[:len(p)]
	for i := range h {
		h[i] = int32(i)
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, p, i)
	}
	kept := 0 // taken tokens are moved to the end of w.order, the likeliest last
	sum, want := 0.0, math.Inf(1)
	if s.topK <= 0 || s.topK >= len(p) {
		want = 0
		for _, x := range p {
			want += float64(x)
		}
		want *= float64(s.topP)
	}
	for kept < k && len(h) > 0 && sum < want {
		id := h[0]
		h[0] = h[len(h)-1]
		h[len(h)-1] = id
		h = h[:len(h)-1]
		sink(h, p, 0)
		sum += float64(p[id])
		kept++
	}
	few := w.order[len(p)-kept : len(p)]
	if s.topP < 1 && math.IsInf(want, 1) { // topP of what topK left
		want = sum * float64(s.topP)
		sum = 0
		for i := len(few) - 1; i >= 0; i-- {
			if sum += float64(p[few[i]]); sum >= want {
				few = few[i:]
				break
			}
		}
	}
	return pick(p, few, sum, uniform(s.seed, position))
}

// sink restores the heap below i: the likelier on top, of equals the smaller id.
func sink(h []int32, p []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(p, h[c+1], h[c]) {
			c++
		}
		if !before(p, h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func before(p []float32, a, b int32) bool { return p[a] > p[b] || p[a] == p[b] && a < b }

// pick returns the token at share u of the summed probabilities: of all tokens in
// the order of ids, or of few from its end to its beginning.
func pick(p []float32, few []int32, total, u float64) int32 {
	target, sum, last := u*total, 0.0, int32(0)
	if few == nil {
		for i, x := range p {
			if x > 0 {
				last = int32(i)
			}
			if sum += float64(x); sum > target {
				break
			}
		}
		return last
	}
	for i := len(few) - 1; i >= 0; i-- {
		last = few[i]
		if sum += float64(p[last]); sum > target {
			break
		}
	}
	return last
}

// likeliest returns the n likeliest ids, the likeliest first. It uses buf.
func likeliest(p []float32, n int, buf []int32) []int32 {
	best := buf[:0]
	for i := range p {
		id := int32(i)
		if len(best) == n && !before(p, id, best[n-1]) {
			continue
		}
		if len(best) < n {
			best = append(best, id)
		}
		j := len(best) - 1
		for ; j > 0 && before(p, id, best[j-1]); j-- {
			best[j] = best[j-1]
		}
		best[j] = id
	}
	return best
}

// uniform is a number in [0, 1) that depends on seed and position alone.
func uniform(seed uint64, position int) float64 {
	x := mix(seed+0x9e3779b97f4a7c15) ^ mix(uint64(position)*0xd1342543de82ef95+0x2545f4914f6cdd1d)
	return float64(mix(x)>>11) / (1 << 53)
}

// mix is a bijection that spreads every bit over all (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
