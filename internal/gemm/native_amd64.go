package gemm

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// native lists the kernels that this CPU and operating system can run.
func native() []kernel {
	var all []kernel
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		all = append(all, kernel{name: "AVX2", rows: 6, width: 8, run: tileAVX2, transpose: transposeAVX, copyRows: copyRowsAVX})
		eight = &kernel{rows: 6, width: 8, run: tileAVX2}
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
			all = append(all, kernel{name: "AVX-512", rows: 8, width: 16, run: tileAVX512, transpose: transposeAVX, copyRows: copyRowsAVX})
		}
	}
	return all
}

//go:noescape
func tileAVX2(t *tile)

//go:noescape
func tileAVX512(t *tile)

//go:noescape
func transposeAVX(dst, src unsafe.Pointer, step, stride uintptr, blocks, groups int)

//go:noescape
func copyRowsAVX(dst, src unsafe.Pointer, stride uintptr, k, bytes int)
