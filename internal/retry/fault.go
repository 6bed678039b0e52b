// Package retry is the one owner of retries against a service. A call goes in
// with the failures classified by its caller; what comes out is success, a
// failure of this call alone, or the verdict that the service is gone.
//
// One Line stands for one service and is shared by all of its callers: it holds
// the breaker and the retry budget. It knows no protocol and reads no responses.
package retry

import (
	"fmt"
	"time"
)

// Verdict says what a failure means for the call and for the job.
type Verdict uint8

const (
	Again  Verdict = iota // the service failed: try again, and count it against the service
	Busy                  // the service asks for patience (429): try again, it is alive
	Never                 // this call can never succeed; the service is well
	Stop                  // no call can succeed (wrong key, no such model, service gone): end the job
	Caller                // the caller's context ended
)

// Fault is one classified failure.
type Fault struct {
	Verdict  Verdict
	Class    string        // short and stable: "timeout", "http 503", "html"; written into records
	Down     bool          // the service could not be reached at all, as opposed to answering wrongly
	After    time.Duration // what Retry-After asked for
	Err      error         // cause; holds no secret
	Attempts int           // calls made, set by Line.Do
}

func (f *Fault) Error() string {
	if f.Err == nil {
		return f.Class
	}
	return fmt.Sprintf("%s: %v", f.Class, f.Err)
}

func (f *Fault) Unwrap() error { return f.Err }
