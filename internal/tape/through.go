package tape

import (
	"errors"

	"searchloop/internal/retry"
)

// outcome is a response as Through records it.
type outcome[T any] struct {
	Reply *T     `json:"reply,omitempty"`
	Fault *Fault `json:"fault,omitempty"`
}

// Through answers a request from the tape, or else by ask, and records what that
// gave. A failure is recorded when its error has a *retry.Fault that is part of the
// run (FaultOf); failed makes it an error again. One whose tries were used up is
// asked for again unless the tape replays.
func Through[T any](t *Tape, kind string, request any, failed func(*retry.Fault) error, ask func() (T, error)) (reply T, err error) {
	if t == nil {
		return ask()
	}
	var o outcome[T]
	on, err := t.Get(kind, request, &o)
	switch {
	case err != nil:
		return reply, err
	case on && o.Reply != nil:
		return *o.Reply, nil
	case on && o.Fault != nil && (o.Fault.Never || t.replay):
		return reply, failed(o.Fault.Retry())
	}
	reply, err = ask()
	if err == nil {
		return reply, t.Put(kind, request, outcome[T]{Reply: &reply})
	}
	var f *retry.Fault
	if errors.As(err, &f) {
		if said := FaultOf(f); said != nil {
			if err := t.Put(kind, request, outcome[T]{Fault: said}); err != nil {
				return reply, err
			}
		}
	}
	return reply, err
}
