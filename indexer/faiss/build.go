package faiss

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"searchloop/indexer/flat"
	"searchloop/internal/fail"
)

// Trained is an empty index of a factory string, trained: what all shards of a
// dataset begin with. It lies in a temporary file, because an index that was read
// is the same whoever built what before. Close removes it.
type Trained struct{ dir string }

// Check makes an index of the factory string to see that there is such a kind,
// that the effort means something to it, and whether it needs training.
func Check(dim int, factory string, e Effort) (needsTraining bool, err error) {
	if err := Available(); err != nil {
		return false, err
	}
	x, err := library.make(dim, factory)
	if err != nil {
		return false, err
	}
	defer x.close()
	return !x.trained(), e.fits(factory, x.traits())
}

// SampleSize is how many vectors an index of this factory string is trained with
// when nobody says: 64 for each list of an IVF index, and at least 65536, which is
// FAISS's own limit for a product quantizer.
func SampleSize(factory string) int {
	n := 1 << 16
	for _, part := range strings.FieldsFunc(factory, func(r rune) bool { return r == ',' || r == '_' || r == '(' || r == ')' }) {
		if lists, ok := strings.CutPrefix(part, "IVF"); ok {
			if c, err := strconv.Atoi(lists); err == nil {
				n = max(n, 64*c)
			}
		}
	}
	return n
}

// Sample is n row numbers of 0 … rows-1 in order, the same for the same seed; all
// rows when there are no more.
func Sample(rows int64, n int, seed uint64) []int64 {
	rng := rand.New(rand.NewPCG(seed, 0))
	var out []int64
	for r, left := int64(0), min(int64(n), rows); left > 0; r++ {
		if rng.Int64N(rows-r) < left {
			out = append(out, r)
			left--
		}
	}
	return out
}

// Train makes an index of the factory string and trains it with the sample when
// it needs that.
func Train(dim int, factory string, sample []float32) (*Trained, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	x, err := library.make(dim, factory)
	if err != nil {
		return nil, err
	}
	defer x.close()
	if !x.trained() {
		if len(sample) == 0 {
			return nil, fail.New(fail.BadInput, "train index", "", "%s needs vectors to be trained with, there are none", factory)
		}
		if i := flat.NotFinite(sample); i >= 0 {
			return nil, &fail.Error{Kind: fail.BadInput, Op: "train index", Err: errNotFinite, Hint: "embed again: the encoder's weights or the vectors are damaged"}
		}
		if err := x.train(sample); err != nil {
			return nil, err
		}
	}
	t := new(Trained)
	if t.dir, err = os.MkdirTemp("", "searchloop-index-"); err != nil {
		return nil, fail.Wrap(fail.Disk, "train index", os.TempDir(), err)
	}
	if err := x.write(t.path()); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trained) path() string { return filepath.Join(t.dir, "trained.index") }

// Close removes the temporary file.
func (t *Trained) Close() error { return fail.Wrap(fail.Disk, "remove", t.dir, os.RemoveAll(t.dir)) }

// addRows is how many vectors are added at a time: enough for FAISS to multiply
// matrices.
const addRows = 1 << 14

// Writer adds vectors to an index in memory and writes it when it is closed.
type Writer struct {
	to        io.Writer
	x         index
	first, at int64 // row of the first vector, and of the next to be added
	want      int64
	buf       []float32
}

// Writer begins a shard of rows first … first+rows-1, to be written to to.
func (t *Trained) Writer(to io.Writer, first, rows int64) (*Writer, error) {
	x, err := library.read(t.path(), false)
	if err != nil {
		return nil, err
	}
	if err := x.reserve(rows); err != nil {
		x.close()
		return nil, err
	}
	return &Writer{to: to, x: x, first: first, at: first, want: rows}, nil
}

// Write appends len(v)/dim rows. A row with a NaN or an infinity is refused; Row
// in the error counts from 1 within this shard.
func (w *Writer) Write(v []float32) error {
	d := w.x.dim()
	if len(v)%d != 0 {
		return fail.New(fail.BadInput, "write index", "", "%d numbers are not whole vectors of dimension %d", len(v), d)
	}
	if i := flat.NotFinite(v); i >= 0 {
		return &fail.Error{Kind: fail.BadInput, Op: "write index", Row: w.at - w.first + int64((len(w.buf)+i)/d) + 1, Err: errNotFinite,
			Hint: "embed again: the encoder's weights or the vectors are damaged"}
	}
	w.buf = append(w.buf, v...)
	if len(w.buf) < addRows*d {
		return nil
	}
	return w.flush()
}

func (w *Writer) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	if err := w.x.add(w.buf, w.at); err != nil {
		return err
	}
	w.at += int64(len(w.buf) / w.x.dim())
	w.buf = w.buf[:0]
	return nil
}

// Close checks the count, writes the index and frees it.
func (w *Writer) Close() error {
	defer w.Discard()
	if err := w.flush(); err != nil {
		return err
	}
	if n := w.at - w.first; n != w.want {
		return fail.New(fail.BadInput, "write index", "", "%d vectors of the %d that were announced", n, w.want)
	}
	return stream(w.x, w.to)
}

// Discard frees the index. After Close it does nothing, so it can always be deferred.
func (w *Writer) Discard() { w.x.close() }

// stream writes x to to. FAISS writes files by name: the name is that of a pipe,
// so that the bytes take the way of all other parts, with their digest.
func stream(x index, to io.Writer) error {
	r, p, err := os.Pipe()
	if err != nil {
		return fail.Wrap(fail.Disk, "write index", "", err)
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, r)
		r.Close() // FAISS's next write fails when ours did
		copied <- err
	}()
	written := x.write(fmt.Sprintf("/dev/fd/%d", p.Fd()))
	p.Close()
	if err := <-copied; err != nil {
		return fail.Wrap(fail.Disk, "write index", "", err)
	}
	return written
}
