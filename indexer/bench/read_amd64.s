#include "textflag.h"

#define LINES \
	VMOVUPS (AX), Y0; \
	VMOVUPS 32(AX), Y1; \
	VMOVUPS 64(AX), Y2; \
	VMOVUPS 96(AX), Y3; \
	VMOVUPS 128(AX), Y4; \
	VMOVUPS 160(AX), Y5; \
	VMOVUPS 192(AX), Y6; \
	VMOVUPS 224(AX), Y7; \
	ADDQ $256, AX

// func readLines(p unsafe.Pointer, n, ahead uintptr)
// Loads n bytes, a multiple of 256, and does nothing with them.
TEXT ·readLines(SB), NOSPLIT, $0-24
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	MOVQ ahead+16(FP), DX
	ADDQ AX, CX
	TESTQ DX, DX
	JEQ  plain

fetching:
	PREFETCHT1 (AX)(DX*1)
	PREFETCHT1 64(AX)(DX*1)
	PREFETCHT1 128(AX)(DX*1)
	PREFETCHT1 192(AX)(DX*1)
	LINES
	CMPQ AX, CX
	JLT  fetching
	VZEROUPPER
	RET

plain:
	LINES
	CMPQ AX, CX
	JLT  plain
	VZEROUPPER
	RET
