package vqa

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/recipe"
	"searchloop/rollout/fence"
	"searchloop/rollout/reward"
	"searchloop/rollout/tool"
	"searchloop/synth/ask"
	"searchloop/synth/leak"
)

// material is what a question is made from.
type material struct {
	whole     *picture.Picture // the image; nil without
	image     []byte           // as the models see it; nil without
	imageID   string           // as it is stored
	imageLink string
	pages     []page // the chain: the first is about what the question starts from, the last has the answer
}

type page struct{ title, text, link string }

func (p *page) String() string { return p.title + "\n" + p.text }

// quest is one question in the making.
type quest struct {
	*maker
	it      item
	concept Concept // what the question starts from: the item's, or what was found in its image
	out     *Outcome
	origin  *Origin
	mat     material
	w       written
}

// make makes a question, or says at which stage it ended. An error ends the job.
func (m *maker) make(ctx context.Context, it item) (*Outcome, error) {
	q := &quest{maker: m, it: it, concept: *it.concept, out: &Outcome{Key: it.key, Kind: it.kind.Name},
		origin: &Origin{Kind: it.kind.Name, ConceptID: it.concept.ID, Source: it.concept.Source, Licence: it.concept.Licence}}
	for _, step := range []func(context.Context) error{q.picture, q.look, q.start, q.link, q.write, q.fold, q.check} {
		err := step(ctx)
		if reason, detail, failed, own := isOwn(err); own {
			if failed {
				q.out.Stage = StageFailed
			}
			q.out.Reason, q.out.Detail = reason, detail
			err = nil
		}
		if err != nil || q.out.Reason != "" {
			return q.out, err
		}
	}
	q.out.Stage = StageKept
	return q.out, nil
}

// note keeps what a request was and took.
func (q *quest) note(made ask.Made, used manifest.Usage) {
	q.origin.Made = append(q.origin.Made, made)
	q.out.Used = q.out.Used.Add(used)
}

// json asks the writer for an object.
func (q *quest) json(ctx context.Context, p *ask.Prompt, fields, key string, data any, images [][]byte, v any) error {
	made, used, err := q.writer.Ask(ctx, p, fields, q.it.key+key, data, images, func(reply string) error { return ask.JSON(reply, v) })
	q.note(made, used)
	return err
}

// verdict asks the checker for yes or no.
func (q *quest) verdict(ctx context.Context, p *ask.Prompt, field, key string, data any, images [][]byte) (yes bool, err error) {
	made, used, err := q.checker.Ask(ctx, p, field, q.it.key+key, data, images, func(reply string) (err error) {
		yes, err = ask.Verdict(reply)
		return err
	})
	q.note(made, used)
	return yes, err
}

// shown are the images that models see with the question.
func (q *quest) shown() [][]byte {
	if q.mat.image == nil {
		return nil
	}
	return [][]byte{q.mat.image}
}

// write has a question written about the last page, and checks it by rules.
func (q *quest) write(ctx context.Context) error {
	q.out.Stage = StageWritten
	last := q.mat.pages[len(q.mat.pages)-1]
	o := q.origin
	o.Concept, o.PageTitle, o.PageLink, o.PageHash, o.ImageLink = q.concept.Name, last.title, last.link, manifest.Hash([]byte(last.text)), q.mat.imageLink
	images := q.shown()
	if q.it.kind.Hops > 0 {
		images = nil // it is about another thing than the image shows
	}
	if err := q.json(ctx, q.kinds[q.it.kind.Name], "question,answer,type,evidence", "", struct {
		Concept, Title, Page string
		Types                []recipe.Named
	}{fence.Wrap("CONCEPT", q.asked()), fence.Wrap("TITLE", last.title), q.fenced(&last), q.s.Types}, images, &q.w); err != nil {
		return err
	}
	if q.w.Skip != "" {
		q.out.refuse(StageWritten, "skipped by the writer", q.w.Skip)
		return nil
	}
	q.row()
	o.Type, o.Evidence = q.w.Type, strings.TrimSpace(q.w.Evidence)
	q.out.Stage = StageForm
	if reason, detail := form(&q.s, &q.w); reason != "" {
		q.out.refuse(StageForm, reason, detail)
		return nil
	}
	q.out.Stage = StageGrounded
	if reason, detail := grounded(&q.w, last.String()); reason != "" {
		q.out.refuse(StageGrounded, reason, detail)
	}
	return nil
}

// asked is the name of what the written question is about: the end of the chain.
func (q *quest) asked() string {
	if n := len(q.origin.Hops); n > 0 {
		return q.origin.Hops[n-1].Entity
	}
	return q.concept.Name
}

func (q *quest) fenced(p *page) string {
	return fence.Within("PAGE", p.String(), cmp.Or(q.s.PageChars, 6000))
}

// row puts the question as it is now into the outcome.
func (q *quest) row() {
	q.out.Row = &Row{Question: q.question(q.it, &q.w, q.mat.imageID), Synth: q.origin}
}

// check has rules and the checker look at a finished question.
func (q *quest) check(ctx context.Context) error {
	q.out.Stage = StageSealed
	if reason, detail := q.sealed(); reason != "" {
		q.out.refuse(StageSealed, reason, detail)
		return nil
	}
	data := struct{ Question, Answer, Page string }{fence.Wrap("QUESTION", q.w.Question), fence.Wrap("ANSWER", q.w.Answer), q.evidence()}
	for _, g := range []struct {
		stage, reason string
		prompt        *ask.Prompt
		images        [][]byte
	}{{StageBlind, "answered without image and page", q.blind, nil}, {StageSight, "answered without a page", q.sight, q.shown()}} {
		if g.prompt == nil {
			continue
		}
		q.out.Stage = g.stage
		guess := ""
		made, used, err := q.checker.Ask(ctx, g.prompt, g.stage, q.it.key, data, g.images, func(reply string) (err error) {
			guess, err = ask.Text(reply)
			return err
		})
		q.note(made, used)
		var bad *ask.Bad
		if err != nil && !(errors.As(err, &bad) && bad.Reason == ask.Refusal) { // who will not guess does not know
			return err
		}
		if err == nil && reward.SubMatch(guess, []string{q.w.Answer}) {
			q.out.refuse(g.stage, g.reason, guess)
			return nil
		}
	}
	for _, v := range []struct {
		stage, reason string
		prompt        *ask.Prompt
	}{{StageUnique, "more than one answer", q.one}, {StageRight, "the checker finds the answer wrong", q.okay}} {
		if v.prompt == nil {
			continue
		}
		q.out.Stage = v.stage
		yes, err := q.verdict(ctx, v.prompt, v.stage, "", data, q.shown())
		if err != nil {
			return err
		}
		if !yes {
			q.out.refuse(v.stage, v.reason, "")
			return nil
		}
	}
	return nil
}

// evidence is the page that a question was made from, or the pages of a chain.
func (q *quest) evidence() string {
	if len(q.mat.pages) == 1 {
		return q.fenced(&q.mat.pages[0])
	}
	var all strings.Builder
	for i := range q.mat.pages {
		p := []rune(q.mat.pages[i].String())
		fmt.Fprintf(&all, "%d. %s\n\n", i+1, string(p[:min(len(p), cmp.Or(q.s.PageChars, 6000))]))
	}
	return fence.Within("PAGE", all.String(), 1<<20)
}

// picture gets the image of the concept: its own, or what is found.
func (q *quest) picture(ctx context.Context) error {
	q.out.Stage = StageImage
	if !q.it.kind.Image {
		return nil
	}
	data, err := q.image(ctx, &q.concept, &q.mat)
	if err != nil {
		return err
	}
	if data == nil {
		q.out.refuse(StageImage, "no image of the concept", q.concept.Query)
		return nil
	}
	if err := q.show(data, &q.mat); err != nil {
		if fail.KindOf(err) == fail.Disk {
			return err
		}
		q.out.refuse(StageImage, "the image cannot be read", err.Error())
	}
	return nil
}

// start gets the page of what the question starts from.
func (q *quest) start(ctx context.Context) error {
	q.out.Stage = StagePage
	if q.concept.Page != "" {
		q.mat.pages = []page{pageOf(q.concept.Page, "")}
	} else if p, err := q.page(ctx, &q.concept, q.it.kind.Hops > 0); err != nil {
		return err
	} else if p == nil {
		q.out.refuse(StagePage, "no page of the concept", q.concept.Query)
		return nil
	} else {
		q.mat.pages = []page{*p}
	}
	if p := &q.mat.pages[0]; len([]rune(p.text)) < q.s.MinPageChars {
		q.out.refuse(StagePage, "the page is too short", p.title)
	}
	return nil
}

// image is the concept's own, or the first found whose title names it; nil when
// there is none.
func (m *maker) image(ctx context.Context, c *Concept, mat *material) ([]byte, error) {
	if c.Image != "" {
		mat.imageLink = c.Image
		if st, err := os.Stat(c.Image); err == nil && !st.Mode().IsRegular() {
			return nil, nil
		}
		data, err := os.ReadFile(c.Image)
		if err != nil {
			if fail.KindOf(err) == fail.Disk {
				return nil, fail.Wrap(fail.Disk, "read image", c.Image, err)
			}
			return nil, nil
		}
		return data, nil
	}
	hits, err := m.hits(ctx, m.search.Image, "image", c)
	if err != nil {
		return nil, err
	}
	for _, h := range hits {
		if data := m.pictureOf(&h); data != nil && leak.Mentions(h.Contents, c.Name) {
			mat.imageLink = h.Link
			return data, nil
		}
	}
	return nil, nil
}

// pictureOf is the encoded image of a hit; nil when it has none that is here.
func (m *maker) pictureOf(h *tool.Hit) []byte {
	data := h.Image
	for _, s := range append([]*corpus.ImageStore{m.search.Store}, m.search.From...) {
		if data == nil && h.ImageID != "" && s != nil {
			data, _ = s.Get(h.ImageID)
		}
	}
	return data
}

// page is the first found that names the concept, or is titled by its name, since the
// pages of a chain name each other; nil when there is none.
func (m *maker) page(ctx context.Context, c *Concept, titled bool) (*page, error) {
	hits, err := m.hits(ctx, m.search.Text, "text", c)
	if err != nil {
		return nil, err
	}
	for _, h := range hits {
		if p := pageOf(h.Contents, h.Link); leak.Mentions(p.title, c.Name) || !titled && leak.Mentions(p.text, c.Name) {
			return &p, nil
		}
	}
	return nil, nil
}

func (m *maker) hits(ctx context.Context, in tool.Searcher, what string, c *Concept) ([]tool.Hit, error) {
	if in == nil {
		return nil, fail.WithHint(fail.New(fail.Usage, "search", "", "the concept %s brings no %s, and there is nothing to search", c.Name, what),
			"give --"+what+"-index and a recipe whose tools search it, or live search")
	}
	lists, err := in.Search(ctx, []string{c.Query}, cmp.Or(m.s.Hits, 5))
	if err != nil || len(lists) == 0 {
		return nil, err
	}
	return lists[0], nil
}

// show decodes an image, stores it as it is, and makes the copy that models see.
func (m *maker) show(data []byte, mat *material) (err error) {
	if mat.whole, err = picture.Decode(data); err != nil {
		return err
	}
	if mat.imageID, err = m.store.Put(data); err != nil {
		return err
	}
	mat.image, err = m.small(mat.whole)
	return err
}

// small is a picture as models see it.
func (m *maker) small(p *picture.Picture) ([]byte, error) {
	h, w, err := picture.SmartResize(p.H, p.W, 28, 28*28, cmp.Or(m.s.ImagePixels, 1<<20))
	if err != nil {
		return nil, err
	}
	if h*w < p.H*p.W {
		p = p.Resize(h, w)
	}
	return p.JPEG(90)
}

// pageOf takes a page apart into its title, which is its first line, and the rest.
func pageOf(text, link string) page {
	title, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return page{strings.Trim(strings.TrimSpace(title), `"`), strings.TrimSpace(rest), link}
}
