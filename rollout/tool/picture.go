package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
)

// pictures fetches images and shrinks them to the area a tool may return. The
// same image always gives the same bytes.
type pictures struct {
	store  *corpus.ImageStore
	from   []*corpus.ImageStore
	pixels int // area limit; 0 = none

	mu    sync.Mutex
	known map[string]string // id of an image → id of what the policy gets
}

// maxKnown bounds the table of images already shrunk.
const maxKnown = 100_000

// add puts the image of a hit, if it has one, into the result. One that is missing
// or broken is left out and recorded as the result's problem: the text is still of
// use. Only a full disk is an error.
func (p *pictures) add(r *Result, h Hit) error {
	id := h.ImageID
	if len(h.Image) > 0 {
		sum := sha256.Sum256(h.Image)
		id = hex.EncodeToString(sum[:])
	}
	if id == "" {
		return nil
	}
	img, err := p.fetch(id, h.Image)
	if fail.KindOf(err) == fail.Disk && err != nil {
		return err
	}
	if err != nil {
		r.Problem = fmt.Sprintf("image %.12s left out: %v", id, cause(err))
		return nil
	}
	r.Images = append(r.Images, img)
	return nil
}

// fetch gives the image as the policy gets it; data is its content, nil when it is
// in a store.
func (p *pictures) fetch(id string, data []byte) (Image, error) {
	p.mu.Lock()
	done, ok := p.known[id]
	p.mu.Unlock()
	if ok {
		data, err := p.store.Get(done)
		return Image{ID: done, Data: data}, err
	}
	var err error
	if data == nil {
		if data, err = p.load(id); err != nil {
			return Image{}, err
		}
	}
	if data, err = shrink(data, p.pixels); err != nil {
		return Image{}, err
	}
	out, err := p.store.Put(data)
	if err != nil {
		return Image{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxKnown {
		p.known = map[string]string{}
	}
	p.known[id] = out
	return Image{ID: out, Data: data}, nil
}

// load reads an image from the stores.
func (p *pictures) load(id string) (data []byte, err error) {
	data, err = p.store.Get(id)
	for _, s := range p.from {
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		data, err = s.Get(id)
	}
	return data, err
}

// shrink gives an image of at most limit pixels (0: of any size): the same bytes
// when it is small enough, else a PNG. An image that cannot be decoded is an error
// either way: the policy's server would only find out later.
func shrink(data []byte, limit int) ([]byte, error) {
	p, err := picture.Decode(data)
	if err != nil {
		return nil, err
	}
	if limit <= 0 || p.W*p.H <= limit {
		return data, nil
	}
	s := math.Sqrt(float64(limit) / (float64(p.W) * float64(p.H)))
	w, h := max(1, int(float64(p.W)*s)), max(1, int(float64(p.H)*s))
	return p.Resize(min(h, limit), min(w, limit)).PNG()
}

// cause is the innermost text of an error, without paths that differ by machine.
func cause(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e
	}
	return err
}
