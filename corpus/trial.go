package corpus

import (
	"bytes"
	"os"
	"path"
	"path/filepath"

	"searchloop/internal/fail"
)

// Needs: what a question wants of whom is to answer it.
const (
	NeedNone    = "free"    // answered without a search
	NeedImage   = "image"   // an image search
	NeedText    = "text"    // a text search
	NeedMixed   = "mixed"   // both
	NeedUnknown = "unknown" // no rollout was right
)

// Trial is what rollouts of a policy found out about a question: an optional
// column of questions datasets, written by curate. See docs/curate.md.
type Trial struct {
	Need     string  `parquet:"need,dict" json:"need"`
	Rollouts int32   `parquet:"rollouts" json:"rollouts"`   // judged
	Correct  int32   `parquet:"correct" json:"correct"`     // of them
	Free     int32   `parquet:"free" json:"free"`           // right ones that searched nothing
	Image    int32   `parquet:"image" json:"image"`         // right ones that searched images alone
	Text     int32   `parquet:"text" json:"text"`           // right ones that searched texts alone
	Mixed    int32   `parquet:"mixed" json:"mixed"`         // right ones that searched both
	Searched int32   `parquet:"searched" json:"searched"`   // all that searched, right or wrong
	PassRate float64 `parquet:"pass_rate" json:"pass_rate"` // correct of rollouts
	Policy   string  `parquet:"policy,dict" json:"policy"`
}

// Tried is a question with its trial. Its columns are those of a question and one
// more, so that every reader of questions reads it.
type Tried struct {
	Question
	Trial *Trial `parquet:"trial,optional"`
}

// Share puts an image of another store into this one: as a second name of the same
// file where the disk allows it, else as a copy. cell is its path below the store's
// folder, with slashes.
func (s *ImageStore) Share(from *ImageStore, sha string) (cell string, err error) {
	data, err := from.Get(sha)
	if err != nil {
		return "", err
	}
	cell = cellPath(sha, imageExt(data))
	final := filepath.Join(s.dirs[0], filepath.FromSlash(cell))
	if old, err := os.ReadFile(final); err == nil && bytes.Equal(old, data) {
		return cell, nil
	}
	if file, err := from.Path(sha); err == nil && os.MkdirAll(filepath.Dir(final), 0o777) == nil && os.Link(file, final) == nil {
		return cell, nil
	}
	_, err = s.Put(data)
	return cell, err
}

// Move makes the question one of the dataset in whose folder images/ lies: its
// images are shared from where they were, and its cells name them there. Cells that
// hold bytes stay.
func (q *Question) Move(images, from *ImageStore) error {
	cells := make([]ImageCell, len(q.ImageIDs))
	for i, id := range q.ImageIDs {
		cell, err := images.Share(from, id)
		if err != nil {
			return fail.Wrap(fail.BadInput, "move the images of a question", q.ID, err)
		}
		where := path.Join("images", cell)
		cells[i] = ImageCell{Path: &where}
		if i < len(q.Images) && len(q.Images[i].Bytes) > 0 {
			cells[i] = q.Images[i]
		}
	}
	q.Images = cells
	return nil
}
