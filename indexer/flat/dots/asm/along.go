package main

import (
	"bytes"
	"fmt"
)

// along emits the AVX2 kernel of a single query: rows one after another, in the
// order in which they lie in memory. Side by side, as tiles take them, the rows are
// as many streams, none of which is long enough for a CPU to fetch ahead of it. Half
// floats take too many instructions a byte to have enough lines in flight without
// asking for them. Bytes take even more: they are better off as tiles.
// Registers: DI out, AX row, R8 from row to row, R12 rows left, R10 where in the
// row, SI query, CX where in the query, R9 blocks of 16, DX blocks left.
func along(b *bytes.Buffer, k kind) {
	const unroll = 4 // blocks
	p := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	p("\n// func along%sAVX2(t *tile)\nTEXT ·along%sAVX2(SB), NOSPLIT, $0-8", k.name, k.name)
	p("\tMOVQ t+0(FP), R13")
	for i, r := range []string{"DI", "", "AX", "R8", "SI", "", "R9", "R12"} {
		if r != "" {
			p("\tMOVQ %d(R13), %s", 8*i, r)
		}
	}
	blocks := func(n int) {
		for line := 0; line < 32*n && k.bytes == 2; line += 64 {
			p("\tPREFETCHT1 %d(R10)", 1024+line)
		}
		for h := range 2 * n { // vectors of 8
			row, query := fmt.Sprintf("%d(R10)", 8*h*k.bytes), fmt.Sprintf("%d(CX)", 32*h)
			x, sum := 2+h%8, h%2
			other := query
			if k.bytes == 4 {
				p("\tVMOVUPS %s, Y%d", query, x)
				other = row
			} else {
				p("\tVCVTPH2PS %s, Y%d", row, x)
			}
			if k.l2 {
				p("\tVSUBPS %s, Y%d, Y%d\n\tVFMADD231PS Y%d, Y%d, Y%d", other, x, x, x, x, sum)
			} else {
				p("\tVFMADD231PS %s, Y%d, Y%d", other, x, sum)
			}
		}
		p("\tADDQ $%d, R10\n\tADDQ $%d, CX", 16*k.bytes*n, 64*n)
	}
	p("\nrow:\n\tVXORPS Y0, Y0, Y0\n\tVXORPS Y1, Y1, Y1\n\tMOVQ AX, R10\n\tMOVQ SI, CX\n\tMOVQ R9, DX\n\tSUBQ $%d, DX\n\tJLT few\n\nloop:", unroll)
	blocks(unroll)
	p("\tSUBQ $%d, DX\n\tJGE loop\n\nfew:\n\tADDQ $%d, DX\n\tJEQ done\n\nsingle:", unroll, unroll)
	blocks(1)
	p("\tDECQ DX\n\tJNZ single\n\ndone:")
	p("\tVADDPS Y1, Y0, Y0\n\tVHADDPS Y0, Y0, Y0\n\tVHADDPS Y0, Y0, Y0\n\tVEXTRACTF128 $1, Y0, X1\n\tVADDSS X1, X0, X0\n\tVMOVSS X0, (DI)")
	p("\tADDQ R8, AX\n\tADDQ $4, DI\n\tDECQ R12\n\tJNZ row\n\tVZEROUPPER\n\tRET")
}
