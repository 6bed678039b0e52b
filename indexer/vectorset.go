package indexer

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"path/filepath"

	"searchloop/indexer/passages"
	"searchloop/indexer/vectors"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
)

// vectorSet is an open vectors dataset.
type vectorSet struct {
	dir     string
	m       *manifest.Manifest
	space   vectors.Space
	encoder string // folder or address
	images  llm.ImageForm
}

// openVectors opens the dataset and the head of every part: all must be of one space.
func openVectors(dir string) (*vectorSet, error) {
	m, err := manifest.Open(dir)
	if err != nil {
		return nil, fail.WithHint(fail.Wrap(fail.BadInput, "open vectors", dir, err), "make them with the embed job")
	}
	if err := m.Require(dir, vectors.Schema, vectors.Version); err != nil {
		return nil, fail.WithHint(err, "name the folder that embed wrote")
	}
	var meta vectorsMeta
	if err := json.Unmarshal(m.Meta, &meta); err != nil {
		return nil, fail.New(fail.BadInput, "open vectors", dir, "the manifest does not say which space the vectors are of: %w", err)
	}
	s := &vectorSet{dir: dir, m: m, space: meta.Space, encoder: resolve(dir, meta.Encoder), images: meta.Images}
	for _, p := range m.Data() {
		r, err := vectors.Open(filepath.Join(dir, p.Name))
		if err != nil {
			return nil, err
		}
		diff := r.Space().Diff(s.space)
		if err := r.Close(); err != nil {
			return nil, err
		}
		if diff != "" {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "open vectors", Path: filepath.Join(dir, p.Name), Err: fmt.Errorf("not of the space of the other parts: %s", diff),
				Hint: "vectors of different encoders cannot be compared: embed all passages with one"}
		}
	}
	return s, nil
}

// belongsTo checks that the vectors were made from these passages.
func (s *vectorSet) belongsTo(set *passages.Set) error {
	bad := func(format string, args ...any) error {
		return &fail.Error{Kind: fail.BadInput, Op: "index", Path: s.dir, Err: fmt.Errorf(format, args...), Hint: "run the embed job on " + set.Dir}
	}
	for _, in := range s.m.Inputs {
		if in.Name == "passages" && in.SHA256 != set.Digest() {
			return bad("the vectors are of other passages (%s), or these were made anew since", in.Path)
		}
	}
	if n := s.m.Rows(); n != set.Rows() {
		return bad("%d vectors for %d passages", n, set.Rows())
	}
	return nil
}

// rows yields rows lo to hi-1, a batch at a time. Every part must have the rows
// and the SHA-256 that the manifest says. That is known only when it has been read,
// because it is digested meanwhile: what is made of the rows counts when rows has ended
// without an error.
func (s *vectorSet) rows(lo, hi int64) iter.Seq2[vectors.Batch, error] {
	return func(yield func(vectors.Batch, error) bool) {
		begun := make(chan manifest.Part, len(s.m.Parts))
		defer close(begun)
		verdicts := make(chan error, len(s.m.Parts))
		go func() {
			for p := range begun {
				verdicts <- p.Verify(s.dir)
			}
		}()
		var start int64
		open := 0 // verdicts not heard yet
		hear := func(most int) error {
			for ; open > most; open-- {
				if err := <-verdicts; err != nil {
					return err
				}
			}
			return nil
		}
		for _, p := range s.m.Data() {
			from, to := max(lo-start, 0), min(hi-start, p.Rows)
			if start += p.Rows; from >= to {
				continue
			}
			begun <- p
			open++
			more, err := s.part(p, from, to, yield)
			if !more {
				return
			}
			wait := 1 // the digest may lag by a part
			if err != nil {
				wait = 0 // damage explains any other error
			}
			if damage := hear(wait); damage != nil {
				err = damage
			}
			if err != nil {
				yield(vectors.Batch{}, err)
				return
			}
		}
		if err := hear(0); err != nil {
			yield(vectors.Batch{}, err)
		}
	}
}

// pick returns the vectors of some rows, in order, by one pass over all.
func (s *vectorSet) pick(ctx context.Context, rows []int64) ([]float32, error) {
	d := int64(s.space.Dim)
	out := make([]float32, 0, int64(len(rows))*d)
	var at int64
	for b, err := range s.rows(0, s.m.Rows()) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fail.Wrap(fail.BadInput, "read vectors", s.dir, err)
		}
		n := int64(len(b.IDs))
		for ; len(rows) > 0 && rows[0] < at+n; rows = rows[1:] {
			i := rows[0] - at
			out = append(out, b.Vectors[i*d:(i+1)*d]...)
		}
		at += n
	}
	return out, nil
}

// part yields rows lo to hi-1 of one part and says whether more are wanted.
func (s *vectorSet) part(p manifest.Part, lo, hi int64, yield func(vectors.Batch, error) bool) (more bool, err error) {
	path := filepath.Join(s.dir, p.Name)
	r, err := vectors.Open(path)
	if err != nil {
		return true, err
	}
	defer r.Close()
	var at int64
	for b, err := range r.Batches() {
		if err != nil {
			return true, err
		}
		n := int64(len(b.IDs))
		if from, to := max(lo-at, 0), min(hi-at, n); from < to {
			d := int64(s.space.Dim)
			some := vectors.Batch{IDs: b.IDs[from:to], Vectors: b.Vectors[from*d : to*d]}
			if len(b.Halves) > 0 {
				some.Halves = b.Halves[from*d : to*d]
			}
			if !yield(some, nil) {
				return false, nil
			}
		}
		at += n
	}
	if at != p.Rows {
		return true, &fail.Error{Kind: fail.BadInput, Op: "read vectors", Path: path, Err: fmt.Errorf("%d rows, the manifest says %d", at, p.Rows),
			Hint: "run the embed job with --fresh"}
	}
	return true, nil
}
