package indexer

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"slices"

	"searchloop/indexer/flat"
	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/par"
)

// VerifyFile is where Verify leaves its result, beside index.json. It is no part
// of the dataset: its manifest and digest stay as they are.
const VerifyFile = "verify.json"

// Verification is what Verify found.
type Verification struct {
	Queries  int     `json:"queries"` // rows of the index, evenly spaced
	K        int     `json:"k"`
	Recall   float64 `json:"recall"`    // share of the exact k best that the search found
	MaxError float64 `json:"max_error"` // largest difference of a score from the exact one
	Exact    string  `json:"exact"`     // what the search was compared with
}

// Verify searches the index dataset at dir as every program does, for vectors of
// its own at sample rows, and compares with inner products computed one by one in
// float64, over the vectors dataset at vectors when it is named, otherwise over
// the index's own vectors. Equal scores count as equally good.
func Verify(ctx context.Context, dir, vectors string, sample, k int) (Verification, error) {
	v := Verification{K: k, Exact: "the index's own vectors, in float64"}
	d, err := readDescription(dir)
	if err != nil {
		return v, err
	}
	set, err := openShards(dir, d)
	if err != nil {
		return v, err
	}
	defer set.Close()
	if sample < 1 || k < 1 || d.Rows == 0 {
		return v, fail.New(fail.Usage, "verify index", dir, "%d queries, k %d, %d vectors", sample, k, d.Rows)
	}
	v.Queries = int(min(int64(sample), d.Rows))
	rows := make([]int64, v.Queries)
	for i := range rows {
		rows[i] = int64(i) * d.Rows / int64(v.Queries)
	}
	var queries []float32
	for _, r := range rows {
		queries = append(queries, set.Row(r)...)
	}
	exact := make([][]float64, v.Queries)
	for i := range exact {
		exact[i] = make([]float64, d.Rows)
	}
	if vectors != "" {
		v.Exact = "the vectors dataset, in float64"
		err = exactOfVectors(exact, queries, vectors, d)
	} else {
		for r := int64(0); r < d.Rows && err == nil; r += 1000 {
			n := min(1000, d.Rows-r)
			b := make([]float32, 0, n*int64(d.Space.Dim))
			for i := range n {
				b = append(b, set.Row(r+i)...)
			}
			products(exact, queries, b, r, d.Space.Dim)
			err = ctx.Err()
		}
	}
	if err != nil {
		return v, fail.Wrap(fail.BadInput, "verify index", dir, err)
	}
	if err := v.compare(ctx, set, queries, exact); err != nil {
		return v, err
	}
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return v, fail.Wrap(fail.Bug, "verify index", dir, err)
	}
	return v, atomicfile.WriteFile(filepath.Join(dir, VerifyFile), append(text, '\n'))
}

func exactOfVectors(exact [][]float64, queries []float32, dir string, d Description) error {
	src, err := openVectors(dir)
	if err != nil {
		return err
	}
	if diff := src.space.Diff(d.Space); diff != "" || src.m.Rows() != d.Rows {
		return fail.New(fail.BadInput, "verify index", dir, "these are not the vectors that were indexed: %d of %d rows; %s", src.m.Rows(), d.Rows, diff)
	}
	var at int64
	for b, err := range src.rows(0, d.Rows) {
		if err != nil {
			return err
		}
		products(exact, queries, b.Vectors, at, d.Space.Dim)
		at += int64(len(b.IDs))
	}
	return nil
}

// products fills in the scores of the rows from first on.
func products(exact [][]float64, queries, rows []float32, first int64, dim int) {
	par.For(len(exact), 1, func(lo, hi int) {
		for q := lo; q < hi; q++ {
			query := queries[q*dim : (q+1)*dim]
			for r := range len(rows) / dim {
				var sum float64
				for c, x := range rows[r*dim : (r+1)*dim] {
					sum += float64(x) * float64(query[c])
				}
				exact[q][first+int64(r)] = sum
			}
		}
	})
}

// compare fills in recall and error.
func (v *Verification) compare(ctx context.Context, set *flat.Set, queries []float32, exact [][]float64) error {
	var found, want int
	for q, scores := range exact {
		// One by one: searches of single queries are those that take short cuts.
		got, err := set.Search(ctx, queries[q*set.Dim():(q+1)*set.Dim()], v.K)
		if err != nil {
			return err
		}
		best := slices.Clone(scores)
		slices.SortFunc(best, func(a, b float64) int { return cmp.Compare(b, a) })
		k := min(v.K, len(best))
		for _, h := range got[0] {
			v.MaxError = max(v.MaxError, abs(float64(h.Score)-scores[h.Row]))
			if scores[h.Row] >= best[k-1]-1e-6*abs(best[0]) {
				found++
			}
		}
		want += k
	}
	v.Recall = float64(found) / float64(want)
	return nil
}

func abs(x float64) float64 { return max(x, -x) }
