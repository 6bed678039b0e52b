package main

import (
	"bytes"
	"fmt"
)

// The tile of the sweep: its sums fill twelve registers, and eight loads serve
// twelve multiply-adds.
const (
	vecs         = 2 // of eight rows
	panelQueries = 6
	unroll       = 2 // terms
)

// sweep emits the AVX2 kernel for packed rows and queries (packed.go): one panel of
// rows by all panels of queries, for one part, four of the 16 lanes, of every sum.
// Registers: DI out, SI from query to query of out, AX rows, CX queries, DX blocks
// left, BX panels left, R8 temp, R9 floor, R10 above, R11 sums of lanes,
// R14 what to prefetch, R15 its step.
func sweep(b *bytes.Buffer) {
	const sums = vecs * panelQueries
	p := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	slot := func(s, n int) string { return fmt.Sprintf("%d(R11)", 32*(sums*s+n)) }
	p("\n// func sweepAVX2(t *sweep)\nTEXT ·sweepAVX2(SB), NOSPLIT, $0-8")
	p("\tMOVQ t+0(FP), R13")
	for i, r := range []string{"DI", "R8", "SI", "", "CX", "", "BX", "", "R9", "R10", "R14", "R15", "R11"} {
		if r != "" {
			p("\tMOVQ %d(R13), %s", 8*i, r)
		}
	}
	p("\npanel:\n\tMOVQ 24(R13), AX\n\tPREFETCHT1 (R14)\n\tPREFETCHT1 64(R14)\n\tPREFETCHT1 128(R14)\n\tADDQ R15, R14")
	for lane := range 4 {
		for n := range sums {
			p("\tVXORPS Y%d, Y%d, Y%d", n, n, n)
		}
		p("\tMOVQ 40(R13), DX\n\tSUBQ $%d, DX\n\tJLT odd%d\n", unroll, lane)
		term := func(u int) {
			for v := range vecs {
				p("\tVMOVUPS %d(AX), Y%d", 32*(u*vecs+v), sums+v)
			}
			free := 16 - sums - vecs
			for q := range panelQueries {
				y := sums + vecs + q%free
				p("\tVBROADCASTSS %d(CX), Y%d", 4*(u*panelQueries+q), y)
				for v := range vecs {
					p("\tVFMADD231PS Y%d, Y%d, Y%d", y, sums+v, q*vecs+v)
				}
			}
		}
		p("\nlane%d:", lane)
		for u := range unroll {
			term(u)
		}
		p("\tADDQ $%d, AX\n\tADDQ $%d, CX\n\tSUBQ $%d, DX\n\tJGE lane%d", 32*vecs*unroll, 4*panelQueries*unroll, unroll, lane)
		p("\nodd%d:\n\tADDQ $%d, DX\n\tJEQ done%d", lane, unroll, lane)
		p("\nsingle%d:", lane)
		term(0)
		p("\tADDQ $%d, AX\n\tADDQ $%d, CX\n\tDECQ DX\n\tJNZ single%d", 32*vecs, 4*panelQueries, lane)
		p("\ndone%d:", lane)
		for n := range sums {
			switch lane {
			case 0, 2:
				p("\tVMOVUPS Y%d, %s", n, slot(lane/2, n))
			case 1:
				p("\tVADDPS %s, Y%d, Y%d\n\tVMOVUPS Y%d, %s", slot(0, n), n, n, n, slot(0, n))
			case 3:
				p("\tVADDPS %s, Y%d, Y%d\n\tVADDPS %s, Y%d, Y%d", slot(1, n), n, n, slot(0, n), n, n)
			}
		}
	}
	at := func(n int) string { return fmt.Sprintf("%d(R12)", 32*(n%vecs)) }
	tmp := func(n int) string { return fmt.Sprintf("%d(R8)", 32*n) }
	each := func(do func(n int)) {
		p("\tMOVQ DI, R12")
		for n := range sums {
			if n > 0 && n%vecs == 0 {
				p("\tADDQ SI, R12")
			}
			do(n)
		}
	}
	p("\tMOVQ 56(R13), DX\n\tCMPQ DX, $1\n\tJLT part0\n\tJEQ part1\n\tCMPQ DX, $2\n\tJEQ part2\n")
	for n := range sums {
		p("\tVADDPS %s, Y%d, Y%d", tmp(n), n, n)
	}
	// The last part: the sums are whole, and a query whose sums are all below its
	// floor need not be looked at.
	each(func(n int) {
		p("\tVADDPS %s, Y%d, Y%d\n\tVMOVUPS Y%d, %s", at(n), n, n, n, at(n))
		if n%vecs == vecs-1 {
			q := n / vecs
			p("\tVBROADCASTSS %d(R9), Y15", 4*q)
			for v := range vecs {
				m := n - v
				p("\tVCMPPS $5, Y15, Y%d, Y%d", m, m) // not less than, or not a number
				if v > 0 {
					p("\tVORPS Y%d, Y%d, Y%d", m, n, n)
				}
			}
			p("\tVMOVMSKPS Y%d, DX\n\tORB DX, %d(R10)", n, q)
		}
	})
	p("\tADDQ $%d, R9\n\tADDQ $%d, R10\n\tJMP next", 4*panelQueries, panelQueries)
	p("\npart0:")
	each(func(n int) { p("\tVMOVUPS Y%d, %s", n, at(n)) })
	p("\tJMP next\n\npart1:")
	each(func(n int) { p("\tVADDPS %s, Y%d, Y%d\n\tVMOVUPS Y%d, %s", at(n), n, n, n, at(n)) })
	p("\tJMP next\n\npart2:")
	for n := range sums {
		p("\tVMOVUPS Y%d, %s", n, tmp(n))
	}
	p("\nnext:")
	for range panelQueries {
		p("\tADDQ SI, DI")
	}
	p("\tADDQ $%d, R8\n\tDECQ BX\n\tJNZ panel\n\tVZEROUPPER\n\tRET", 32*sums)
}

// turn emits the copying of eight rows into their panel, for one kind of storage.
// Registers: SI rows 0-3, BX rows 4-7, R13 and R12 one and three rows, R8 to R11
// the four parts, CX and DI one and three lanes, AX and R14 the next rows, DX blocks left.
func turn(b *bytes.Buffer, k kind) {
	p := func(format string, args ...any) { fmt.Fprintf(b, format+"\n", args...) }
	p("\n// func turn%sAVX2(dst *float32, src *byte, stride, blocks, part, lane uintptr)\nTEXT ·turn%sAVX2(SB), NOSPLIT, $0-48", k.name, k.name)
	p("\tMOVQ dst+0(FP), R8\n\tMOVQ src+8(FP), SI\n\tMOVQ stride+16(FP), R13\n\tMOVQ blocks+24(FP), DX\n\tMOVQ part+32(FP), AX\n\tMOVQ lane+40(FP), CX")
	p("\tLEAQ (R8)(AX*1), R9\n\tLEAQ (R8)(AX*2), R10\n\tLEAQ (R9)(AX*2), R11\n\tLEAQ (R13)(R13*2), R12\n\tLEAQ (SI)(R13*4), BX\n\tLEAQ (CX)(CX*2), DI\n\tLEAQ (SI)(R13*8), AX\n\tLEAQ (BX)(R13*8), R14")
	p("\nloop:")
	row := func(base string, r, at int) string {
		return fmt.Sprintf("%d(%s)%s", at, base, []string{"", "(R13*1)", "(R13*2)", "(R12*1)"}[r])
	}
	load := func(from string, x int) {
		switch k.bytes {
		case 4:
			p("\tVMOVUPS %s, X%d", from, x)
		case 2:
			p("\tVCVTPH2PS %s, X%d", from, x)
		case 1:
			p("\tVPMOVZXBD %s, X%d\n\tVCVTDQ2PS X%d, X%d", from, x, x, x)
		}
	}
	for quad := range 4 { // columns 4quad to 4quad+3
		for r := range 4 {
			load(row("SI", r, 4*quad*k.bytes), r)
			if k.bytes == 4 {
				p("\tVINSERTF128 $1, %s, Y%d, Y%d", row("BX", r, 4*quad*k.bytes), r, r)
			} else {
				load(row("BX", r, 4*quad*k.bytes), 4+r)
				p("\tVINSERTF128 $1, X%d, Y%d, Y%d", 4+r, r, r)
			}
		}
		p("\tVUNPCKLPS Y1, Y0, Y4\n\tVUNPCKHPS Y1, Y0, Y5\n\tVUNPCKLPS Y3, Y2, Y6\n\tVUNPCKHPS Y3, Y2, Y7")
		p("\tVUNPCKLPD Y6, Y4, Y0\n\tVUNPCKHPD Y6, Y4, Y1\n\tVUNPCKLPD Y7, Y5, Y2\n\tVUNPCKHPD Y7, Y5, Y3")
		for c := range 4 {
			lane := 4*quad + c
			// Of a part, lane i is followed by lanes i+8, i+1 and i+9.
			at := []string{"", "(CX*1)", "(CX*2)", "(DI*1)"}[lane%2*2+lane/8]
			p("\tVMOVUPS Y%d, (R%d)%s", c, 8+lane%8/2, at)
		}
	}
	// The next eight rows are on their way meanwhile; few queries leave no time for that.
	for r := range 4 {
		p("\tPREFETCHT1 %s\n\tPREFETCHT1 %s", row("AX", r, 0), row("R14", r, 0))
	}
	for _, r := range []string{"SI", "BX", "AX", "R14"} {
		p("\tADDQ $%d, %s", 16*k.bytes, r)
	}
	for _, r := range []string{"R8", "R9", "R10", "R11"} {
		p("\tADDQ $%d, %s", 32*vecs, r)
	}
	p("\tDECQ DX\n\tJNZ loop\n\tVZEROUPPER\n\tRET")
}
