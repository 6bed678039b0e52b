package dots

import "golang.org/x/sys/cpu"

// native lists the kernels that this CPU and operating system can run. Every CPU
// with AVX2 converts half floats.
func native() []kernel {
	var all []kernel
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		all = append(all, kernel{name: "AVX2", rows: 2, queries: 3, tall: 4, run: [...]func(*tile){dotsF32AVX2, dotsF16AVX2, dotsU8AVX2, dotsL2F32AVX2, dotsL2F16AVX2}, along: [5]func(*tile){alongF32AVX2, alongF16AVX2, nil, alongL2F32AVX2, alongL2F16AVX2}, sweep: sweepAVX2, turn: [3]func(dst *float32, src *byte, stride, blocks, part, lane uintptr){turnF32AVX2, turnF16AVX2, turnU8AVX2}})
		if cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL {
			all = append(all, kernel{name: "AVX-512", rows: 4, queries: 6, tall: 4, run: [...]func(*tile){dotsF32AVX512, dotsF16AVX512, dotsU8AVX512, dotsL2F32AVX512, dotsL2F16AVX512}})
		}
	}
	return all
}

//go:noescape
func dotsF32AVX2(t *tile)

//go:noescape
func dotsF16AVX2(t *tile)

//go:noescape
func dotsU8AVX2(t *tile)

//go:noescape
func dotsL2F32AVX2(t *tile)

//go:noescape
func dotsL2F16AVX2(t *tile)

//go:noescape
func dotsF32AVX512(t *tile)

//go:noescape
func dotsF16AVX512(t *tile)

//go:noescape
func dotsU8AVX512(t *tile)

//go:noescape
func dotsL2F32AVX512(t *tile)

//go:noescape
func dotsL2F16AVX512(t *tile)

//go:noescape
func alongF32AVX2(t *tile)

//go:noescape
func alongF16AVX2(t *tile)

//go:noescape
func alongL2F32AVX2(t *tile)

//go:noescape
func alongL2F16AVX2(t *tile)

//go:noescape
func sweepAVX2(t *sweep)

//go:noescape
func turnF32AVX2(dst *float32, src *byte, stride, blocks, part, lane uintptr)

//go:noescape
func turnF16AVX2(dst *float32, src *byte, stride, blocks, part, lane uintptr)

//go:noescape
func turnU8AVX2(dst *float32, src *byte, stride, blocks, part, lane uintptr)
