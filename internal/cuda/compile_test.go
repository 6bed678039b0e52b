//go:build cuda

package cuda

import (
	"bytes"
	"fmt"
	"os"
	"testing"
)

// Every kernel compiles for Ampere and for Hopper; this needs NVRTC, not a GPU.
// With CUDA_CHECK set its absence is a failure.
func TestKernelsCompile(t *testing.T) {
	if _, err := openCompiler(); err != nil {
		if os.Getenv("CUDA_CHECK") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, module := range Sources() {
		for _, capability := range []int{80, 90} {
			t.Run(fmt.Sprintf("%s sm_%d", module, capability), func(t *testing.T) {
				t.Parallel()
				cubin, err := Compile(module, capability)
				if err != nil {
					t.Error(err)
				} else if !bytes.HasPrefix(cubin, []byte("\x7fELF")) {
					t.Errorf("%s for sm_%d is no cubin", module, capability)
				}
			})
		}
	}
}
