package eval

import (
	"encoding/json"
	"math"
	"strconv"

	"searchloop/eval/score"
	"searchloop/internal/stat"
	"searchloop/rollout/reward"
)

// more fills in what Measure does not count in its first pass.
func (m *Metrics) more(samples []Sample, perQuestion map[string][]float64) {
	n := float64(len(samples))
	m.Scores = map[string]float64{}
	correct, turns := 0, 0.0
	for i := range samples {
		s := &samples[i]
		if s.Correct {
			correct++
		}
		for name, v := range map[string]float64{"exact_match": bit(s.ExactMatch), "sub_em": bit(s.SubEM), "f1": s.F1, score.Judge: bit(s.Judged)} {
			m.Scores[name] += v / n
		}
		m.Health.Repetition += s.Repetition / n
		diversity := 1.0
		if s.Queries > 0 {
			diversity = float64(s.Distinct) / float64(s.Queries)
		}
		m.Health.QueryDiversity += diversity / n
		m.Health.BadTurns += float64(s.BadTurns)
		m.Health.OpenTags += float64(s.OpenTags)
		turns += float64(s.Turns)
	}
	m.Health.BadTurns /= max(turns, 1)
	m.Health.OpenTags /= max(turns, 1)
	m.Score = stat.Wilson(correct, len(samples))
	m.passAt(perQuestion)
	m.Search = confusion(samples, nil)
	if m.Metric == "mme" {
		m.Paired = paired(samples)
	}
}

// passAt is pass@k for every k that all questions have samples for.
func (m *Metrics) passAt(perQuestion map[string][]float64) {
	least := math.MaxInt
	for _, v := range perQuestion {
		least = min(least, len(v))
	}
	m.Samples, m.PassAt = least, map[string]float64{}
	sums := make([]float64, least+1)
	for _, v := range perQuestion {
		hits := 0
		for _, x := range v {
			if x >= reward.F1Right {
				hits++
			}
		}
		for k := 1; k <= least; k++ {
			sums[k] += stat.PassAtK(len(v), hits, k)
		}
	}
	for k := 1; k <= least; k++ {
		m.PassAt[strconv.Itoa(k)] = math.Round(1e12*sums[k]/float64(len(perQuestion))) / 1e12 // sums in the order of a map
	}
}

// confusion counts need against use. free are categories that need no search; with
// none, FVQA's names tell.
func confusion(samples []Sample, free []string) (c Confusion) {
	named := map[string]bool{}
	for _, f := range free {
		named[f] = true
	}
	for i := range samples {
		s := &samples[i]
		need := !named[s.Category]
		if free == nil {
			switch s.Category {
			case "search_required":
				need = true
			case "search_free":
				need = false
			default:
				c.Unknown++
				continue
			}
		}
		switch used := s.Searched(); {
		case need && used:
			c.NeededUsed++
		case need:
			c.NeededUnused++
		case used:
			c.FreeUsed++
		default:
			c.FreeUnused++
		}
	}
	return c
}

// paired is MME's score: questions of one category and question_id make a pair.
func paired(samples []Sample) *PairedScore {
	type image struct{ category, id string }
	pairs := map[image][]float64{}
	for i := range samples {
		var about struct {
			ID string `json:"question_id"`
		}
		if json.Unmarshal([]byte(samples[i].Meta), &about) != nil || about.ID == "" {
			about.ID = samples[i].Question
		}
		key := image{samples[i].Category, about.ID}
		pairs[key] = append(pairs[key], samples[i].Score)
	}
	out := &PairedScore{ByCategory: map[string]float64{}}
	images := map[string]float64{}
	for key, v := range pairs {
		sum := 0.0
		for _, x := range v {
			sum += x
		}
		points := 100 * sum / float64(len(v))
		if sum == float64(len(v)) {
			points += 100
		}
		out.ByCategory[key.category] += points
		images[key.category]++
	}
	for c := range out.ByCategory {
		out.ByCategory[c] = math.Round(1e9*out.ByCategory[c]/images[c]) / 1e9
	}
	for _, v := range out.ByCategory {
		out.Total += v
	}
	out.Total = math.Round(1e9*out.Total) / 1e9
	return out
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
