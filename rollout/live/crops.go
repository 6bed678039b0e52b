package live

import (
	"context"
	"errors"

	"searchloop/corpus/publish"
	"searchloop/internal/fail"
	"searchloop/internal/lookup"
	"searchloop/internal/picture"
	"searchloop/internal/retry"
	"searchloop/rollout/tool"
)

// Storage is the name under which uploads are limited, paid and counted.
const Storage = "storage"

// Shelf uploads images while a job runs: in turn, within the cap, each once at a time.
// Nothing of it is kept: that an object is there is asked of the storage itself.
// Safe for concurrent use.
type Shelf struct {
	up  *publish.Uploader
	way *lookup.Provider
}

// OpenShelf makes the way to an upload storage.
func OpenShelf(d *lookup.Desk, up *publish.Uploader, way lookup.Options) *Shelf {
	way.Name, way.Keep, way.Empty = Storage, 0, 0
	return &Shelf{up: up, way: d.Provider(way)}
}

// put makes an image public and gives its address.
func (s *Shelf) put(ctx context.Context, sha string, data []byte) (string, error) {
	name := publish.Name(sha)
	request := map[string]any{"image": sha, "bytes": len(data)} // neither storage nor address: a tape holds none
	_, err := s.way.Ask(ctx, request, func(ctx context.Context) (lookup.Answer, *retry.Fault) {
		return lookup.Answer{}, s.up.Put(ctx, name, data)
	})
	var e *fail.Error
	if errors.As(err, &e) {
		var f *retry.Fault
		if e.Op = "upload a crop"; errors.As(err, &f) && f.Verdict == retry.Stop && f.Class != lookup.CapReached {
			e.Hint = s.up.Remedy()
		}
	}
	if err != nil {
		return "", err
	}
	return s.up.Address(ctx, name)
}

// Crops is tool.LookAlike over the web: a picture is uploaded, and searched for by its
// address. Results are kept by the picture, so that equal ones are uploaded and searched
// for once.
type Crops struct {
	*Provider
	Shelf *Shelf     // nil in a replay, where nothing is uploaded
	Pages tool.Pages // nil: hits are not read
	Read  func(ctx context.Context, page, goal string, crop []byte) (string, error)
}

// Like finds pages on which the picture appears.
func (s Crops) Like(ctx context.Context, p *picture.Picture, goal string, k int) ([]tool.Hit, error) {
	data, err := p.PNG()
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "write a crop", "", err)
	}
	sha := digest(data)
	found, err := s.found(ctx, Ask{Kind: Lens, K: k, ID: sha, Publish: func(ctx context.Context) (string, error) { return s.Shelf.put(ctx, sha, data) }})
	if err != nil {
		return nil, err
	}
	out := make([]tool.Hit, len(found))
	for i, f := range found {
		out[i] = f.hit()
	}
	if s.Pages == nil {
		return out, nil
	}
	return out, each(ctx, len(out), func(ctx context.Context, i int) error {
		if out[i].Link == "" {
			return nil
		}
		var read func(page string) (string, error)
		if s.Read != nil {
			read = func(page string) (string, error) { return s.Read(ctx, page, goal, data) }
		}
		return reread(ctx, s.Pages, &out[i], read)
	})
}
