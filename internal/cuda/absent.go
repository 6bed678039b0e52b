//go:build !cuda

package cuda

import "searchloop/internal/fail"

// Device is a GPU; there is none in a program built without the tag cuda.
type Device struct {
	Name         string
	Major, Minor int
}

// Open fails: this program was built without CUDA.
func Open(int) (*Device, error) {
	return nil, fail.WithHint(fail.New(fail.Usage, "open GPU", "", "this program was built without CUDA"),
		"build on a machine with the CUDA toolkit (CUDA_HOME=/usr/local/cuda make build), or use the CPU")
}

// Memory of no device is none.
func (d *Device) Memory() (free, total int64) { return 0, 0 }
