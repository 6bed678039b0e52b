package indexer

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"searchloop/indexer/encoder/served"
	"searchloop/indexer/faiss"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
)

// Schema of index datasets.
const (
	Schema  = "index"
	Version = 1
)

// descriptionFile is the file of an index dataset that says what the shards hold.
const descriptionFile = "index.json"

// FormatFAISS is the format of the indices that only FAISS searches.
const FormatFAISS = "faiss"

// MetricInnerProduct is the only metric so far.
const MetricInnerProduct = "inner_product"

// Description is index.json.
type Description struct {
	Schema   string        `json:"schema"`
	Version  int           `json:"version"`
	Metric   string        `json:"metric"`
	Format   string        `json:"format,omitempty"`  // of the shards: flat when it is not said, fp16, or faiss
	Factory  string        `json:"factory,omitempty"` // FAISS's name of the kind of index; format faiss only
	Effort   faiss.Effort  `json:"search,omitzero"`   // of searches that do not say; format faiss only
	Rows     int64         `json:"rows"`
	Space    vectors.Space `json:"space"`
	Corpus   string        `json:"corpus"`                   // digest of the passages dataset
	Passages string        `json:"passages"`                 // its folder, relative to the index
	Encoder  string        `json:"encoder"`                  // the encoder's folder, relative to the index, or its server's address
	Images   llm.ImageForm `json:"encoder_images,omitempty"` // how that server is sent images
	Shards   []ShardRows   `json:"shards"`                   // in row order
	Verified *Verification `json:"verified,omitempty"`

	dir string
}

// ShardRows is one index file and the rows it holds.
type ShardRows struct {
	Name   string `json:"name"`
	First  int64  `json:"first"`
	Rows   int64  `json:"rows"`
	Sketch string `json:"sketch,omitempty"` // file of the same vectors, a byte a number
}

func readDescription(dir string) (Description, error) {
	d := Description{dir: dir}
	path := filepath.Join(dir, descriptionFile)
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err == nil {
		err = d.check()
	}
	return d, fail.WithHint(fail.Wrap(fail.BadInput, "open index", path, err), "make the index with the index job")
}

func (d *Description) check() error {
	switch {
	case d.Schema != Schema || d.Version != Version:
		return fmt.Errorf("schema %s/%d, this program reads %s/%d", d.Schema, d.Version, Schema, Version)
	case d.Metric != MetricInnerProduct:
		return fmt.Errorf("metric %q, this program searches by %q", d.Metric, MetricInnerProduct)
	case d.Format != FormatFAISS && (d.Factory != "" || d.Effort != faiss.Effort{}):
		return fmt.Errorf("factory %q and search %+v for the format %q", d.Factory, d.Effort, d.Format)
	case len(d.Shards) == 0:
		return fmt.Errorf("no shards")
	}
	var rows int64
	for _, s := range d.Shards {
		if s.Sketch != "" && s.Sketch != filepath.Base(s.Sketch) || (s.Sketch == "") != (d.Shards[0].Sketch == "") {
			return fmt.Errorf("shard %q: sketch %q", s.Name, s.Sketch)
		}
		if s.First != rows || s.Rows < 0 || s.Name != filepath.Base(s.Name) {
			return fmt.Errorf("shard %q: rows %d from %d do not follow row %d", s.Name, s.Rows, s.First, rows)
		}
		rows += s.Rows
	}
	if rows != d.Rows {
		return fmt.Errorf("%d rows, but its shards have %d", d.Rows, rows)
	}
	return nil
}

// relative is path as seen from dir, so that a tree of datasets can be moved as
// a whole; absolute when there is no relative one. An address stays as it is.
func relative(dir, path string) string {
	if served.Is(path) {
		return path
	}
	from, err := filepath.Abs(dir)
	to, err2 := filepath.Abs(path)
	if err != nil || err2 != nil {
		return path
	}
	if rel, err := filepath.Rel(from, to); err == nil {
		return filepath.ToSlash(rel)
	}
	return to
}

// resolve undoes relative.
func resolve(dir, path string) string {
	if served.Is(path) {
		return path
	}
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
