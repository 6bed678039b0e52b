//go:build faiss && cgo

package faiss

/*
#cgo CXXFLAGS: -std=c++17 -O2 -fopenmp
#cgo LDFLAGS: -L${SRCDIR}/stub -lfaiss -lopenblas -lgomp -lstdc++ -lm
#include "search.h"
extern const char* faiss_get_last_error();
*/
import "C"

// go-faiss asks the linker for libfaiss_c. The one in stub is empty: the functions
// are in capi.cpp, and every program that has go-faiss has this package.

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"unsafe"

	gofaiss "github.com/DataIntelligenceCrew/go-faiss"

	"searchloop/internal/fail"
)

func init() {
	// The caller brings the threads. FAISS's own way of dividing work is slower by
	// far: its threads wait by spinning and get in the way of those of the BLAS.
	C.one_blas_thread()
	library = gofaissLibrary{}
}

type gofaissLibrary struct{}

func (gofaissLibrary) make(dim int, factory string) (index, error) {
	var x *gofaiss.IndexImpl
	err := call(1, func() (err error) {
		x, err = gofaiss.IndexFactory(dim, factory, gofaiss.MetricInnerProduct)
		return err
	})
	if err != nil {
		return nil, &fail.Error{Kind: fail.Usage, Op: "make index", Sample: factory, Err: plain(err), Hint: `a factory string is like "IVF1024,Flat" or "OPQ64,IVF1024,PQ64np"`}
	}
	n, err := wrap(x)
	if err == nil && strings.Contains(factory, "HNSW") {
		n.threads = 1 // an IVF index may have a graph over its lists
	}
	return n, err
}

func (gofaissLibrary) read(path string, mapped bool) (index, error) {
	flags := 0
	if mapped {
		flags = gofaiss.IOFlagMmap | gofaiss.IOFlagReadOnly
	}
	var x *gofaiss.IndexImpl
	err := call(1, func() (err error) {
		x, err = gofaiss.ReadIndex(path, flags)
		return err
	})
	if err != nil {
		return nil, &fail.Error{Kind: fail.BadInput, Op: "open index", Path: path, Err: plain(err), Hint: damaged}
	}
	return wrap(x)
}

// native is an index of go-faiss, with the pointer that go-faiss hides.
type native struct {
	*gofaiss.IndexImpl
	pointer unsafe.Pointer
	has     traits
	threads int // to train and add with
	closed  sync.Once

	// effort is the setting that FAISS has for all searches of this index, not for
	// one: a search that wants another one is alone while it changes it. common
	// is what the file said; 0 where every search has its own setting.
	mu             sync.RWMutex
	effort, common C.int64_t
}

func wrap(x *gofaiss.IndexImpl) (*native, error) {
	n := &native{IndexImpl: x, threads: runtime.GOMAXPROCS(0), pointer: reflect.ValueOf(x.Index).Elem().Field(0).UnsafePointer()}
	var t C.int
	err := n.do("open index", func() C.int { return C.index_traits(n.pointer, &t) })
	if err == nil {
		err = n.do("open index", func() C.int { return C.index_mapped(n.pointer) })
	}
	if err == nil {
		err = n.do("open index", func() C.int { return C.index_effort(n.pointer, &n.common) })
	}
	if err != nil {
		n.close()
		return nil, err
	}
	n.effort = n.common
	n.has = traits{nprobe: t&C.HAS_NPROBE != 0, efSearch: t&C.HAS_EF_SEARCH != 0, idMap: t&C.HAS_ID_MAP != 0, ranges: t&C.HAS_RANGES != 0}
	if n.has.efSearch {
		n.threads = 1 // threads that link a graph at the same time make another one every time
	}
	return n, nil
}

// call runs f, which calls FAISS, with that many threads. An error's text is kept
// for the thread that caused it and asked for by a second call, so this goroutine
// stays on its thread.
func call(threads int, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	C.set_threads(C.int(threads))
	return f()
}

// do calls a function of search.h.
func (n *native) do(op string, f func() C.int) error {
	return fail.Wrap(fail.BadInput, op, "", call(1, func() error {
		if f() == 0 {
			return nil
		}
		return plain(errors.New(C.GoString(C.faiss_get_last_error())))
	}))
}

// plain is FAISS's message without the place in its source.
func plain(err error) error {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "' failed: "); ok {
		text = after
	} else if i := strings.LastIndex(text, "Error: "); i >= 0 {
		text = text[i+len("Error: "):]
	}
	return errors.New(strings.TrimSpace(text))
}

func (n *native) dim() int       { return n.D() }
func (n *native) rows() int64    { return n.Ntotal() }
func (n *native) metric() int    { return n.MetricType() }
func (n *native) trained() bool  { return n.IsTrained() }
func (n *native) traits() traits { return n.has }

// whole refuses what go-faiss would cut to whole vectors or crash on.
func (n *native) whole(op string, v []float32) error {
	if len(v) == 0 || len(v)%n.D() != 0 {
		return fail.New(fail.Bug, op, "", "%d numbers are not whole vectors of dimension %d", len(v), n.D())
	}
	return nil
}

func (n *native) train(v []float32) error {
	if err := n.whole("train index", v); err != nil {
		return err
	}
	err := call(n.threads, func() error { return n.Train(v) })
	if err != nil {
		return &fail.Error{Kind: fail.Usage, Op: "train index", Err: fmt.Errorf("with %d vectors: %w", len(v)/n.D(), plain(err)), Hint: "train with more vectors or choose a smaller index"}
	}
	return nil
}

func (n *native) reserve(rows int64) error {
	return n.do("reserve index", func() C.int { return C.index_reserve(n.pointer, C.int64_t(rows)) })
}

func (n *native) add(v []float32, first int64) error {
	if err := n.whole("add to index", v); err != nil {
		return err
	}
	return call(n.threads, func() error {
		if !n.has.idMap {
			return fail.Wrap(fail.BadInput, "add to index", "", n.Add(v))
		}
		ids := make([]int64, len(v)/n.D())
		for i := range ids {
			ids[i] = first + int64(i)
		}
		return fail.Wrap(fail.BadInput, "add to index", "", n.AddWithIDs(v, ids))
	})
}

func (n *native) search(q []float32, k int, e Effort, from, to int64, scores []float32, ids []int64) error {
	if err := n.whole("search index", q); err != nil {
		return err
	}
	if need := len(q) / n.D() * k; k < 1 || len(scores) != need || len(ids) != need {
		return fail.New(fail.Bug, "search index", "", "k %d, room for %d scores and %d ids of %d queries", k, len(scores), len(ids), len(q)/n.D())
	}
	s := C.search_settings{nprobe: C.int64_t(e.NProbe), from: C.int64_t(from), to: C.int64_t(to)}
	return n.with(e, func() error {
		return n.do("search index", func() C.int {
			return C.index_search(n.pointer, C.int64_t(len(q)/n.D()), (*C.float)(&q[0]), C.int64_t(k), &s, (*C.float)(&scores[0]), (*C.int64_t)(&ids[0]))
		})
	})
}

// with runs a search while the common setting is that of e.
func (n *native) with(e Effort, search func() error) error {
	if n.common == 0 {
		return search()
	}
	want := C.int64_t(max(e.NProbe, e.EfSearch)) // an index has one of them
	if want == 0 {
		want = n.common
	}
	n.mu.RLock()
	if n.effort == want {
		defer n.mu.RUnlock()
		return search()
	}
	n.mu.RUnlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.do("search index", func() C.int { return C.index_effort(n.pointer, &want) }); err != nil {
		return err
	}
	n.effort = want
	return search()
}

func (n *native) checkIDs(first int64) error {
	var state C.int
	var id C.int64_t
	if err := n.do("check ids", func() C.int { return C.index_ids(n.pointer, C.int64_t(first), &state, &id) }); err != nil {
		return err
	}
	switch state {
	case 1:
		return fail.New(fail.BadInput, "check ids", "", "id %d is there twice", int64(id))
	case 2:
		return fail.New(fail.BadInput, "check ids", "", "id %d is not one of the rows %d to %d", int64(id), first, first+n.rows()-1)
	}
	return nil
}

func (n *native) merge(other index) error {
	return n.do("merge index", func() C.int { return C.index_merge(n.pointer, other.(*native).pointer) })
}

func (n *native) write(path string) error {
	err := call(1, func() error { return gofaiss.WriteIndex(n, path) })
	if err != nil {
		return fail.Wrap(fail.Disk, "write index", path, plain(err))
	}
	return nil
}

// close frees the index, once; go-faiss would free it as often as it is told.
func (n *native) close() { n.closed.Do(n.Delete) }
