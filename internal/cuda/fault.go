package cuda

// Fault is what a failed operation of a device panics with: a kernel or a copy
// that fails leaves nothing to go on with, and the callers are layers without
// errors.
type Fault struct{ Err error }

// Guard, deferred, turns a Fault into an error.
func Guard(err *error) {
	switch p := recover().(type) {
	case nil:
	case *Fault:
		*err = p.Err
	default:
		panic(p)
	}
}
