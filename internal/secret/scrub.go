package secret

import (
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"sync"
)

// minLength keeps very short secrets from masking ordinary text: they are still
// masked where they stand as a whole word.
const minLength = 6

// WithoutUser is an address without user name and password.
func WithoutUser(u string) string {
	scheme, rest, ok := strings.Cut(u, "://")
	if i := strings.LastIndex(rest, "@"); ok && i >= 0 && !strings.Contains(rest[:i], "/") {
		return scheme + "://" + rest[i+1:]
	}
	return u
}

// WithoutURL is an error of net/http without the address that it names, which may
// hold a key. Other errors stay as they are.
func WithoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// Scrub masks every secret ever created in s, also in the forms that JSON, URL
// and quoted log lines give it.
func Scrub(s string) string {
	known.RLock()
	defer known.RUnlock()
	for _, k := range known.list {
		for _, form := range forms(k) {
			if len(form) < minLength {
				s = replaceWord(s, form)
			} else if strings.Contains(s, form) {
				s = strings.ReplaceAll(s, form, mask)
			}
		}
	}
	return s
}

// Line is foreign text as one line for a record: no secrets, at most 200 runes.
func Line(s string) string {
	s = strings.Join(strings.Fields(Scrub(strings.ToValidUTF8(s, "\uFFFD"))), " ")
	if r := []rune(s); len(r) > 200 {
		return string(r[:200]) + " …"
	}
	return s
}

// forms are the spellings under which a secret travels.
func forms(k string) []string {
	list := []string{k}
	if q, err := json.Marshal(k); err == nil {
		if in := string(q[1 : len(q)-1]); in != k {
			list = append(list, in)
		}
	}
	for _, in := range []string{url.QueryEscape(k), url.PathEscape(k)} {
		if in != k {
			list = append(list, in)
		}
	}
	return list
}

// replaceWord masks word only where no letter or digit touches it.
func replaceWord(s, word string) string {
	var b strings.Builder
	for from := 0; ; {
		i := strings.Index(s[from:], word)
		if i < 0 {
			b.WriteString(s[from:])
			return b.String()
		}
		i += from
		end := i + len(word)
		if (i == 0 || !alnum(s[i-1])) && (end == len(s) || !alnum(s[end])) {
			b.WriteString(s[from:i] + mask)
		} else {
			b.WriteString(s[from:end])
		}
		from = end
	}
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// Scrubber passes writes on to w with every secret masked. A secret split over
// two Write calls is not found: write whole lines, as log handlers do. It is safe
// for concurrent use.
func Scrubber(w io.Writer) io.Writer { return &scrubber{w: w} }

type scrubber struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *scrubber) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := io.WriteString(s.w, Scrub(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
