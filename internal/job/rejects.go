package job

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/secret"
)

// Rejected is one line of a rejects file.
type Rejected struct {
	Path   string `json:"path"`
	Row    int64  `json:"row,omitempty"`
	Sample string `json:"sample,omitempty"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
}

const (
	reasonBytes = 2000  // of a reason kept
	runLength   = 20000 // rejects held in memory; longer lists go through sorted runs on disk
)

// rejects collects rejected rows in any order and writes them sorted, in bounded
// memory.
type rejects struct {
	count  int64
	byKind map[string]int64
	buf    []Rejected
	spool  *os.File // sorted runs, one after the other
	runs   []int64  // where each ends
	err    error
}

func newRejects() *rejects { return &rejects{byKind: map[string]int64{}} }

func (r *rejects) add(path string, row int64, sample string, reason error) {
	x := Rejected{Path: path, Row: row, Sample: sample, Kind: fail.BadInput.String()}
	var e *fail.Error
	if errors.As(reason, &e) {
		x.Kind = e.Kind.String()
	}
	if reason != nil {
		x.Reason = secret.Scrub(reason.Error())
	}
	if len(x.Reason) > reasonBytes {
		x.Reason = strings.ToValidUTF8(x.Reason[:reasonBytes], "") + "…"
	}
	r.count++
	r.byKind[x.Kind]++
	if r.buf = append(r.buf, x); len(r.buf) >= runLength {
		r.spill()
	}
}

func (a Rejected) less(b Rejected) bool {
	if a.Path != b.Path {
		return a.Path < b.Path
	}
	if a.Row != b.Row {
		return a.Row < b.Row
	}
	if a.Sample != b.Sample {
		return a.Sample < b.Sample
	}
	return a.Reason < b.Reason
}

func (r *rejects) sort() { sort.Slice(r.buf, func(i, j int) bool { return r.buf[i].less(r.buf[j]) }) }

// spill writes the buffer as a sorted run to a nameless temporary file.
func (r *rejects) spill() {
	if r.err != nil {
		r.buf = r.buf[:0]
		return
	}
	if r.spool == nil {
		if r.spool, r.err = os.CreateTemp("", "searchloop-rejects-*"); r.err != nil {
			return
		}
		os.Remove(r.spool.Name())
	}
	r.sort()
	w := bufio.NewWriter(r.spool)
	e := json.NewEncoder(w)
	for _, x := range r.buf {
		if err := e.Encode(x); err != nil && r.err == nil {
			r.err = err
		}
	}
	if err := w.Flush(); err != nil && r.err == nil {
		r.err = err
	}
	end, err := r.spool.Seek(0, io.SeekCurrent)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.runs = append(r.runs, end)
	r.buf = r.buf[:0]
}

// writeTo writes all rejects in order.
func (r *rejects) writeTo(w io.Writer) error {
	if r.err != nil {
		return r.err
	}
	r.sort()
	var sources []*source
	from := int64(0)
	for _, end := range r.runs {
		sources = append(sources, &source{d: json.NewDecoder(bufio.NewReader(io.NewSectionReader(r.spool, from, end-from)))})
		from = end
	}
	sources = append(sources, &source{list: r.buf})
	for _, s := range sources {
		if err := s.next(); err != nil {
			return err
		}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for {
		var least *source
		for _, s := range sources {
			if !s.over && (least == nil || s.head.less(least.head)) {
				least = s
			}
		}
		if least == nil {
			return nil
		}
		if err := e.Encode(least.head); err != nil {
			return err
		}
		if err := least.next(); err != nil {
			return err
		}
	}
}

// source is one sorted run, on disk or in memory.
type source struct {
	d    *json.Decoder
	list []Rejected
	head Rejected
	over bool
}

func (s *source) next() error {
	if s.d != nil {
		s.head = Rejected{}
		err := s.d.Decode(&s.head)
		if errors.Is(err, io.EOF) {
			s.over = true
			return nil
		}
		return err
	}
	if len(s.list) == 0 {
		s.over = true
		return nil
	}
	s.head, s.list = s.list[0], s.list[1:]
	return nil
}

// kinds is "3 bad input, 1 service".
func (r *rejects) kinds() string {
	var list []string
	for k, n := range r.byKind {
		list = append(list, strconv.FormatInt(n, 10)+" "+k)
	}
	sort.Strings(list)
	return strings.Join(list, ", ")
}

func (r *rejects) close() {
	if r.spool != nil {
		r.spool.Close()
	}
}
