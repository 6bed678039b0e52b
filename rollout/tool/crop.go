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
// goal is what is sought, for those who read what they find. Implementations are safe
// for concurrent use.
type LookAlike interface {
	Like(ctx context.Context, p *picture.Picture, goal string, k int) ([]Hit, error)
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
	Cropper
	store *corpus.ImageStore
}

// Cropper searches for parts of a picture, as the tool crop_and_search does.
type Cropper struct {
	Tool recipe.Tool
	In   LookAlike
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
	var parts []Part
	for _, b := range c.Boxes {
		p, err := t.Look(ctx, whole, b, c.Goal)
		if err != nil {
			return Result{}, err
		}
		if p.Empty {
			out.Problem = EmptyCrop
		}
		parts = append(parts, p)
	}
	out.Text = t.Tell(parts)
	return out, nil
}

// Part is what was found for a box.
type Part struct {
	Box   protocol.Box
	Hits  []Hit // best first
	Empty bool  // the box holds no pixel
}

// Tell is what the policy reads of parts.
func (t Cropper) Tell(parts []Part) string {
	var out []string
	for _, p := range parts {
		text := NoResult
		switch {
		case p.Empty:
			text = EmptyCrop
		case len(p.Hits) > 0:
			text = links(p.Hits, t.Tool)
		}
		b := p.Box
		out = append(out, fmt.Sprintf("Box [%g, %g, %g, %g]:\n%s", b[0], b[1], b[2], b[3], text))
	}
	return strings.Join(out, dividers["links"])
}

// Look searches for one box at all scales of the tool; what is found twice is there
// once.
func (t Cropper) Look(ctx context.Context, whole *picture.Picture, b protocol.Box, goal string) (Part, error) {
	out := Part{Box: b, Empty: true}
	scales := t.Tool.Scales
	if len(scales) == 0 {
		scales = []int{100}
	}
	best := map[string]Hit{}
	var order []string
	for _, s := range scales {
		part := Cut(whole, Scale(b, float64(s)/100), max(t.Tool.Enlarge, 1))
		if part == nil {
			continue
		}
		out.Empty = false
		found, err := t.In.Like(ctx, part, goal, t.Tool.TopK)
		if err != nil {
			return out, err
		}
		for _, h := range found {
			if t.Tool.Threshold != 0 && h.Score < t.Tool.Threshold {
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
	for _, l := range order {
		out.Hits = append(out.Hits, best[l])
	}
	byScore(out.Hits)
	out.Hits = out.Hits[:min(len(out.Hits), t.Tool.TopK)]
	return out, nil
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
