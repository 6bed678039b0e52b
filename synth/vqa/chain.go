package vqa

import (
	"context"
	"fmt"
	"strings"

	"searchloop/corpus/near"
	"searchloop/internal/manifest"
	"searchloop/rollout/fence"
	"searchloop/synth/leak"
)

// linked is what a writer says of the next entity of a chain.
type linked struct {
	Entity      string `json:"entity"`
	Description string `json:"description"`
	Evidence    string `json:"evidence"`
	Skip        string `json:"skip"`
}

// link goes from the first page over the kind's hops: an entity of the page, described
// by how it stands to the one before, and a page of its own.
func (q *quest) link(ctx context.Context) error {
	for n := range q.it.kind.Hops {
		q.out.Stage = StageLinked
		from, name := &q.mat.pages[n], q.concept.Name
		if n > 0 {
			name = q.origin.Hops[n-1].Entity
		}
		var l linked
		if err := q.json(ctx, q.next, fmt.Sprintf("hop %d", n+1), fmt.Sprintf("/hop%d", n+1),
			struct{ Entity, Page string }{fence.Wrap("ENTITY", name), q.fenced(from)}, nil, &l); err != nil {
			return err
		}
		l.Entity, l.Description, l.Evidence = strings.TrimSpace(l.Entity), strings.TrimSpace(l.Description), strings.TrimSpace(l.Evidence)
		if reason, detail := q.hop(&l, name, from); reason != "" {
			q.out.refuse(StageLinked, reason, detail)
			return nil
		}
		p, err := q.page(ctx, &Concept{Name: l.Entity, Query: l.Entity}, true)
		if err != nil {
			return err
		}
		switch {
		case p == nil:
			q.out.refuse(StageLinked, "no page of the next entity", l.Entity)
			return nil
		case len([]rune(p.text)) < q.s.MinPageChars:
			q.out.refuse(StageLinked, "the next page is too short", p.title)
			return nil
		}
		q.mat.pages = append(q.mat.pages, *p)
		q.origin.Hops = append(q.origin.Hops, Hop{l.Entity, l.Description, l.Evidence, p.title, p.link, manifest.Hash([]byte(p.text))})
	}
	return nil
}

// hop says what is wrong with a link from one entity, on its page, to another.
func (q *quest) hop(l *linked, from string, p *page) (reason, detail string) {
	switch {
	case l.Skip != "":
		return "skipped by the writer", l.Skip
	case near.Plain(l.Entity) == "" || near.Plain(l.Description) == "":
		return "no entity or no description", l.Entity
	case strings.ContainsAny(l.Entity+l.Description, "\n\r"):
		return "not one line", l.Description
	case !leak.Mentions(p.String(), l.Entity):
		return "the entity is not in the page", l.Entity
	case !leak.Mentions(p.String(), l.Evidence):
		return "evidence not in the page", l.Evidence
	case !leak.Mentions(l.Evidence, l.Entity):
		return "the entity is not in the evidence", l.Evidence
	case leak.Mentions(l.Description, l.Entity):
		return "the description names what it describes", l.Description
	case !leak.Mentions(l.Description, from):
		return "the description does not say of what", l.Description
	}
	if lang := foreign(l.Description, q.s.Language); lang != "" {
		return "wrong language", lang
	}
	if near.Plain(l.Entity) == near.Plain(q.concept.Name) {
		return "the chain goes in a circle", l.Entity
	}
	for _, h := range q.origin.Hops {
		if near.Plain(l.Entity) == near.Plain(h.Entity) {
			return "the chain goes in a circle", l.Entity
		}
	}
	return "", ""
}

// theImage stands for what the image shows when nobody said what it looks like.
const theImage = "what the image shows"

// fold puts a description in the place of every name of the chain, from its end on;
// with an image, of what it shows too.
func (q *quest) fold(ctx context.Context) error {
	if q.it.kind.Hops == 0 {
		return nil
	}
	q.out.Stage = StageFolded
	hops := q.origin.Hops
	if !leak.Mentions(q.w.Question, q.asked()) {
		q.out.refuse(StageFolded, "the question does not name what it is about", q.asked())
		return nil
	}
	for _, p := range q.mat.pages[:len(hops)] {
		if leak.Mentions(p.String(), q.w.Answer) {
			q.out.refuse(StageFolded, "an earlier page has the answer", p.title)
			return nil
		}
	}
	for n := len(hops) - 1; n >= 0; n-- {
		anchor := q.concept.Name
		if n > 0 {
			anchor = hops[n-1].Entity
		}
		if err := q.replace(ctx, n+1, hops[n].Entity, hops[n].Description, anchor); err != nil || q.out.Reason != "" {
			return err
		}
	}
	if q.it.kind.Image {
		what := theImage
		if n := len(q.origin.Looks); n > 0 && !leak.Mentions(q.origin.Looks[n-1].What, q.concept.Name) {
			what = "the thing in the image: " + q.origin.Looks[n-1].What
		}
		return q.replace(ctx, 0, q.concept.Name, what, "")
	}
	return nil
}

// replace has one name replaced; the question then speaks of the anchor, if there is
// one, and no longer of the name.
func (q *quest) replace(ctx context.Context, n int, name, description, anchor string) error {
	var w written
	if err := q.json(ctx, q.folded, fmt.Sprintf("fold %d", n), fmt.Sprintf("/fold%d", n),
		struct{ Question, Entity, Description string }{fence.Wrap("QUESTION", q.w.Question), fence.Wrap("ENTITY", name), fence.Wrap("DESCRIPTION", description)}, nil, &w); err != nil {
		return err
	}
	w.Answer, w.Type, w.Evidence = q.w.Answer, q.w.Type, q.w.Evidence
	q.w = w
	q.row()
	reason, detail := form(&q.s, &q.w)
	switch {
	case reason != "":
	case leak.Mentions(w.Question, name):
		reason, detail = "the name is still there", name
	case anchor != "" && !leak.Mentions(w.Question, anchor):
		reason, detail = "the description was lost", anchor
	}
	if reason != "" {
		q.out.refuse(StageFolded, reason, detail)
	}
	return nil
}

// sealed says whether the question keeps the answer to itself, and, with an image,
// what the image shows; and every other name of its chain.
func (q *quest) sealed() (reason, detail string) {
	if leak.Mentions(q.w.Question, q.w.Answer) {
		return "the question gives the answer", q.w.Answer
	}
	if q.it.kind.Image && leak.Mentions(q.w.Question, q.concept.Name) {
		return "the question names what the image shows", q.concept.Name
	}
	for _, h := range q.origin.Hops {
		if leak.Mentions(q.w.Question, h.Entity) {
			return "the question names a part of its chain", h.Entity
		}
	}
	return "", ""
}
