//go:build !cuda

package gpu

import (
	"searchloop/indexer/flat"
	"searchloop/internal/cuda"
)

// Set searches a flat.Set on GPUs; there are none in a program built without the
// tag cuda.
type Set struct{ *flat.Set }

// Open returns nil where the index is to be searched on the CPU, and fails where
// a GPU was asked for by name.
func Open(_ *flat.Set, o Options) (*Set, error) {
	_, auto, none, err := ordinals(o.Device)
	if err != nil || none || auto {
		return nil, err
	}
	_, err = cuda.Open(0)
	return nil, err
}

// Close does nothing.
func (s *Set) Close() error { return nil }
