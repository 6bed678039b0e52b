// Package cuda reaches an NVIDIA GPU: device, memory, kernels compiled from the
// sources embedded in the program, and matrix products by cuBLASLt. The driver
// is called through gorgonia.org/cu.
//
// It is built with the tag cuda (cgo, and the toolkit's headers). Nothing of
// CUDA is linked: libcuda, NVRTC and cuBLASLt are opened when they are first
// needed, so that the same program runs on a machine without a GPU and says what
// is missing when one is asked for. Without the tag Open says how to build.
//
// A Device is used from one goroutine at a time. Work is queued on one stream, in
// the order of the calls, and is not finished when a call returns; Download and
// Wait wait. Memory is plain device memory, never managed.
package cuda

// Ptr is an address in the device's memory; 0 is no memory.
type Ptr uintptr
