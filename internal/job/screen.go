package job

import (
	"io"
	"os"
	"sync"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"
)

// screen is the log's way to a terminal that may show a progress bar: it takes
// the bar off, writes the line, and draws the bar again.
type screen struct {
	mu  sync.Mutex
	w   io.Writer
	bar *progressbar.ProgressBar
}

func newScreen(w io.Writer) *screen { return &screen{w: w} }

// terminal says whether people watch.
func (s *screen) terminal() bool {
	f, ok := s.w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar == nil {
		return s.w.Write(p)
	}
	s.bar.Clear()
	n, err := s.w.Write(p)
	s.bar.RenderBlank()
	return n, err
}

// show makes bar the one that is drawn, unless there is one already.
func (s *screen) show(bar *progressbar.ProgressBar) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		return false
	}
	s.bar = bar
	return true
}

// hide takes bar off.
func (s *screen) hide(bar *progressbar.ProgressBar) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar == bar && bar != nil {
		bar.Clear()
		s.bar = nil
	}
}

func (s *screen) close() {
	s.mu.Lock()
	bar := s.bar
	s.mu.Unlock()
	s.hide(bar)
}
