package tape

import (
	"errors"

	"searchloop/internal/retry"
)

// Fault is a failure as it is recorded: it is part of a run that a request was
// refused, or that it failed each time it was tried.
type Fault struct {
	Never bool   `json:"never,omitempty"` // it can never succeed; otherwise tries were used up
	Class string `json:"class"`
	Error string `json:"error,omitempty"`
}

// FaultOf is the record of f: nil for none, and for failures that end a job or
// come from its caller, which say nothing about the request.
func FaultOf(f *retry.Fault) *Fault {
	if f == nil || f.Verdict != retry.Never && f.Verdict != retry.Again {
		return nil
	}
	r := &Fault{Never: f.Verdict == retry.Never, Class: f.Class}
	if f.Err != nil {
		r.Error = f.Err.Error()
	}
	return r
}

// Retry is the failure again; nil for none.
func (r *Fault) Retry() *retry.Fault {
	if r == nil {
		return nil
	}
	f := &retry.Fault{Verdict: retry.Again, Class: r.Class}
	if r.Never {
		f.Verdict = retry.Never
	}
	if r.Error != "" {
		f.Err = errors.New(r.Error)
	}
	return f
}
