// Package fail holds the one error type of searchloop. A *fail.Error says what
// was being done (Op), to which file and row or sample, what class of failure
// it is (Kind) and what a person can do about it (Hint). The Kind alone decides
// whether a call is retried and with which code the process exits.
//
// It does no I/O and logs nothing: an error is returned or logged, never both.
package fail

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Kind classifies a failure. Kinds are append-only: programs decide on them.
type Kind uint8

const (
	Bug         Kind = iota // our own mistake; exit 1
	Usage                   // wrong flags or configuration; exit 2
	Bound                   // complete, but a stated bound was broken; exit 3
	BadInput                // a file or record we were given is wrong; exit 65
	Service                 // a server is gone or refuses us; resumable; exit 69
	Disk                    // the disk is full or fails; exit 74
	Interrupted             // stopped by a signal; run again; exit 75
	Killed                  // stopped by a second signal; exit 130
)

var kindNames = [...]string{"bug", "usage", "bound", "bad input", "service", "disk", "interrupted", "killed"}
var kindCodes = [...]int{1, 2, 3, 65, 69, 74, 75, 130}

func (k Kind) String() string { return kindNames[k] }

// ExitCode is the process exit code of the kind.
func (k Kind) ExitCode() int { return kindCodes[k] }

// OfExit is the kind that a process's exit code stands for; Bug and false for a code
// that none of ours ends with.
func OfExit(code int) (Kind, bool) {
	i := slices.Index(kindCodes[:], code)
	return Kind(max(0, i)), i >= 0
}

// Error is a failure with its place and its remedy. The zero value of any field
// but Kind means "not known". Row is the 1-based row, line or record number.
type Error struct {
	Kind   Kind
	Op     string // what was being done: "read questions"
	Path   string // file, folder or URL (without secrets)
	Row    int64  // 1-based row or line; 0 when there is none
	Sample string // id of the question, trajectory or request
	Hint   string // what the user can do
	Err    error  // cause
}

// Error reads from the outside to the inside: op, path, row, sample, cause, remedy.
// What the cause says itself is not said twice.
func (e *Error) Error() string {
	var b strings.Builder
	part := func(s string) {
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(s)
	}
	inner, _ := e.Err.(*Error)
	if e.Op != "" && (inner == nil || inner.Op != e.Op) {
		part(e.Op)
	}
	if e.Path != "" && (inner == nil || inner.Path != e.Path && !strings.HasPrefix(inner.Path, strings.TrimSuffix(e.Path, "/")+"/")) {
		part(e.Path)
	}
	if e.Row > 0 {
		part(fmt.Sprintf("row %d", e.Row))
	}
	if e.Sample != "" {
		part("sample " + e.Sample)
	}
	if e.Err != nil {
		part(e.cause())
	} else {
		part(e.Kind.String())
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// cause is the text of Err, without the file that the message has named already,
// itself or as a temporary file beside it.
func (e *Error) cause() string {
	if p, ok := e.Err.(*fs.PathError); ok {
		dir, base := filepath.Split(p.Path)
		if p.Path == e.Path || strings.HasPrefix(base, ".") && strings.Contains(base, ".tmp-") && dir == filepath.Dir(e.Path)+"/" {
			return p.Err.Error()
		}
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// New returns an *Error of the given kind whose cause is the formatted message.
func New(k Kind, op, path string, format string, args ...any) *Error {
	return &Error{Kind: k, Op: op, Path: path, Err: fmt.Errorf(format, args...)}
}

// Wrap gives err a kind, an operation and a path. A nil err gives nil. An
// existing *Error keeps its own kind, because the innermost place knows best.
// Disk errors (ENOSPC, EDQUOT, EIO, EROFS) and cancelled contexts are recognised
// whatever k says.
func Wrap(k Kind, op, path string, err error) error {
	if err == nil {
		return nil
	}
	var inner *Error
	switch {
	case errors.As(err, &inner):
		k = inner.Kind
	case isDisk(err):
		k = Disk
	case errors.Is(err, context.Canceled):
		k = Interrupted
	}
	return &Error{Kind: k, Op: op, Path: path, Err: err}
}

// WithHint attaches a remedy to err when it is an *Error without one.
func WithHint(err error, hint string) error {
	var e *Error
	if errors.As(err, &e) && e.Hint == "" {
		e.Hint = hint
	}
	return err
}

// KindOf returns the kind of the first *Error in err's chain; disk errors and
// cancelled contexts are recognised without one; anything else is a Bug.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case isDisk(err):
		return Disk
	case errors.Is(err, context.Canceled):
		return Interrupted
	}
	return Bug
}

// ExitCode is the process exit code for err; 0 for nil.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	return KindOf(err).ExitCode()
}

func isDisk(err error) bool {
	for _, e := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
