package tool

import (
	"context"
	"fmt"
	"math"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
)

// LookAlike finds passages whose images look like a picture: at most k, best first.
// Implementations are safe for concurrent use.
type LookAlike interface {
	Like(ctx context.Context, p *picture.Picture, k int) ([]Hit, error)
}

// What the policy reads when a crop cannot be searched for.
const (
	NoSuchImage = "Error: the question has no image of this number."
	BrokenImage = "Error: the image could not be read."
	EmptyCrop   = "Error: the box holds less than one pixel."
)

// crop cuts boxes out of the question's own images and searches for what looks
// like them. Several boxes are several things; several scales are the same thing,
// closer and farther. The policy reads titles and addresses; it sees no crop.
type crop struct {
	tool  recipe.Tool
	in    LookAlike
	store *corpus.ImageStore
}

func (t crop) run(ctx context.Context, q *corpus.Question, c protocol.Call) (Result, error) {
	if c.Image < 1 || c.Image > len(q.ImageIDs) {
		return refuse(NoSuchImage), nil
	}
	// By content, so that images of two datasets with one file name never mix.
	data, err := t.store.Get(q.ImageIDs[c.Image-1])
	var whole *picture.Picture
	if err == nil {
		whole, err = picture.Decode(data)
	}
	if err != nil {
		if fail.KindOf(err) == fail.Disk {
			return Result{}, err
		}
		return refuse(BrokenImage), nil
	}
	var out Result
	var parts []string
	for _, b := range c.Boxes {
		text, err := t.look(ctx, whole, b)
		if err != nil {
			return Result{}, err
		}
		if text == EmptyCrop {
			out.Problem = EmptyCrop
		}
		parts = append(parts, fmt.Sprintf("Box [%g, %g, %g, %g]:\n%s", b[0], b[1], b[2], b[3], text))
	}
	out.Text = strings.Join(parts, dividers["links"])
	return out, nil
}

// look searches for one box at all scales; what is found twice is told once.
func (t crop) look(ctx context.Context, whole *picture.Picture, b protocol.Box) (string, error) {
	scales := t.tool.Scales
	if len(scales) == 0 {
		scales = []int{100}
	}
	best := map[string]Hit{}
	var order []string
	cut := false
	for _, s := range scales {
		part := Cut(whole, Scale(b, float64(s)/100), max(t.tool.Enlarge, 1))
		if part == nil {
			continue
		}
		cut = true
		hits, err := t.in.Like(ctx, part, t.tool.TopK)
		if err != nil {
			return "", err
		}
		for _, h := range hits {
			if t.tool.Threshold != 0 && h.Score < t.tool.Threshold {
				continue
			}
			old, known := best[h.Link]
			if !known {
				order = append(order, h.Link)
			}
			if !known || h.Score > old.Score {
				best[h.Link] = h
			}
		}
	}
	if !cut {
		return EmptyCrop, nil
	}
	var hits []Hit
	for _, l := range order {
		hits = append(hits, best[l])
	}
	byScore(hits)
	hits = hits[:min(len(hits), t.tool.TopK)]
	if len(hits) == 0 {
		return NoResult, nil
	}
	return links(hits, t.tool), nil
}

// Scale grows (or shrinks) a box around its middle and keeps it in the image.
func Scale(b protocol.Box, by float64) protocol.Box {
	if by == 1 {
		return b
	}
	for i := range 2 {
		mid, half := (b[i]+b[i+2])/2, (b[i+2]-b[i])/2*by
		b[i], b[i+2] = max(mid-half, 0), min(mid+half, 1000)
	}
	return b
}

// maxCrop bounds the side of an enlarged crop.
const maxCrop = 2048

// Cut is the part of a picture that a box of 0 to 1000 holds, every touched pixel
// included, with its sides enlarged so many times; nil when it holds none.
func Cut(p *picture.Picture, b protocol.Box, enlarge int) *picture.Picture {
	x0, x1 := bounds(b[0], b[2], p.W)
	y0, y1 := bounds(b[1], b[3], p.H)
	w, h := x1-x0, y1-y0
	if w < 1 || h < 1 {
		return nil
	}
	out := &picture.Picture{W: w, H: h, Pix: make([]uint8, 0, 3*w*h)}
	for y := y0; y < y1; y++ {
		out.Pix = append(out.Pix, p.Pix[3*(y*p.W+x0):3*(y*p.W+x1)]...)
	}
	if enlarge > 1 && w*enlarge <= maxCrop && h*enlarge <= maxCrop {
		out = out.Resize(h*enlarge, w*enlarge)
	}
	return out
}

func bounds(lo, hi float64, size int) (int, int) {
	if !(lo < hi) {
		return 0, 0
	}
	return max(int(math.Floor(lo*float64(size)/1000)), 0), min(int(math.Ceil(hi*float64(size)/1000)), size)
}
