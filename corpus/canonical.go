package corpus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"searchloop/internal/fail"
	"searchloop/internal/picture"
)

// Forms of the images column of questions: where verl finds an image.
const (
	CellRelative = "relative" // path relative to the dataset's folder
	CellAbsolute = "absolute" // absolute path
	CellBytes    = "bytes"    // the encoded bytes themselves
)

// maxImageBytes bounds an image file that a row names.
const maxImageBytes = 256 << 20

// canonical makes our rows of an adapter's.
type canonical struct {
	format    Format
	store     *ImageStore
	storePath string // folder of the store as image cells name it, with slashes
	opt       PrepOptions
	form      *verlForm // of another system, or nil
	large     sync.Mutex
}

func (c *canonical) question(row draft[Sample]) (Question, error) {
	s := row.value
	if err := checkSample(s, c.format.Unanswered); err != nil {
		return Question{}, err
	}
	if c.opt.RequireImage && len(s.Images) == 0 {
		return Question{}, errLeftOut
	}
	if c.form != nil && c.form.noImage && len(s.Images) > 0 {
		return Question{}, fmt.Errorf("the rows of %s have no images, and this question has", c.form.name)
	}
	split := pick(c.opt.Split, s.Split, c.format.Split)
	q := Question{
		DataSource:  pick(c.opt.DataSource, s.DataSource, c.format.DataSource, c.format.Name),
		Ability:     s.Ability,
		AgentName:   pick(s.AgentName, "tool_agent"),
		RewardModel: RewardModel{Style: "rule", GroundTruth: GroundTruth{Target: s.Truth}, CandidateAnswers: candidatesJSON(s.Candidates)},
		ExtraInfo:   ExtraInfo{Index: row.id, Split: split, Question: s.Text},
		ID:          row.id,
		Text:        s.Text,
		Answers:     unique(append(s.Truth[:len(s.Truth):len(s.Truth)], s.Candidates...)),
		Split:       split,
		Category:    s.Category,
	}
	if !s.Meta.IsNull() {
		q.Meta = string(s.Meta.AppendJSON(nil))
	}
	for i, pic := range s.Images {
		sha, cell, err := c.image(row.path, pic)
		if err != nil {
			if isRowError(err) {
				err = fmt.Errorf("image %d of %d: %w", i+1, len(s.Images), err)
			}
			return Question{}, err
		}
		q.ImageIDs = append(q.ImageIDs, sha)
		q.Images = append(q.Images, cell)
	}
	if c.opt.System != "" {
		q.Prompt = append(q.Prompt, Message{Role: "system", Content: c.opt.System})
	}
	q.Prompt = append(q.Prompt, Message{Role: "user", Content: c.opt.Prefix + strings.Repeat("<image>", len(s.Images)) + s.Text})
	return q, nil
}

func checkSample(s Sample, unanswered bool) error {
	switch {
	case s.Text == "":
		return errors.New("the question is empty")
	case !utf8.ValidString(s.Text):
		return errors.New("the question is not UTF-8")
	case len(s.Truth) == 0 && !unanswered:
		return errors.New("the answer is empty")
	case s.Shown > 0 && len(s.Images) == 0:
		return errors.New("the question shows an image, and the row has none")
	}
	for _, list := range [][]string{s.Truth, s.Candidates} {
		for _, a := range list {
			if !utf8.ValidString(a) {
				return fmt.Errorf("the answer %q is not UTF-8", a)
			}
		}
	}
	return nil
}

func (c *canonical) passage(row draft[Document]) (p Passage, err error) {
	d := row.value
	p = Passage{ID: row.id, Contents: d.Contents}
	if !d.checked && !utf8.ValidString(p.Contents) {
		return p, errors.New("the passage is not UTF-8")
	}
	if d.Image != nil {
		p.ImageID, _, err = c.image(row.path, *d.Image)
	}
	return p, err
}

// image checks an image and puts it into the store.
func (c *canonical) image(source string, pic Picture) (sha string, cell ImageCell, err error) {
	data := pic.Data
	if pic.Path != "" {
		if data, err = c.readFile(source, pic); err != nil {
			return "", cell, err
		}
	}
	check := CheckImage
	if c.opt.DecodeImages {
		check = c.decode
	}
	if err := check(data); err != nil {
		if pic.Path != "" {
			err = fmt.Errorf("%s: %w", pic.Path, err)
		}
		return "", cell, err
	}
	if c.opt.As != "" {
		return "", ImageCell{Bytes: data}, nil // nothing refers to a store
	}
	if sha, err = c.store.Put(data); err != nil {
		return "", cell, err
	}
	if c.opt.Cells == CellBytes {
		return sha, ImageCell{Bytes: data}, nil
	}
	where := path.Join(c.storePath, cellPath(sha, imageExt(data)))
	return sha, ImageCell{Path: &where}, nil
}

// largeImagePixels is the area above which images are decoded one at a time: rows
// are made on all cores, and pixels take four bytes each.
const largeImagePixels = 16 << 20

// decode is DecodeImage whose error is one of the row.
func (c *canonical) decode(data []byte) error {
	if _, w, h, err := picture.Size(data); err == nil && int64(w)*int64(h) > largeImagePixels {
		c.large.Lock()
		defer c.large.Unlock()
	}
	if err := DecodeImage(data); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "decode image: "))
	}
	return nil
}

// readFile reads an image file that a row of source names. A relative name is
// looked up in --image-root, beside source, and in the format's folders there,
// also without its first folder, which archives are often unpacked under another
// name.
func (c *canonical) readFile(source string, pic Picture) ([]byte, error) {
	name := filepath.FromSlash(pic.Path)
	var tries []string
	if filepath.IsAbs(name) {
		tries = []string{name}
	} else {
		beside := filepath.Dir(source)
		for _, root := range c.opt.ImageRoots {
			tries = append(tries, filepath.Join(root, name))
		}
		tries = append(tries, filepath.Join(beside, name))
		for _, d := range c.format.ImageDirs {
			tries = append(tries, filepath.Join(beside, d, name))
		}
		if _, rest, ok := strings.Cut(name, string(filepath.Separator)); ok {
			for _, d := range c.format.ImageDirs {
				tries = append(tries, filepath.Join(beside, d, rest))
			}
		}
	}
	if pic.Exts != nil && filepath.Ext(name) == "" {
		var named []string
		for _, t := range tries {
			for _, ext := range pic.Exts {
				named = append(named, t+ext)
			}
		}
		tries = named
	}
	for _, file := range tries {
		st, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		switch {
		case err == nil && !st.Mode().IsRegular():
			err = fmt.Errorf("%s is no regular file", file)
		case err == nil && st.Size() > maxImageBytes:
			err = fmt.Errorf("%s has %d bytes", file, st.Size())
		case err == nil:
			data, rerr := os.ReadFile(file)
			if rerr == nil {
				return data, nil
			}
			err = rerr
		}
		if fail.KindOf(err) == fail.Disk {
			return nil, fail.Wrap(fail.Disk, "read image", file, err)
		}
		return nil, err
	}
	if more := len(tries) - 4; more > 0 {
		tries = append(tries[:4], fmt.Sprintf("%d more", more))
	}
	return nil, fmt.Errorf("the image file %s does not exist (looked for %s)", name, strings.Join(tries, ", "))
}

// isRowError tells an error of one row from one of a file or of the disk.
func isRowError(err error) bool {
	var e *fail.Error
	return !errors.As(err, &e)
}

// pick is the first text that is not empty.
func pick(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
