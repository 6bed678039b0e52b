package serve

import (
	"math"
	"slices"

	"searchloop/internal/vec"
)

// sampling says how a token is drawn: logits are divided by temperature, then
// only the topK likeliest are kept (0: all), then, of these, the likeliest that
// together have topP of their probability (1: all); one of the rest is drawn.
// Temperature 0 takes the likeliest. Of equals the smaller id comes first. Banned
// tokens are left out before all that.
type sampling struct {
	temperature float32
	topK        int
	topP        float32
	seed        uint64
	banned      []int32
}

// drawn is a token and its log-prob under the distribution after temperature,
// before tokens are left out (the distribution that a trainer scores); temperature
// 0 reports that of temperature 1.
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
	left := float64(total)
	for _, id := range s.banned {
		left -= float64(p[id])
		p[id] = 0
	}
	switch {
	case s.temperature <= 0 || left < 1e-6: // hardly anything but banned tokens
		d.id = s.greatest(logits)
	case s.topK > 0 && s.topK < n || s.topP < 1:
		d.id = s.drawFew(logits, p, position, w)
	default:
		d.id = pick(p, nil, left, uniform(s.seed, position))
	}
	d.logprob = min(logits[d.id]*scale-lse, 0)
	if tops > 0 {
		ids := s.likeliest(logits, min(tops, n-len(s.banned)), w.order)
		d.top = make([]likely, len(ids))
		for i, id := range ids {
			d.top[i] = likely{id, min(logits[id]*scale-lse, 0)}
		}
	}
	return d, true
}

// greatest returns the likeliest token that is not banned.
func (s *sampling) greatest(logits []float32) int32 {
	if id := int32(vec.ArgMax(logits)); !slices.Contains(s.banned, id) {
		return id
	}
	best := int32(-1)
	for i, l := range logits {
		if id := int32(i); (best < 0 || l > logits[best]) && !slices.Contains(s.banned, id) {
			best = id
		}
	}
	return max(best, 0)
}

// drawFew draws from the tokens that topK and topP leave.
func (s *sampling) drawFew(logits, p []float32, position int, w *scratch) int32 {
	var few []int32 // the likeliest first
	sum, want := 0.0, math.Inf(1)
	if k := s.topK; k > 0 && k < len(p) {
		if k > 256 { // insertion would be slow
			few = s.descend(logits, w.order, func(id int32) bool { return true }, func(id int32, kept int) bool { return kept < k })
		} else {
			few = s.likeliest(logits, k, w.order)
		}
		for _, id := range few {
			sum += float64(p[id])
		}
		if s.topP < 1 { // of what topK left
			want = sum * float64(s.topP)
		}
	} else {
		for _, x := range p {
			sum += float64(x)
		}
		// Tokens below floor have at most 1-topP together: those kept are all above.
		want = sum * float64(s.topP)
		floor := float32((sum - want) / float64(len(p)) * 0.999)
		seen := 0.0
		few = s.descend(logits, w.order, func(id int32) bool { return p[id] >= floor }, func(id int32, _ int) bool {
			more := seen < want
			seen += float64(p[id])
			return more
		})
	}
	if want < math.Inf(1) {
		sum = 0
		for i, id := range few {
			if sum += float64(p[id]); sum >= want {
				few = few[:i+1]
				break
			}
		}
	}
	return pick(p, few, sum, uniform(s.seed, position))
}

// descend returns the tokens that are eligible, the likeliest first, as long as
// more says so of the next. It uses buf.
func (s *sampling) descend(logits []float32, buf []int32, eligible func(int32) bool, more func(id int32, kept int) bool) []int32 {
	h := buf[:0]
	for i := range logits {
		if id := int32(i); eligible(id) && !slices.Contains(s.banned, id) {
			h = append(h, id)
		}
	}
	all := h
	for i := len(h)/2 - 1; i >= 0; i-- {
		sink(h, logits, i)
	}
	for len(h) > 0 && more(h[0], len(all)-len(h)) { // taken tokens go behind the heap
		last := len(h) - 1
		h[0], h[last] = h[last], h[0]
		h = h[:last]
		sink(h, logits, 0)
	}
	few := all[len(h):]
	slices.Reverse(few)
	return few
}

// sink restores the heap below i: the likelier on top, of equals the smaller id.
func sink(h []int32, logits []float32, i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && before(logits, h[c+1], h[c]) {
			c++
		}
		if !before(logits, h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}

func before(logits []float32, a, b int32) bool {
	return logits[a] > logits[b] || logits[a] == logits[b] && a < b
}

// pick returns the token at share u of the summed probabilities: of few in their
// order, or of all tokens when few is nil.
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
	for _, id := range few {
		last = id
		if sum += float64(p[id]); sum > target {
			break
		}
	}
	return last
}

// likeliest returns the n likeliest ids, the likeliest first. It uses buf.
func (s *sampling) likeliest(logits []float32, n int, buf []int32) []int32 {
	best := buf[:0]
	for i := range logits {
		id := int32(i)
		if len(best) == n && (n == 0 || !before(logits, id, best[n-1])) || slices.Contains(s.banned, id) {
			continue
		}
		if len(best) < n {
			best = append(best, id)
		}
		j := len(best) - 1
		for ; j > 0 && before(logits, id, best[j-1]); j-- {
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
