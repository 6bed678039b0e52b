package serve

import (
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"sync"

	"searchloop/internal/picture"
)

// pictures makes the images of requests ready for the model. The same images come
// again with every turn of a conversation, so those used last are kept. Few are
// decoded at once: each may need hundreds of megabytes.
type pictures struct {
	processor picture.Processor
	slots     chan struct{}
	limit     int // bytes of patches to keep
	context   int // tokens that an image may take

	mu    sync.Mutex
	byKey map[[32]byte]*list.Element
	order *list.List // of *prepared, the one used last in front
	bytes int
}

type prepared struct {
	key     [32]byte // SHA-256 of the file
	grid    [3]int32
	patches []float32
}

func newPictures(p picture.Processor, limit, context int) *pictures {
	return &pictures{processor: p, limit: limit, context: context, slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		byKey: map[[32]byte]*list.Element{}, order: list.New()}
}

// prepare reads the image of a data URL. Errors are the client's.
func (p *pictures) prepare(ctx context.Context, url string) (*prepared, error) {
	data, err := dataURL(url)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(data)
	if im := p.get(key); im != nil {
		return im, nil
	}
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.slots }()
	if im := p.get(key); im != nil {
		return im, nil
	}
	pic, err := picture.Decode(data)
	if err != nil {
		return nil, err
	}
	im := &prepared{key: key}
	if im.grid, err = p.processor.Grid(pic.H, pic.W); err != nil {
		return nil, err
	}
	if n := p.processor.Tokens(im.grid); n >= p.context {
		return nil, tooLong("an image takes %d tokens", n, p.context)
	}
	if im.patches, err = p.processor.PatchesFor(pic, im.grid); err != nil {
		return nil, err
	}
	p.put(im)
	return im, nil
}

func (p *pictures) get(key [32]byte) *prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.byKey[key]
	if e == nil {
		return nil
	}
	p.order.MoveToFront(e)
	return e.Value.(*prepared)
}

func (p *pictures) put(im *prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey[im.key] != nil {
		return
	}
	p.byKey[im.key] = p.order.PushFront(im)
	for p.bytes += 4 * len(im.patches); p.bytes > p.limit && p.order.Len() > 1; {
		old := p.order.Remove(p.order.Back()).(*prepared)
		delete(p.byKey, old.key)
		p.bytes -= 4 * len(old.patches)
	}
}

// dataURL returns the bytes of a base64 data URL. Nothing is ever fetched.
func dataURL(url string) ([]byte, error) {
	rest, ok := strings.CutPrefix(url, "data:")
	if !ok {
		return nil, errors.New("only data: URLs are read; nothing is fetched")
	}
	head, body, ok := strings.Cut(rest, ",")
	if !ok || !strings.HasSuffix(head, ";base64") {
		return nil, errors.New("the data URL has no \";base64,\" in it")
	}
	data, err := base64.StdEncoding.DecodeString(body)
	if err != nil {
		if data, err = base64.RawStdEncoding.DecodeString(body); err != nil {
			return nil, errors.New("the data URL is not base64")
		}
	}
	return data, nil
}
