package train

import (
	"searchloop/internal/model/qwenvl"
)

// Sequence is one row ready for training: the tokens as they were sampled or
// rendered, which of them are trained, and, for GRPO, what belongs to these.
type Sequence struct {
	ID      string
	Tokens  []int32
	Spans   []Span // of trained tokens, ascending, not touching, none at 0
	Trained int    // tokens in Spans
	Images  []ImageRef
	Cost    float64 // operations of training on it; packs are balanced by it

	Temperature float32
	// One value a trained token, in order. Old is what the ratio is formed with;
	// Sampled is nil when it is not comparable with what the trainer computes.
	Sampled, Old, Ref []float32
	Advantage, Reward float64
	Group             int
	Rollout           string // rows of one rollout weigh as one in RolloutMeanTokenMean; otherwise empty

	// Of a Correction: weights of the policy term (nil: 1), tokens that it rejects
	// (nil: none), how many it leaves, and how many weights lay outside its bounds.
	Weight        []float32
	Skip          []bool
	Kept, Outside int
}

// Span is a run [From, To) of tokens.
type Span struct{ From, To int32 }

// ImageRef is one image of a sequence; its patches are read when a pack needs
// them.
type ImageRef struct {
	ID     string // SHA-256 of its encoded bytes
	Grid   [3]int32
	Offset int32 // of its first pad in Tokens
}

// spansOf are the runs of true.
func spansOf(mask []bool) (spans []Span, trained int) {
	for i := 0; i < len(mask); i++ {
		if !mask[i] {
			continue
		}
		from := i
		for i < len(mask) && mask[i] {
			i++
		}
		spans = append(spans, Span{int32(from), int32(i)})
		trained += i - from
	}
	return spans, trained
}

// pick are the values at the spans. What stands elsewhere is not looked at.
func pick(values []float32, spans []Span, trained int) []float32 {
	out := make([]float32, 0, trained)
	for _, s := range spans {
		out = append(out, values[s.From:s.To]...)
	}
	return out
}

// packed is a pack as a model takes it: rows[i] is the packed token whose hidden
// state predicts targets[i], a trained token. Its memory is used again by the
// next call of assemble.
type packed struct {
	batch         qwenvl.Batch
	rows, targets []int32
	temperature   float32
	trained       []int     // trained tokens of each sequence
	routes        [][]int32 // that a score took
	blank         []float32 // patches of images that nobody looks at
}

// assemble lays sequences one after the other. All must have one temperature.
// Without images it is a plan: the images' patches are all zero.
func (p *packed) assemble(policy Policy, images *Pictures, seqs []*Sequence) error {
	b := &p.batch
	b.Tokens, b.Images = b.Tokens[:0], b.Images[:0]
	b.CuSeqlens = append(b.CuSeqlens[:0], 0)
	for a := range b.Positions {
		b.Positions[a] = b.Positions[a][:0]
	}
	p.rows, p.targets, p.trained = p.rows[:0], p.targets[:0], p.trained[:0]
	b.Routes = nil
	p.temperature = seqs[0].Temperature
	var grids [][3]int32
	for _, s := range seqs {
		start := int32(len(b.Tokens))
		grids = grids[:0]
		for _, im := range s.Images {
			var patches []float32
			if images == nil {
				n := int(im.Grid[0]) * int(im.Grid[1]) * int(im.Grid[2]) * policy.Traits().PatchDim
				p.blank = sized(p.blank, n)
				patches = p.blank
			} else {
				var err error
				if patches, err = images.Patches(im.ID, im.Grid); err != nil {
					return err
				}
			}
			b.Images = append(b.Images, qwenvl.Image{Grid: im.Grid, Patches: patches, Offset: start + im.Offset})
			grids = append(grids, im.Grid)
		}
		pos, err := policy.Positions(s.Tokens, grids)
		if err != nil {
			return err
		}
		for a := range pos {
			b.Positions[a] = append(b.Positions[a], pos[a]...)
		}
		b.Tokens = append(b.Tokens, s.Tokens...)
		b.CuSeqlens = append(b.CuSeqlens, int32(len(b.Tokens)))
		for _, span := range s.Spans {
			for t := span.From; t < span.To; t++ {
				p.rows = append(p.rows, start+t-1)
				p.targets = append(p.targets, s.Tokens[t])
			}
		}
		p.trained = append(p.trained, s.Trained)
	}
	return nil
}
