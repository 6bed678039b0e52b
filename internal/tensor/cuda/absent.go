//go:build !cuda

// Package cuda is the tensor.Backend of an NVIDIA GPU. This program is built
// without it: New says what to do.
package cuda

import (
	"searchloop/internal/cuda"
	"searchloop/internal/tensor"
)

// Backend computes on one device; there is none.
type Backend struct{ backend }

type backend interface {
	tensor.Trainer
	tensor.Encoding
}

// New fails.
func New(ordinal int) (*Backend, error) {
	_, err := cuda.Open(ordinal)
	return nil, err
}

// Device is nil.
func (b *Backend) Device() *cuda.Device { return nil }
