package train

import (
	"encoding/json"
	"fmt"

	"searchloop/internal/chat"
	"searchloop/rollout/trajectory"
)

// Renderer writes a conversation as a policy reads it.
type Renderer func(msgs []chat.Message, tools json.RawMessage) (*chat.Prompt, error)

// lessons is a rollouts dataset as SFT sees it: rendered once, kept as ids.
type lessons struct {
	rows    []*Sequence
	stats   *Stats
	refused []refusedRow
}

// lessonReader is what decides over trajectories to learn from.
type lessonReader struct {
	rollouts string // empty: none
	examples []*dialogue
	correct  map[string]bool // by row id; nil: all are taken
	render   Renderer
	tools    json.RawMessage
	check    Checker
	images   *Pictures
	grids    map[string][3]int32
}

func (l *lessonReader) read() (*lessons, error) {
	out := &lessons{stats: newStats()}
	l.grids = map[string][3]int32{}
	keep := func(s *Sequence) {
		out.stats.size(len(s.Tokens), len(s.Images))
		out.stats.TrainedTokens.add(float64(s.Trained))
		out.rows = append(out.rows, s)
	}
	for _, d := range l.examples {
		out.stats.example(d)
		s, refusal := l.example(d)
		if refusal != nil {
			out.refused = append(out.refused, refusedRow{row: d.row, id: d.id, path: d.path, reason: refusal})
			out.stats.Refused[refusal.Reason]++
			continue
		}
		keep(s)
	}
	out.stats.TrainedRows = int64(len(out.rows))
	if l.rollouts == "" {
		return out, nil
	}
	seen := map[string]bool{}
	n := int64(0)
	for row, err := range trajectory.Rollouts(l.rollouts) {
		if err != nil {
			return nil, err
		}
		n++
		s, refusal := l.one(&row, seen, out.stats)
		if refusal != nil {
			out.refused = append(out.refused, refusedRow{row: n, id: row.ID, reason: refusal})
			out.stats.Refused[refusal.Reason]++
		}
		if s != nil {
			keep(s)
		}
	}
	out.stats.TrainedRows = int64(len(out.rows))
	return out, nil
}

// one decides what becomes of a row: only trajectories that came to their own end
// are imitated.
func (l *lessonReader) one(row *trajectory.Row, seen map[string]bool, stats *Stats) (*Sequence, *Refusal) {
	stats.row(row)
	if seen[row.ID] {
		return nil, refuse(Duplicate, "")
	}
	seen[row.ID] = true
	switch row.Status {
	case trajectory.OK:
	case trajectory.Failed:
		return nil, nil // counted by status
	case trajectory.Truncated:
		stats.TruncatedDropped++
		return nil, nil
	default:
		return nil, refuse(BadStatus, "%q", row.Status)
	}
	if l.correct != nil {
		ok, judged := l.correct[row.ID]
		if !judged {
			return nil, refuse(NoJudgement, "")
		}
		if !ok {
			stats.IncorrectDropped++
			return nil, nil
		}
	}
	return l.sequence(row)
}

// sequence renders a trajectory. Trained are the policy's own turns, end mark
// included, but not those whose call was malformed: the recovery is worth
// learning, the mistake is not. Image sizes are those that this policy's own
// processor gives: another policy may have seen them in another size.
func (l *lessonReader) sequence(row *trajectory.Row) (*Sequence, *Refusal) {
	turns := make([]dialogueTurn, len(row.Turns))
	for i := range row.Turns {
		t := &row.Turns[i]
		if t.Role == chat.Assistant && t.Finish == "length" {
			return nil, refuse(NotRendered, "turn %d was cut", i+1)
		}
		turns[i] = dialogueTurn{role: t.Role, text: t.Text, images: t.Images, learn: t.Role == chat.Assistant && t.Error == ""}
	}
	return l.rendered(row.ID, turns, l.tools)
}

// example is the sequence of a conversation from a file.
func (l *lessonReader) example(d *dialogue) (*Sequence, *Refusal) {
	if d.broken != nil {
		return nil, d.broken
	}
	tools := d.tools
	if tools == nil {
		tools = l.tools
	}
	return l.rendered(d.id, d.turns, tools)
}

// rendered turns are checked like every row.
func (l *lessonReader) rendered(id string, turns []dialogueTurn, tools json.RawMessage) (*Sequence, *Refusal) {
	s := &Sequence{ID: id, Temperature: 1}
	msgs := make([]chat.Message, len(turns))
	for i := range turns {
		t := &turns[i]
		msgs[i] = chat.Message{Role: t.role, Text: t.text, At: t.at}
		for _, id := range t.images {
			grid, ok := l.grids[id]
			if !ok {
				var err error
				if grid, err = l.images.Grid(id); err != nil {
					return nil, refuse(NoImage, "turn %d: %v", i+1, err)
				}
				l.grids[id] = grid
			}
			msgs[i].Images = append(msgs[i].Images, chat.Image{Grid: grid, Merge: l.check.Merge})
			s.Images = append(s.Images, ImageRef{ID: id, Grid: grid})
		}
	}
	p, err := l.render(msgs, tools)
	if err == nil && (len(p.Spans) != len(msgs) || len(p.ImageOffsets) != len(s.Images)) {
		err = fmt.Errorf("%d messages and %d images became %d and %d", len(msgs), len(s.Images), len(p.Spans), len(p.ImageOffsets))
	}
	if err != nil {
		return nil, refuse(NotRendered, "%v", err)
	}
	s.Tokens = p.IDs
	for i, offset := range p.ImageOffsets {
		s.Images[i].Offset = offset
	}
	for i, span := range p.Spans {
		if turns[i].learn && span.From < span.To {
			s.Spans = append(s.Spans, Span{int32(span.From), int32(span.To)})
			s.Trained += span.To - span.From
		}
	}
	if refusal := l.check.Sequence(s); refusal != nil {
		return nil, refusal
	}
	for k, im := range s.Images {
		if err := l.images.check(im, l.check.PatchDim); err != nil {
			return nil, refuse(NoImage, "image %d: %v", k, err)
		}
	}
	return s, nil
}

// correctRows reads which rows a judge found right.
func correctRows(judged string) (map[string]bool, error) {
	correct := map[string]bool{}
	for j, err := range trajectory.Judgements(judged) {
		if err != nil {
			return nil, err
		}
		correct[j.ID] = j.Scored && j.Correct
	}
	return correct, nil
}
