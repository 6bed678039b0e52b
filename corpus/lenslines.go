package corpus

import (
	"io"
	"sync"

	"searchloop/internal/fail"
)

// linePool keeps the memory of lines that were written.
var linePool = sync.Pool{New: func() any { return new([]byte) }}

// gatherBytes is how much is written at once.
const gatherBytes = 128 << 10

// lineWriter writes lines of the published form in a goroutine of its own: digest
// and disk take as long as everything else that is done with them.
type lineWriter struct {
	now    []*[]byte // being gathered
	bytes  int       // of them
	ahead  chan []*[]byte
	done   chan error
	broken chan struct{} // closed when writing failed
	ended  bool
	err    error
}

func newLineWriter(w io.Writer) *lineWriter {
	l := &lineWriter{ahead: make(chan []*[]byte, 4), done: make(chan error, 1), broken: make(chan struct{})}
	go func() {
		var err error
		for lines := range l.ahead {
			for _, line := range lines {
				if err == nil {
					if _, err = w.Write(*line); err != nil {
						close(l.broken)
					}
				}
				linePool.Put(line)
			}
		}
		l.done <- fail.Wrap(fail.Disk, "write", LensPublished, err)
	}()
	return l
}

// write takes lines of linePool, with their ends. An error is one of writing earlier
// lines.
func (l *lineWriter) write(lines *[]byte) error {
	l.now = append(l.now, lines)
	if l.bytes += len(*lines); l.bytes < gatherBytes {
		return nil
	}
	return l.send()
}

func (l *lineWriter) send() error {
	select {
	case <-l.broken:
		return l.end()
	case l.ahead <- l.now:
	}
	l.now, l.bytes = nil, 0
	return nil
}

// flush sends what was not sent yet; end must follow.
func (l *lineWriter) flush() error { return l.send() }

// end waits until what was sent is written and gives the first error. Further
// calls do nothing.
func (l *lineWriter) end() error {
	if !l.ended {
		l.ended = true
		close(l.ahead)
		l.err = <-l.done
	}
	return l.err
}
