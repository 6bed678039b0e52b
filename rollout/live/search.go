package live

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"

	"searchloop/rollout/fence"
	"searchloop/rollout/protocol"
	"searchloop/rollout/tool"
)

// plain is text of strangers as a policy, a reader or a judge may see it: nothing
// invisible, nothing that looks like a protocol's own tags.
func plain(text string) string { return protocol.Disarm(fence.Visible(text)) }

// line is plain text on one line.
func line(text string) string { return strings.Join(strings.Fields(plain(text)), " ") }

// hit is what was found, in the form of a passage.
func (f Found) hit() tool.Hit {
	body := line(f.Snippet)
	if d := line(f.Date); d != "" {
		body = strings.TrimSpace("(" + d + ") " + body)
	}
	return tool.Hit{Contents: strings.TrimSpace(line(f.Title) + "\n" + body), Link: line(f.Link), Score: everything}
}

// titleHit is what was found of an image: its title alone.
func (f Found) titleHit() tool.Hit {
	return tool.Hit{Contents: line(f.Title), Link: line(f.Link), Score: everything}
}

// everything is the score of a hit of live search, which has none: a threshold
// keeps it.
const everything = 1

// atOnce bounds what one call of a policy has in flight.
const atOnce = 8

// each runs f for 0 … n-1, some at once, and returns the first error.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return f(ctx, i) })
	}
	return g.Wait()
}

// found asks for the hits of one query. A refusal of the query is no hits.
func (p *Provider) found(ctx context.Context, a Ask) ([]Found, error) {
	out, err := p.ask(ctx, a)
	if errors.As(err, &refusal{}) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return out.Found[:min(len(out.Found), a.K)], nil
}

// WebSearch is a tool.Searcher over the web.
type WebSearch struct{ *Provider }

// Search asks for each query on its own.
func (s WebSearch) Search(ctx context.Context, queries []string, k int) ([][]tool.Hit, error) {
	out := make([][]tool.Hit, len(queries))
	return out, each(ctx, len(queries), func(ctx context.Context, i int) error {
		found, err := s.found(ctx, Ask{Kind: Web, Text: queries[i], K: k})
		for _, f := range found {
			out[i] = append(out[i], f.hit())
		}
		return err
	})
}

// Pictures fetches the images of hits.
type Pictures struct {
	From *Provider // Direct
	N    int       // so many of each list of hits
}

// fill fetches images for the first N hits that have one: the image itself, or else
// its thumbnail.
func (p Pictures) fill(ctx context.Context, found []Found, hits []tool.Hit) error {
	left := p.N
	for i, f := range found {
		if left == 0 {
			break
		}
		for _, address := range []string{f.Image, f.Thumbnail} {
			if address == "" {
				continue
			}
			a, err := p.From.ask(ctx, Ask{Kind: Image, Text: address})
			if errors.As(err, &refusal{}) {
				continue
			}
			if err != nil {
				return err
			}
			hits[i].Image = a.Data
			left--
			break
		}
	}
	return nil
}

// ImageSearch is a tool.Searcher for images.
type ImageSearch struct {
	*Provider
	Pictures Pictures
}

// Search asks for each query on its own and fetches the first images.
func (s ImageSearch) Search(ctx context.Context, queries []string, k int) ([][]tool.Hit, error) {
	out := make([][]tool.Hit, len(queries))
	return out, each(ctx, len(queries), func(ctx context.Context, i int) error {
		found, err := s.found(ctx, Ask{Kind: Images, Text: queries[i], K: k})
		if err != nil {
			return err
		}
		for _, f := range found {
			out[i] = append(out[i], f.titleHit())
		}
		return s.Pictures.fill(ctx, found, out[i])
	})
}

// PageReader is tool.Pages of the web.
type PageReader struct{ *Provider }

// Get fetches a page.
func (r PageReader) Get(ctx context.Context, address string) (string, error) {
	a, err := r.ask(ctx, Ask{Kind: Page, Text: address})
	var no refusal
	if errors.As(err, &no) {
		return "", tool.Unreadable{Why: no.Error()}
	}
	if err != nil {
		return "", err
	}
	return plain(a.Text), nil
}

// Chain is tool.Pages that are looked for in one place after the other: stored ones,
// then those of the web.
type Chain []tool.Pages

// Get is the page of the first that has it.
func (c Chain) Get(ctx context.Context, address string) (text string, err error) {
	for _, p := range c {
		if text, err = p.Get(ctx, address); !errors.As(err, &tool.Unreadable{}) {
			break
		}
	}
	return text, err
}

// Reading is a tool.Searcher whose hits are the pages themselves: what they say, not
// the few words that a search engine shows of them. A page that cannot be read
// keeps those.
type Reading struct {
	tool.Searcher
	Pages tool.Pages
	Read  func(ctx context.Context, page, query string) (string, error) // what a page says of a query; nil: all of it
}

// Search searches, then reads.
func (r Reading) Search(ctx context.Context, queries []string, k int) ([][]tool.Hit, error) {
	out, err := r.Searcher.Search(ctx, queries, k)
	if err != nil {
		return nil, err
	}
	type place struct{ query, hit int }
	var all []place
	for i, list := range out {
		for j, h := range list {
			if h.Link != "" {
				all = append(all, place{i, j})
			}
		}
	}
	return out, each(ctx, len(all), func(ctx context.Context, n int) error {
		at := all[n]
		var read func(page string) (string, error)
		if r.Read != nil {
			read = func(page string) (string, error) { return r.Read(ctx, page, queries[at.query]) }
		}
		return reread(ctx, r.Pages, &out[at.query][at.hit], read)
	})
}

// reread puts what a hit's page says in the place of the hit's text; with read, what
// that makes of it. The hit of a page that cannot be read stays as it is.
func reread(ctx context.Context, from tool.Pages, h *tool.Hit, read func(page string) (string, error)) error {
	text, err := from.Get(ctx, h.Link)
	if errors.As(err, &tool.Unreadable{}) {
		return nil
	}
	if err == nil && read != nil {
		text, err = read(text)
	}
	if err != nil {
		return err
	}
	if read == nil {
		_, text, _ = strings.Cut(text, "\n") // the page's own title
	}
	title, _, _ := strings.Cut(h.Contents, "\n")
	h.Contents = title + "\n" + text
	return nil
}
