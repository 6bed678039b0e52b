// Package stat has the statistics of an evaluation as pure functions: intervals of
// a share, paired tests of two policies on the same questions, and estimates of
// what several samples a question are worth. It knows no files; what is random is
// seeded.
package stat

import (
	"math"
	"math/rand/v2"
	"slices"

	gonum "gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Interval is a mean with its 95 % interval.
type Interval struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

const (
	lower, upper = 0.025, 0.975
	z95          = 1.959963984540054 // of the standard normal at 0.975
)

// Bootstrap is the mean of values with the 2.5 % and 97.5 % percentiles of the
// means of resamples drawn with replacement (Efron 1979).
func Bootstrap(values []float64, resamples int, seed uint64) Interval {
	out, _ := bootstrap(values, resamples, seed)
	return out
}

// bootstrap also gives the sorted means of the resamples, of which there are none
// without values.
func bootstrap(values []float64, resamples int, seed uint64) (out Interval, draws []float64) {
	if len(values) == 0 {
		return out, nil
	}
	out.Mean = gonum.Mean(values, nil)
	out.Low, out.High = out.Mean, out.Mean
	if resamples < 1 {
		return out, nil
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	draws = make([]float64, resamples)
	for r := range draws {
		sum := 0.0
		for range values {
			sum += values[rng.IntN(len(values))]
		}
		draws[r] = sum / float64(len(values))
	}
	slices.Sort(draws)
	out.Low, out.High = Percentile(draws, lower), Percentile(draws, upper)
	return out, draws
}

// Percentile interpolates linearly between the order statistics of sorted xs, as
// NumPy does.
func Percentile(xs []float64, p float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	at := p * float64(len(xs)-1)
	i := int(at)
	if i+1 >= len(xs) {
		return xs[len(xs)-1]
	}
	return xs[i] + (at-float64(i))*(xs[i+1]-xs[i])
}

// Wilson is the score interval of hits in n (Wilson 1927): unlike the bootstrap it
// has a width also where all or none are right.
func Wilson(hits, n int) Interval {
	if n == 0 {
		return Interval{}
	}
	p, m := float64(hits)/float64(n), float64(n)
	centre := (p + z95*z95/(2*m)) / (1 + z95*z95/m)
	half := z95 / (1 + z95*z95/m) * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m))
	return Interval{p, max(0, centre-half), min(1, centre+half)}
}

// McNemar is the exact two-sided p-value of McNemar's test (1947): of the pairs on
// which two policies differ, gained were won and lost were lost; under the null
// hypothesis either is as likely.
func McNemar(gained, lost int) float64 {
	n := gained + lost
	if n == 0 {
		return 1
	}
	b := distuv.Binomial{N: float64(n), P: 0.5}
	return min(1, 2*b.CDF(float64(min(gained, lost))))
}

// Paired is the difference of two policies on the same questions.
type Paired struct {
	Difference Interval `json:"difference"` // of the means, b - a
	P          float64  `json:"p"`          // two-sided, of the bootstrap
}

// PairedBootstrap resamples the differences b-a of paired values. P is twice the
// share of resamples whose mean lies on the other side of 0 or on it, counting the
// sample itself (Davison and Hinkley 1997, 4.2).
func PairedBootstrap(a, b []float64, resamples int, seed uint64) Paired {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = b[i] - a[i]
	}
	interval, draws := bootstrap(d, resamples, seed)
	below, above := 1, 1
	for _, m := range draws {
		if m <= 0 {
			below++
		}
		if m >= 0 {
			above++
		}
	}
	return Paired{Difference: interval, P: min(1, 2*float64(min(below, above))/float64(len(draws)+1))}
}

// PassAtK is the unbiased estimate of the probability that at least one of k
// samples is right, given that right of n are (Chen et al. 2021): 1 - C(n-right, k)/C(n, k).
// It is NaN for k above n.
func PassAtK(n, right, k int) float64 {
	switch {
	case k < 1 || k > n:
		return math.NaN()
	case n-right < k:
		return 1
	}
	none := 1.0
	for i := n - right + 1; i <= n; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}
