package live

import (
	"context"
	"errors"
	"strings"

	"searchloop/internal/netguard"
	"searchloop/internal/picture"
	"searchloop/internal/retry"
)

// direct fetches pages and images itself, from public addresses alone.
type direct struct{ pages, images *netguard.Client }

// Limits of direct fetches.
const (
	maxPage  = 8 << 20
	maxImage = 10 << 20
)

func newDirect(allow []string) direct {
	return direct{
		pages:  netguard.New(netguard.Options{Allow: allow, MaxBytes: maxPage, Types: []string{"text/", "application/xhtml+xml", "application/xml", "application/json"}}),
		images: netguard.New(netguard.Options{Allow: allow, MaxBytes: maxImage, Types: []string{"image/"}}),
	}
}

func (d direct) once(ctx context.Context, a Ask) (*Answer, *retry.Fault) {
	if a.Kind == Image {
		return d.image(ctx, a.Text)
	}
	b, f := d.pages.Get(ctx, a.Text)
	switch {
	case f != nil && f.Class == netguard.WrongType && f.Err != nil && f.Err.Error() == "application/pdf":
		f.Class, f.Err = "it is a PDF, and only HTML and plain text are read here", nil
		return nil, f
	case f != nil:
		return nil, f
	}
	text, err := pageText(b)
	if _, body, _ := strings.Cut(text, "\n"); err != nil || strings.TrimSpace(body) == "" {
		return nil, &retry.Fault{Verdict: retry.Never, Class: "there is no text on it"}
	}
	return &Answer{URL: b.URL, SHA256: digest(b.Data), Text: text}, nil
}

// image takes only what can be decoded, within the limits of package picture.
func (d direct) image(ctx context.Context, address string) (*Answer, *retry.Fault) {
	b, f := d.images.Get(ctx, address)
	if f != nil {
		return nil, f
	}
	if _, err := picture.Decode(b.Data); err != nil {
		f := &retry.Fault{Verdict: retry.Never, Class: "damaged image"}
		for _, known := range []error{picture.ErrFormat, picture.ErrTooLarge} {
			if errors.Is(err, known) {
				f.Class = known.Error()
			}
		}
		return nil, f
	}
	return &Answer{URL: b.URL, SHA256: digest(b.Data), Data: b.Data}, nil
}
