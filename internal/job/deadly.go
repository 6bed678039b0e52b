package job

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/shard"
)

// deaths after which a sample is given up.
const deaths = 2

// flight finds the sample that takes its process down with it: by a panic in a
// goroutine, a fault in C code, a fatal error of the runtime. While samples are in
// flight their names stand in a file, and the runtime writes into another one why
// it dies; a process that is killed from outside writes nothing. The next process
// holds both together: what was in flight then is suspected, and each suspect runs
// alone, so that the next death has one name.
type flight struct {
	places *os.File
	mapped []byte           // places in memory, which outlives a process in the same way; nil where that cannot be
	free   chan int64       // places without a sample
	counts map[string]int64 // deaths that a sample was in flight at, by the digest of its name
}

// suspects is the file of what earlier processes died of.
type suspects struct {
	Spec   string           `json:"spec"` // of other parameters nothing is known
	Counts map[string]int64 `json:"deaths"`
}

const flightLine = 2*sha256.Size + 1 // a digest in hex and a newline

func nameOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

func (d *Dataset) deadlyPaths(s shard.Spec) (places, crash, deaths string) {
	return d.work(s.Name("part", "flight")), d.work(s.Name("part", "crash")), d.work(s.Name("part", "deaths"))
}

// watch begins to write down which samples are in flight, n at most.
func (s *Shard) watch(n int) (*flight, error) {
	places, crash, known := s.d.deadlyPaths(s.Shard)
	digest, err := s.d.identity()
	if err != nil {
		return nil, err
	}
	was := suspects{Spec: digest, Counts: map[string]int64{}}
	if text, err := os.ReadFile(known); err == nil {
		var old suspects
		if json.Unmarshal(text, &old) == nil && old.Spec == digest && old.Counts != nil {
			was = old
		}
	}
	if info, err := os.Stat(crash); err == nil && info.Size() > 0 {
		text, err := os.ReadFile(places)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fail.Wrap(fail.Disk, "read samples in flight", places, err)
		}
		for _, name := range bytes.Fields(text) {
			was.Counts[string(name)]++
		}
		s.d.run.Log.Warn("the last process died of itself; what was in flight then is tried one by one", "samples", len(bytes.Fields(text)))
		out, _ := json.Marshal(was)
		if err := atomicfile.WriteFile(known, out); err != nil {
			return nil, err
		}
	}
	f := &flight{free: make(chan int64, n), counts: was.Counts}
	if f.places, err = os.OpenFile(places, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o666); err != nil {
		return nil, fail.Wrap(fail.Disk, "write samples in flight", places, err)
	}
	if _, err := f.places.Write(bytes.Repeat(emptyLine, n)); err != nil {
		f.places.Close()
		return nil, fail.Wrap(fail.Disk, "write samples in flight", places, err)
	}
	for i := range n {
		f.free <- int64(i)
	}
	f.mapped = mapPlaces(f.places, n*flightLine)
	w, err := os.OpenFile(crash, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // what a runtime says may be anything
	if err == nil {
		err = debug.SetCrashOutput(w, debug.CrashOptions{})
		w.Close()
	}
	if err != nil {
		unmapPlaces(f.mapped)
		f.places.Close()
	}
	return f, fail.Wrap(fail.Disk, "watch for crashes", crash, err)
}

var (
	noName    = strings.Repeat(" ", flightLine-1)
	emptyLine = []byte(noName + "\n")
)

// begin takes a place for a sample and writes its name there; end gives it back.
func (f *flight) begin(name string) (place int64, err error) {
	place = <-f.free
	return place, f.write(place, name)
}

func (f *flight) end(place int64) error {
	err := f.write(place, noName)
	f.free <- place
	return err
}

// write puts a name into a place. Two calls a sample are two of the most frequent ones
// of the system where samples are short, so that it is asked only if memory is not the file.
func (f *flight) write(place int64, name string) error {
	if f.mapped != nil {
		copy(f.mapped[place*flightLine:], name)
		return nil
	}
	_, err := f.places.WriteAt([]byte(name), place*flightLine)
	return fail.Wrap(fail.Disk, "write samples in flight", f.places.Name(), err)
}

func (f *flight) close() {
	debug.SetCrashOutput(nil, debug.CrashOptions{})
	unmapPlaces(f.mapped)
	f.places.Close()
}

// Samples begins work on the shard's samples, at most n at once, with an eye on those
// that kill their process. Wait must be called.
func (s *Shard) Samples(ctx context.Context, n int) (*Samples, error) {
	n = max(1, n)
	f, err := s.watch(n)
	if err != nil {
		return nil, err
	}
	out := s.d.run.Samples(ctx, n)
	out.flight, out.closing = f, sync.OnceFunc(f.close)
	return out, nil
}

// Named is Go for a sample with a name, the same one in each process. deadly says that
// the sample has killed two processes, the second time alone: it is not to be
// touched again, and counts as failed.
func (s *Samples) Named(id string, work func(ctx context.Context, deadly bool) error) bool {
	name := nameOf(id)
	n := s.flight.counts[name]
	places := 1
	if n > 0 && n < deaths {
		places = cap(s.slots) // alone
	}
	return s.begin(places, func(ctx context.Context) error {
		if n >= deaths {
			s.run.Log.Warn("a sample has killed its process each time; it is left out", "sample", id, "times", n)
			return work(ctx, true)
		}
		place, err := s.flight.begin(name)
		if err == nil {
			err = work(ctx, false)
		}
		return errors.Join(err, s.flight.end(place))
	})
}
