package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"iter"
	"os"

	"github.com/nlpodyssey/gopickle/types"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
)

// Fields of MMSearch-R1's caches: a pickled dict from data_id to two lists that
// belong together.
const (
	pickledTitles = "tool_returned_web_title_list"
	pickledImages = "tool_returned_images_urls"
	// maxHits bounds the hits of an entry: a pickle can name one thing many times.
	maxHits = 1000
)

// pickledAt says whether a cache is a pickle.
func pickledAt(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, fail.Wrap(fail.BadInput, "open", path, err)
	}
	defer f.Close()
	head := make([]byte, 2)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, fail.Wrap(fail.BadInput, "read", path, err)
	}
	return isPickle(head[:n]), nil
}

// pickledEntries goes through a pickled cache in the order of the dict.
func pickledEntries(path string) iter.Seq2[cacheEntry, error] {
	return func(yield func(cacheEntry, error) bool) {
		v, err := loadPickle(path)
		if err != nil {
			yield(cacheEntry{}, err)
			return
		}
		all, ok := v.(*types.Dict)
		if !ok {
			yield(cacheEntry{}, fail.WithHint(fail.New(fail.BadInput, "read pickle", path, "it holds no dict"), "a cache is a dict from data_id to titles and images"))
			return
		}
		for i, item := range *all {
			e := cacheEntry{position: position{path: path, n: int64(i) + 1}}
			e.ID, ok = item.Key.(string)
			if !ok {
				e.Err = errors.New("the key is no text")
			} else if e.Err = checkID(e.ID); e.Err == nil {
				e.unpickled(item.Value)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// unpickled makes the published form of a pickled entry. What is an image there
// stays beside it, undecoded.
func (e *cacheEntry) unpickled(v any) {
	var titles, images []any
	if v != nil {
		d, ok := v.(*types.Dict)
		if !ok {
			e.Err = errors.New("the entry is no dict")
			return
		}
		for _, f := range *d {
			var to *[]any
			switch f.Key {
			case pickledTitles:
				to = &titles
			case pickledImages:
				to = &images
			default:
				continue
			}
			if *to, ok = sequence(f.Value); !ok && f.Value != nil {
				e.Err = fmt.Errorf("%v is no list", f.Key)
				return
			}
		}
	}
	n := max(len(titles), len(images))
	if n > maxHits {
		e.Err = fmt.Errorf("the entry has %d hits", n)
		return
	}
	hits := make([]record.Value, n)
	e.pictures = make([]*pickledImage, n)
	for i := range n {
		title, path := record.Value{}, record.Value{}
		if i < len(titles) {
			if s, ok := titles[i].(string); ok {
				title = record.TextOf(s)
			}
		}
		if i < len(images) {
			switch x := images[i].(type) {
			case nil:
			case string:
				path = record.TextOf(x)
			case *pickledImage:
				e.pictures[i] = x
			default:
				e.Err = fmt.Errorf("image %d of %s is neither a web address nor an image", i+1, pickledImages)
				return
			}
		}
		hits[i] = record.Value{}.With(lensTitle, title).With(lensImage, path)
	}
	for _, h := range hits {
		e.Hits = append(e.Hits, cachedHit{path: h.Get(lensImage).String(), title: h.Get(lensTitle).String()})
	}
	e.body = record.Value{}.With(lensID, record.TextOf(e.ID)).With(lensHits, record.ListOf(hits))
}

// png encodes the image without loss; equal pixels give equal bytes.
func (p *pickledImage) png() ([]byte, error) {
	m, err := p.decode()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = png.Encode(&b, m)
	return b.Bytes(), err
}

// decode reads the pixels as Pillow's tobytes lays them out for each mode.
func (p *pickledImage) decode() (image.Image, error) {
	perPixel, ok := map[string]int{"L": 1, "P": 1, "LA": 2, "RGB": 3, "RGBA": 4, "RGBX": 4, "CMYK": 4, "1": 0}[p.mode]
	switch {
	case !ok:
		return nil, fmt.Errorf("an image of mode %.20q", p.mode)
	case p.w <= 0 || p.h <= 0 || p.w > maxImagePixels/p.h:
		return nil, fmt.Errorf("an image of %d x %d pixels", p.w, p.h)
	}
	stride := p.w * perPixel
	if p.mode == "1" {
		stride = (p.w + 7) / 8
	}
	if len(p.data) != stride*p.h {
		return nil, fmt.Errorf("%d bytes for %d x %d pixels of mode %s", len(p.data), p.w, p.h, p.mode)
	}
	r := image.Rect(0, 0, p.w, p.h)
	switch p.mode {
	case "L":
		return &image.Gray{Pix: p.data, Stride: stride, Rect: r}, nil
	case "RGBA":
		return &image.NRGBA{Pix: p.data, Stride: stride, Rect: r}, nil
	}
	out := image.NewNRGBA(r)
	for y := range p.h {
		line := p.data[y*stride:][:stride]
		for x := range p.w {
			c := color.NRGBA{A: 0xff}
			switch p.mode {
			case "1":
				if line[x/8]>>(7-x%8)&1 == 1 {
					c = color.NRGBA{0xff, 0xff, 0xff, 0xff}
				}
			case "P":
				if i := 3 * int(line[x]); i+3 <= len(p.palette) {
					c.R, c.G, c.B = p.palette[i], p.palette[i+1], p.palette[i+2]
				}
			case "LA":
				c = color.NRGBA{line[2*x], line[2*x], line[2*x], line[2*x+1]}
			case "RGB":
				c.R, c.G, c.B = line[3*x], line[3*x+1], line[3*x+2]
			case "RGBX":
				c.R, c.G, c.B = line[4*x], line[4*x+1], line[4*x+2]
			case "CMYK":
				c.R, c.G, c.B = color.CMYKToRGB(line[4*x], line[4*x+1], line[4*x+2], line[4*x+3])
			}
			out.SetNRGBA(x, y, c)
		}
	}
	return out, nil
}
