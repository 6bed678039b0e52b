package vqa

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
)

// Concept is a thing that questions are made about: a line of the concepts file,
// plain text or a JSON object. What it brings along is not searched for.
type Concept struct {
	ID      string `json:"id"`
	Name    string `json:"concept"`
	Query   string `json:"query"`   // what is searched for; "" is the name
	Image   string `json:"image"`   // file of its image, relative to the concepts file
	Page    string `json:"page"`    // its page, the first line being the title
	Boxes   []Spot `json:"boxes"`   // parts of the image to search for
	Source  string `json:"source"`  // where image and page are from
	Licence string `json:"licence"` // theirs
}

// readConcepts reads the file. A line that is no concept, or has the id of an earlier
// one, is an error: a list that was made wrongly is not paid for. nameless: an image
// will do, since what it shows is found.
func readConcepts(path string, nameless bool) ([]Concept, error) {
	var out []Concept
	seen := map[string]bool{}
	for line, err := range record.Lines(path) {
		if err != nil {
			return nil, err
		}
		text := strings.TrimSpace(string(line.Data))
		if text == "" && line.Err == nil {
			continue
		}
		c, err := Concept{}, line.Err
		switch {
		case err != nil:
		case !utf8.ValidString(text):
			err = errors.New("the line is not UTF-8")
		case strings.HasPrefix(text, "{"):
			err = json.Unmarshal([]byte(text), &c)
			for i := range c.Boxes {
				err = errors.Join(err, c.Boxes[i].check())
			}
			if err == nil && strings.TrimSpace(c.Name) == "" && !(nameless && c.Image != "") {
				err = errors.New("no concept")
			}
		default:
			c.Name = text
		}
		c.Name = strings.TrimSpace(c.Name)
		if c.ID == "" {
			c.ID = manifest.Hash([]byte(cmp.Or(c.Name, c.Image)))[:12]
		}
		if err == nil && seen[c.ID] {
			err = fmt.Errorf("the id %s is there twice", c.ID)
		}
		if err != nil {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "read concepts", Path: path, Row: int64(line.N), Sample: c.ID, Err: err,
				Hint: `a name a line, or {"concept": …, "image": …, "page": …, "boxes": [[left, top, right, bottom], …]}`}
		}
		seen[c.ID] = true
		if c.Query == "" {
			c.Query = c.Name
		}
		if c.Image != "" && !filepath.IsAbs(c.Image) {
			c.Image = filepath.Join(filepath.Dir(path), filepath.FromSlash(c.Image))
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, fail.New(fail.BadInput, "read concepts", path, "the file has no concepts")
	}
	return out, nil
}

// digest of the image files that concepts name: they are no inputs of their own.
func digest(list []Concept) string {
	var b strings.Builder
	for _, c := range list {
		if c.Image == "" {
			continue
		}
		st, err := os.Stat(c.Image)
		if err != nil || !st.Mode().IsRegular() {
			continue // found again, and said, when the concept's turn comes
		}
		if n, sum, err := manifest.HashFile(c.Image); err == nil {
			fmt.Fprintln(&b, c.ID, n, sum)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return manifest.Hash([]byte(b.String()))
}
