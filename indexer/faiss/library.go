package faiss

import (
	"errors"

	"searchloop/internal/fail"
)

var errNotFinite = errors.New("a vector holds NaN or an infinity")

// index is one index of FAISS. Searches may run side by side; everything else
// needs the index alone.
type index interface {
	dim() int
	rows() int64
	metric() int
	trained() bool
	traits() traits
	// train fits the index to vectors, add appends them, with the ids
	// first, first+1, … where the index has an id map.
	train(v []float32) error
	reserve(rows int64) error
	add(v []float32, first int64) error
	// search fills in k scores and ids a query, -1 where there are fewer hits,
	// among the ids from … to-1; all when to < 0.
	search(q []float32, k int, e Effort, from, to int64, scores []float32, ids []int64) error
	// checkIDs says what is wrong with the ids stored, which should be
	// first, first+1, … each once.
	checkIDs(first int64) error
	merge(other index) error
	write(path string) error
	close()
}

// traits are what a kind of index knows.
type traits struct {
	nprobe, efSearch bool // settings of a search
	idMap            bool // rows have ids of their own
	ranges           bool // a search can be limited to a range of rows
}

// library is FAISS; nil in a program that was built without it.
var library interface {
	make(dim int, factory string) (index, error)
	// read maps the lists of an IVF index when it may; they cannot be changed then.
	read(path string, mapped bool) (index, error)
}

// Available says whether this program was built with FAISS; the error is nil then.
func Available() error {
	if library != nil {
		return nil
	}
	return &fail.Error{Kind: fail.Usage, Op: "use FAISS", Err: errors.New("this program was built without FAISS, which this kind of index needs"),
		Hint: "install libfaiss-dev, libopenblas-dev and g++ (Debian's names) and run make build again: it finds them; or use the formats flat and fp16, which need nothing"}
}

// Effort is how hard one search tries. Zero: what the index was made with.
type Effort struct {
	NProbe   int `json:"nprobe,omitempty"`    // lists that an IVF index looks into
	EfSearch int `json:"ef_search,omitempty"` // candidates that an HNSW index keeps
}

// Or is e with what it leaves open taken from d.
func (e Effort) Or(d Effort) Effort {
	if e.NProbe == 0 {
		e.NProbe = d.NProbe
	}
	if e.EfSearch == 0 {
		e.EfSearch = d.EfSearch
	}
	return e
}

// fits refuses settings that an index of these traits does not have.
func (e Effort) fits(path string, t traits) error {
	bad := func(name string, value int, has bool) error {
		if value < 0 || value != 0 && !has {
			return &fail.Error{Kind: fail.Usage, Op: "search index", Path: path, Err: errors.New(name + " means nothing to this index, or is negative"),
				Hint: "nprobe is for IVF indices, ef_search for HNSW"}
		}
		return nil
	}
	return errors.Join(bad("nprobe", e.NProbe, t.nprobe), bad("ef_search", e.EfSearch, t.efSearch))
}
