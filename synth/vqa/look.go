package vqa

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/fence"
	"searchloop/rollout/protocol"
	"searchloop/rollout/tool"
	"searchloop/synth/ask"
	"searchloop/synth/leak"
)

// Spot is a box around a thing in an image: 0 to 1000 over width and height.
type Spot struct {
	Box  protocol.Box `json:"box"`
	What string       `json:"what"` // what it looks like, and where it is
	Why  string       `json:"why"`  // why one would look it up
}

// UnmarshalJSON also reads a box alone.
func (s *Spot) UnmarshalJSON(text []byte) error {
	var box []float64
	type plain Spot
	var p struct {
		Box []float64 `json:"box"`
		*plain
	}
	p.plain = (*plain)(s)
	if json.Unmarshal(text, &box) != nil {
		if err := json.Unmarshal(text, &p); err != nil {
			return err
		}
		box = p.Box
	}
	if len(box) != 4 {
		return errors.New("a box has four numbers: left, top, right, bottom")
	}
	s.Box = protocol.Box(box)
	return nil
}

// check says what is wrong with a box.
func (s *Spot) check() error {
	for _, v := range s.Box {
		if !(v >= 0 && v <= 1000) {
			return fmt.Errorf("the box %v reaches out of 0 to 1000", s.Box)
		}
	}
	if s.Box[0] >= s.Box[2] || s.Box[1] >= s.Box[3] {
		return fmt.Errorf("the box %v is empty", s.Box)
	}
	return nil
}

// looker looks at parts of images.
type looker struct {
	crop         tool.Cropper
	talk         protocol.Protocol
	step         *template.Template
	boxes        *ask.Prompt // nil: images bring their boxes
	same, entity *ask.Prompt
}

// openLooker prepares for kinds with crops.
func openLooker(rec *recipe.Recipe, src tool.Sources) (*looker, error) {
	const op = "read recipe"
	i := slices.IndexFunc(rec.Tools, func(t recipe.Tool) bool { return tool.KindOf(t) == tool.CropAndSearch })
	if i < 0 {
		return nil, fail.New(fail.Usage, op, "", "a kind with crops needs the tool %s", tool.CropAndSearch)
	}
	if src.Crops == nil {
		return nil, fail.WithHint(fail.New(fail.Usage, "search for parts of images", "", "there is nothing to search"), "give --gallery, or a recipe with retrieval.crops")
	}
	l := &looker{crop: tool.Cropper{Tool: rec.Tools[i], In: src.Crops}}
	l.crop.Tool.TopK = cmp.Or(l.crop.Tool.TopK, 3)
	var err error
	if l.talk, err = protocol.New(rec.Protocol); err != nil {
		return nil, err
	}
	if l.step, err = template.New("synth.step").Option("missingkey=error").Parse(rec.Synth.Step); err != nil {
		return nil, fail.Wrap(fail.Usage, op+": synth.step", "", err)
	}
	s := rec.Synth
	for _, p := range []struct {
		to                 **ask.Prompt
		name, system, text string
	}{{&l.boxes, "synth.boxes", s.System, s.Boxes}, {&l.same, "synth.same", s.Judge, s.Same}, {&l.entity, "synth.entity", s.System, s.Entity}} {
		if p.text != "" {
			if *p.to, err = ask.NewPrompt(p.name, p.system, p.text); err != nil {
				return nil, err
			}
		}
	}
	return l, nil
}

// look finds out what an image shows by searching for parts of it. The question is
// then about the first thing that was found.
func (q *quest) look(ctx context.Context) error {
	if !q.it.kind.Crops {
		return nil
	}
	q.out.Stage = StageBoxes
	spots, err := q.spots(ctx)
	if err != nil || q.out.Reason != "" {
		return err
	}
	q.out.Stage = StageFound
	var last error // why there was no verdict or no name
	for i := range spots[:min(len(spots), cmp.Or(q.s.MaxBoxes, 4))] {
		name, err := q.lookAt(ctx, i, &spots[i])
		var bad *ask.Bad
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		if err != nil {
			last = err
		}
		if name != "" {
			q.concept.Name, q.concept.Query = name, name
			return nil
		}
	}
	if last != nil {
		return last
	}
	q.out.refuse(StageFound, "no hit shows what the image shows", "")
	return nil
}

// spots are the image's own boxes, or those that the writer proposes.
func (q *quest) spots(ctx context.Context) ([]Spot, error) {
	if len(q.concept.Boxes) > 0 {
		return q.concept.Boxes, nil
	}
	if q.looker.boxes == nil {
		q.out.refuse(StageBoxes, "the image has no boxes", "")
		return nil, nil
	}
	var reply struct {
		Boxes []Spot `json:"boxes"`
	}
	hint := ""
	if q.it.concept.Name != "" {
		hint = fence.Wrap("CONCEPT", q.it.concept.Name)
	}
	if err := q.json(ctx, q.looker.boxes, "boxes", "/boxes", struct {
		Concept string
		Most    int
	}{hint, cmp.Or(q.s.MaxBoxes, 4)}, q.shown(), &reply); err != nil {
		return nil, err
	}
	var out []Spot
	why := ""
	for _, s := range reply.Boxes {
		s.What, s.Why = oneLine(s.What), oneLine(s.Why)
		switch err := s.check(); {
		case err != nil:
			why = err.Error()
		case s.What == "":
			why = "it says not what the box is around"
		case foreign(s.What, q.s.Language) != "":
			why = "wrong language: " + s.What
		default:
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		q.out.refuse(StageBoxes, "no usable box", why)
	}
	return out, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// lookAt searches for one thing at all scales, has what was found verified, best
// first, and gives the thing's name; "" when nothing found shows it.
func (q *quest) lookAt(ctx context.Context, n int, s *Spot) (name string, err error) {
	l := corpus.Look{What: cmp.Or(s.What, theImage)}
	defer func() {
		if len(l.Boxes) > 0 {
			q.origin.Looks = append(q.origin.Looks, l)
		}
	}()
	var parts []tool.Part
	for _, scale := range q.scales() {
		b := tool.Scale(s.Box, float64(scale)/100)
		if slices.ContainsFunc(parts, func(p tool.Part) bool { return p.Box == b }) {
			continue // the image ends here
		}
		p, err := q.looker.crop.Look(ctx, q.mat.whole, b, l.What)
		if err != nil {
			return "", err
		}
		parts = append(parts, p)
		l.Boxes = append(l.Boxes, corpus.LookBox{Left: b[0], Top: b[1], Right: b[2], Bottom: b[3], Scale: int32(scale)})
	}
	if l.Turn, err = q.turn(s, &l); err != nil {
		return "", err
	}
	l.Observation = q.looker.crop.Tell(parts)
	var bad error
	for i, f := range best(parts, cmp.Or(q.s.Hits, 5)) {
		hit := corpus.LookHit{Title: pageOf(f.Contents, "").title, Link: f.Link, Score: f.Score, Box: int32(f.part)}
		same, err := q.verify(ctx, fmt.Sprintf("/look%d/hit%d", n+1, i+1), &l, &f, parts[f.part].Box)
		var b *ask.Bad
		switch {
		case errors.As(err, &b):
			hit.Why, bad = b.Reason, err
		case err != nil:
			return "", err
		}
		hit.Same = same
		l.Hits = append(l.Hits, hit)
		if !same {
			continue
		}
		l.Found, err = q.name(ctx, fmt.Sprintf("/look%d", n+1), &l, &f)
		return l.Found, err
	}
	return "", bad
}

func (q *quest) scales() []int {
	if len(q.s.Scales) == 0 {
		return []int{100}
	}
	return q.s.Scales
}

// found is a hit with the part that it is most like.
type found struct {
	tool.Hit
	part int
}

// best are the n best hits of parts, each page once.
func best(parts []tool.Part, n int) (out []found) {
	for i, p := range parts {
		for _, h := range p.Hits {
			at := slices.IndexFunc(out, func(f found) bool { return f.Link == h.Link && f.Contents == h.Contents })
			switch {
			case at < 0:
				out = append(out, found{h, i})
			case h.Score > out[at].Score:
				out[at] = found{h, i}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b found) int { return cmp.Compare(b.Score, a.Score) })
	return out[:min(n, len(out))]
}

// verify asks the checker whether a hit shows the same thing as a part of the image.
func (q *quest) verify(ctx context.Context, key string, l *corpus.Look, f *found, b protocol.Box) (bool, error) {
	part := tool.Cut(q.mat.whole, b, 1)
	if part == nil {
		return false, nil
	}
	data, err := q.small(part)
	if err != nil {
		return false, fail.Wrap(fail.Bug, "encode a part of an image", q.it.key, err)
	}
	images := [][]byte{data}
	if p := q.pictureOf(&f.Hit); p != nil {
		images = append(images, p)
	}
	return q.verdict(ctx, q.looker.same, "same", key, struct {
		What, Hit string
		Picture   bool
	}{fence.Wrap("WHAT", l.What), q.hit(f), len(images) > 1}, images)
}

func (q *quest) hit(f *found) string {
	return fence.Within("HIT", f.Contents, cmp.Or(q.s.PageChars, 6000))
}

// name has the writer say what a verified hit calls the thing; "" when it does not.
func (q *quest) name(ctx context.Context, key string, l *corpus.Look, f *found) (string, error) {
	var reply struct {
		Entity string `json:"entity"`
		Skip   string `json:"skip"`
	}
	if err := q.json(ctx, q.looker.entity, "entity", key, struct{ What, Hit string }{fence.Wrap("WHAT", l.What), q.hit(f)}, nil, &reply); err != nil {
		return "", err
	}
	name := oneLine(reply.Entity)
	switch {
	case reply.Skip != "":
		return "", &ask.Bad{Reason: "the page does not name it", Detail: reply.Skip}
	case !leak.Mentions(f.Contents, name):
		return "", &ask.Bad{Reason: "the name is not in the page", Detail: name}
	}
	return name, nil
}

// turn is a policy's turn that asks for the look. That the recipe's protocol reads it
// so is checked here, since whoever learns from it will write what stands there.
func (q *quest) turn(s *Spot, l *corpus.Look) (string, error) {
	boxes := [][]float64{}
	for _, b := range l.Boxes {
		boxes = append(boxes, []float64{b.Left, b.Top, b.Right, b.Bottom})
	}
	args, err := json.Marshal(struct {
		Image string      `json:"image_id"`
		Boxes [][]float64 `json:"bbox"`
		Goal  string      `json:"goal"`
	}{"1", boxes, l.What})
	if err != nil {
		return "", fail.Wrap(fail.Bug, "write a look", q.it.key, err)
	}
	var b strings.Builder
	if err := q.looker.step.Execute(&b, struct{ What, Why, Args string }{protocol.Tame(l.What, protocol.Think, protocol.ToolCall, protocol.ToolResponse, protocol.Answer),
		protocol.Tame(s.Why, protocol.Think, protocol.ToolCall, protocol.ToolResponse, protocol.Answer), string(args)}); err != nil {
		return "", fail.Wrap(fail.Usage, "fill in synth.step", "", err)
	}
	said := q.looker.talk.Read(b.String(), protocol.Place{})
	if len(said.Calls) != 1 || said.Calls[0].Problem != "" || said.Calls[0].Name != q.looker.crop.Tool.Name || len(said.Calls[0].Boxes) != len(l.Boxes) {
		return "", fail.New(fail.Usage, "fill in synth.step", "", "the recipe's protocol does not read it as one call of %s: %s", q.looker.crop.Tool.Name, b.String())
	}
	return b.String(), nil
}
