package live

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/rollout/tool"
)

// Published are the public addresses of images, by their SHA-256.
type Published map[string]string

// ReadPublished reads what lens --publish wrote, a folder or its part: a JSON object a
// line, with the image's SHA-256 and its url (docs/published.md). Of lines about one
// image the last counts.
func ReadPublished(path string) (Published, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, publishedPart)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "read published images", path, err), "make the file with lens --publish")
	}
	defer f.Close()
	out := Published{}
	lines := bufio.NewScanner(f)
	for n := int64(1); lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		var in struct{ Image, URL string }
		err := json.Unmarshal([]byte(text), &in)
		if err == nil {
			var u *url.URL
			if u, err = url.Parse(in.URL); err == nil && (u.Host == "" || in.Image == "") {
				err = errors.New(`want {"image": SHA-256, "url": …}`)
			}
		}
		if err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "read published images", Path: path, Row: n, Err: err}
		}
		out[in.Image] = in.URL
	}
	return out, fail.Wrap(fail.BadInput, "read published images", path, lines.Err())
}

// publishedPart is the one part of a published dataset.
const publishedPart = "part-00000-of-00001.jsonl"

// Missing counts the questions whose image has no address.
func (p Published) Missing(qs []corpus.Question) (n int) {
	for _, q := range qs {
		if len(q.ImageIDs) > 0 && p[q.ImageIDs[0]] == "" {
			n++
		}
	}
	return n
}

// LensSearch is tool.Reverse over the web. It searches for a question's first
// image by its public address.
type LensSearch struct {
	*Provider
	Published Published
	Pictures  Pictures
}

// Reverse asks for the image of a question; none is known of one without address.
func (s LensSearch) Reverse(ctx context.Context, q *corpus.Question, k int) ([]tool.Hit, error) {
	address := s.Published[q.ImageIDs[0]]
	if address == "" {
		return nil, nil
	}
	found, err := s.found(ctx, Ask{Kind: Lens, Text: address, K: k, ID: q.ImageIDs[0]})
	if err != nil {
		return nil, err
	}
	var out []tool.Hit
	for _, f := range found {
		out = append(out, f.titleHit())
	}
	return out, s.Pictures.fill(ctx, found, out)
}
