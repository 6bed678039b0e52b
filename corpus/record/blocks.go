package record

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"runtime"
)

const (
	blockBytes = 512 << 10 // read at a time: large enough to hand to a goroutine, small enough for many in flight
	maxAhead   = 16        // blocks in work at most, however many cores there are
)

var errLongLine = errors.New("the line is longer than 64 MiB")

// block is some whole lines of a file.
type block struct {
	n    int64  // number of the first line, from 1
	ends int    // line ends
	data []byte // the last line of a file may lack its end
	err  error  // set when the block is one unusable line, whose data is gone
}

// blocks cuts a text into blocks.
type blocks struct {
	in   io.Reader
	n    int64  // lines so far
	rest []byte // begun line behind the last block
	err  error  // that ended the text
}

// next gives the next block; its data lies in buf if it fits, which may be the
// memory of the block before. The error is io.EOF at
// the end, and one of the file when nothing before it is left.
func (s *blocks) next(buf []byte) (block, error) {
	data := append(buf[:0], s.rest...)
	s.rest = nil
	for from := 0; ; {
		for s.err == nil && len(data) < cap(data) {
			var n int
			n, s.err = s.in.Read(data[len(data):cap(data)])
			data = data[:len(data)+n]
		}
		end := bytes.LastIndexByte(data[from:], '\n') + 1
		switch {
		case end > 0:
			end += from
			s.rest = data[end:]
			return s.cut(data[:end]), nil
		case s.err == io.EOF && len(data) > 0:
			return s.cut(data), nil
		case s.err != nil:
			return block{}, s.err
		case len(data) >= MaxLine:
			return s.skip(data)
		}
		from = len(data)
		data = append(make([]byte, 0, 2*cap(data)), data...)
	}
}

func (s *blocks) cut(data []byte) block {
	b := block{n: s.n + 1, ends: bytes.Count(data, []byte{'\n'}), data: data}
	s.n += int64(b.ends)
	return b
}

// skip passes over the rest of a line that is too long, of which data was read.
func (s *blocks) skip(data []byte) (block, error) {
	s.n++
	for s.err == nil {
		var n int
		n, s.err = s.in.Read(data[:cap(data)])
		if end := bytes.IndexByte(data[:n], '\n') + 1; end > 0 {
			s.rest = bytes.Clone(data[end:n])
			break
		}
	}
	if s.err != nil && s.err != io.EOF {
		return block{}, s.err
	}
	return block{n: s.n, err: errLongLine}, nil
}

// lines goes through the lines that are not blank.
func (b block) lines(yield func(Line) bool) bool {
	if b.err != nil {
		return yield(Line{N: b.n, Err: b.err})
	}
	rest := b.data
	for n := b.n; len(rest) > 0; n++ {
		line := rest
		if end := bytes.IndexByte(rest, '\n') + 1; end > 0 {
			line = rest[:end:end]
		}
		rest = rest[len(line):]
		l := Line{N: n, Data: bytes.TrimRight(line, "\r\n")}
		if len(line) > MaxLine {
			l = Line{N: n, Err: errLongLine}
		}
		if (l.Err != nil || len(bytes.TrimSpace(l.Data)) > 0) && !yield(l) {
			return false
		}
	}
	return true
}

// Lines goes through the lines of a text file that are not blank. The second
// value is an error of the file and ends the iteration.
func Lines(path string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		r, err := Open(path)
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer r.Close()
		s := blocks{in: r}
		buf := make([]byte, 0, blockBytes)
		for {
			b, err := s.next(buf)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(Line{}, err)
				return
			}
			if !b.lines(func(l Line) bool { return yield(l, nil) }) {
				return
			}
		}
	}
}

// MapLines reads the lines that Lines gives on all cores and yields what was made of
// them in the order of the file. Lines are read some after the other, in blocks, and
// several blocks at the same time: for each, begin gives a read of its own, whose
// calls may share memory. It must not keep a line's data.
func MapLines[T any](path string, begin func() func(Line) T) iter.Seq2[T, error] {
	return mapLines(path, blockBytes, begin)
}

func mapLines[T any](path string, size int, begin func() func(Line) T) iter.Seq2[T, error] {
	return Flat(mapBlocks(path, size, func(b Block) []T {
		made, read := make([]T, 0, b.Count()), begin()
		for l := range b.Lines() {
			made = append(made, read(l))
		}
		return made
	}))
}

// Flat yields the items of lists one by one.
func Flat[T any](lists iter.Seq2[[]T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for list, err := range lists {
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, x := range list {
				if !yield(x, nil) {
					return
				}
			}
		}
	}
}

// Block is some lines of a file that follow one another.
type Block struct{ block }

// Size is the bytes of the lines.
func (b Block) Size() int { return len(b.data) }

// Count is how many lines there are at most.
func (b Block) Count() int { return b.ends + 1 }

// Lines goes through the lines that are not blank.
func (b Block) Lines() iter.Seq[Line] {
	return func(yield func(Line) bool) { b.lines(yield) }
}

// MapBlocks is MapLines for a read that serves all lines of a block: what comes of
// them can share memory. It must not keep the block.
func MapBlocks[T any](path string, read func(Block) T) iter.Seq2[T, error] {
	return mapBlocks(path, blockBytes, read)
}

func mapBlocks[T any](path string, size int, read func(Block) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		r, err := Open(path)
		if err != nil {
			yield(none, err)
			return
		}
		type result struct {
			made T
			err  error
		}
		// The channel holds the blocks in work, in order; its size bounds how many. Some
		// more than there are cores keep them busy while the caller writes.
		queue := make(chan chan result, min(2+runtime.GOMAXPROCS(0), maxAhead))
		free := make(chan []byte, cap(queue)) // memory of blocks that were read
		stop := make(chan struct{})
		go func() {
			defer close(queue)
			defer r.Close()
			s := blocks{in: r}
			for {
				var buf []byte
				select {
				case buf = <-free:
				default:
					buf = make([]byte, 0, size)
				}
				b, err := s.next(buf)
				if err == io.EOF {
					return
				}
				out := make(chan result, 1)
				if err != nil {
					out <- result{err: err}
				}
				select {
				case <-stop:
					return
				case queue <- out:
				}
				if err != nil {
					return
				}
				go func() {
					out <- result{made: read(Block{b})}
					if cap(b.data) == size {
						select {
						case free <- b.data[:0]:
						default:
						}
					}
				}()
			}
		}()
		defer func() {
			close(stop)
			for range queue { // until the reader has ended
			}
		}()
		for out := range queue {
			done := <-out
			if done.err != nil {
				yield(none, done.err)
				return
			}
			if !yield(done.made, nil) {
				return
			}
		}
	}
}
