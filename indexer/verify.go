package indexer

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"path/filepath"
	"slices"

	"searchloop/indexer/faiss"
	"searchloop/indexer/flat"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/manifest"
	"searchloop/internal/par"
)

// Verification is what Verify found.
type Verification struct {
	Queries  int          `json:"queries"` // rows of the index, evenly spaced
	K        int          `json:"k"`
	Effort   faiss.Effort `json:"search,omitzero"`
	Recall   float64      `json:"recall"`    // share of the exact k best that the search found
	MaxError float64      `json:"max_error"` // largest difference of a score from the exact one
	Exact    string       `json:"exact"`     // what the search was compared with
}

// Verify searches the index dataset at dir as every program does, for vectors of
// its own at sample rows, and compares with inner products computed one by one in
// float64, over the vectors dataset at vectors when it is named, otherwise over
// the index's own vectors, which only flat indices have. Equal scores count as
// equally good. An effort that is not zero takes the place of the index's. The
// result is noted in index.json; what depends on the index does not change by it.
func Verify(ctx context.Context, dir, vectors string, sample, k int, effort faiss.Effort) (Verification, error) {
	v := Verification{K: k, Exact: "the index's own vectors, in float64"}
	d, err := readDescription(dir)
	if err != nil {
		return v, err
	}
	m, err := manifest.Open(dir)
	if err != nil {
		return v, err
	}
	if err := m.Verify(dir); err != nil {
		return v, fail.Wrap(fail.BadInput, "verify index", dir, err)
	}
	set, err := openShards(dir, d)
	if err != nil {
		return v, err
	}
	defer set.Close()
	if sample < 1 || k < 1 || d.Rows == 0 {
		return v, fail.New(fail.Usage, "verify index", dir, "%d queries, k %d, %d vectors", sample, k, d.Rows)
	}
	var source iter.Seq2[[]float32, error]
	if own, ok := set.(exact); vectors != "" {
		v.Exact = "the vectors dataset, in float64"
		source, err = vectorsOf(vectors, d)
	} else if ok {
		source = own.all
	} else {
		err = fail.WithHint(fail.New(fail.Usage, "verify index", dir, "an index of the kind %s does not give its vectors back", d.Factory), "name the vectors dataset with --vectors")
	}
	if err != nil {
		return v, err
	}
	v.Queries, v.Effort = int(min(int64(sample), d.Rows)), effort.Or(d.Effort)
	if err := v.measure(ctx, set, source, d, effort); err != nil {
		return v, fail.Wrap(fail.BadInput, "verify index", dir, err)
	}
	d.Verified = &v
	return v, note(dir, d, m)
}

// all yields the vectors, some rows at a time.
func (x exact) all(yield func([]float32, error) bool) {
	for r := int64(0); r < x.Rows(); r += 1000 {
		var b []float32
		for i := r; i < min(r+1000, x.Rows()); i++ {
			b = append(b, x.Row(i)...)
		}
		if !yield(b, nil) {
			return
		}
	}
}

func vectorsOf(dir string, d Description) (iter.Seq2[[]float32, error], error) {
	src, err := openVectors(dir)
	if err != nil {
		return nil, err
	}
	if diff := src.space.Diff(d.Space); diff != "" || src.m.Rows() != d.Rows {
		return nil, fail.New(fail.BadInput, "verify index", dir, "these are not the vectors that were indexed: %d of %d rows; %s", src.m.Rows(), d.Rows, diff)
	}
	return func(yield func([]float32, error) bool) {
		for b, err := range src.rows(0, d.Rows) {
			if !yield(b.Vectors, err) || err != nil {
				return
			}
		}
	}, nil
}

// asked is a query on its way through Verify.
type asked struct {
	vector []float32
	hits   map[int64]float32 // scores found, by row
	exact  map[int64]float64 // of these rows
	best   []float64         // the k best exact scores, best first
}

// measure goes over the vectors twice: for the queries, and to score all rows.
func (v *Verification) measure(ctx context.Context, set searcher, source iter.Seq2[[]float32, error], d Description, e faiss.Effort) error {
	var all []*asked
	dim := int64(d.Space.Dim)
	var at int64
	for b, err := range source {
		if err != nil {
			return err
		}
		n := int64(len(b)) / dim
		for len(all) < v.Queries {
			r := int64(len(all))*d.Rows/int64(v.Queries) - at
			if r >= n {
				break
			}
			all = append(all, &asked{vector: slices.Clone(b[r*dim : (r+1)*dim]), hits: map[int64]float32{}, exact: map[int64]float64{}})
		}
		at += n
	}
	for _, q := range all {
		// One by one: searches of single queries are those that take short cuts.
		got, err := set.SearchRange(ctx, q.vector, v.K, e, flat.All)
		if err != nil {
			return err
		}
		for _, h := range got[0] {
			q.hits[h.Row] = h.Score
		}
	}
	at = 0
	for b, err := range source {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		par.For(len(all), 1, func(lo, hi int) {
			for _, q := range all[lo:hi] {
				q.score(b, at, v.K)
			}
		})
		at += int64(len(b)) / dim
	}
	var found, want int
	for _, q := range all {
		least := q.best[len(q.best)-1] - 1e-6*abs(q.best[0])
		for row, s := range q.hits {
			v.MaxError = max(v.MaxError, abs(float64(s)-q.exact[row]))
			if q.exact[row] >= least {
				found++
			}
		}
		want += len(q.best)
	}
	v.Recall = float64(found) / float64(want)
	return nil
}

// score takes in rows from first on.
func (q *asked) score(rows []float32, first int64, k int) {
	dim := len(q.vector)
	for r := range len(rows) / dim {
		var sum float64
		for c, x := range rows[r*dim : (r+1)*dim] {
			sum += float64(x) * float64(q.vector[c])
		}
		row := first + int64(r)
		if _, hit := q.hits[row]; hit {
			q.exact[row] = sum
		}
		if len(q.best) == k && sum <= q.best[k-1] {
			continue
		}
		at, _ := slices.BinarySearchFunc(q.best, sum, func(a, b float64) int { return cmp.Compare(b, a) })
		q.best = slices.Insert(q.best, at, sum)
		q.best = q.best[:min(k, len(q.best))]
	}
}

func abs(x float64) float64 { return max(x, -x) }

// note writes the description anew. The manifest learns its new digest; the digest
// of the dataset does not count it.
func note(dir string, d Description, m *manifest.Manifest) error {
	text, err := d.text()
	if err != nil {
		return err
	}
	if err := atomicfile.WriteFile(filepath.Join(dir, descriptionFile), text); err != nil {
		return err
	}
	for i, p := range m.Parts {
		if p.Name == descriptionFile {
			if m.Parts[i], err = manifest.PartOf(dir, p.Name, p.Rows, p.Side); err != nil {
				return err
			}
		}
	}
	_, err = m.Write(manifest.Path(dir))
	return err
}

// text is index.json.
func (d Description) text() ([]byte, error) {
	text, err := json.MarshalIndent(d, "", "  ")
	return append(text, '\n'), fail.Wrap(fail.Bug, "index", d.dir, err)
}
