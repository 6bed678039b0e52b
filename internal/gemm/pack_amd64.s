//go:build amd64

#include "textflag.h"

// HALF loads 4 terms of 8 rows (0 and 4 side by side, and so on), transposes and
// stores them. off is the place of the 4 terms in the rows.
#define HALF(off) \
	VMOVUPS     off(AX), X0                 \
	VINSERTF128 $1, off(BX), Y0, Y0         \
	VMOVUPS     off(AX)(R8*1), X1           \
	VINSERTF128 $1, off(BX)(R8*1), Y1, Y1   \
	VMOVUPS     off(AX)(R8*2), X2           \
	VINSERTF128 $1, off(BX)(R8*2), Y2, Y2   \
	VMOVUPS     off(AX)(R9*1), X3           \
	VINSERTF128 $1, off(BX)(R9*1), Y3, Y3   \
	VUNPCKLPS   Y1, Y0, Y4                  \
	VUNPCKHPS   Y1, Y0, Y5                  \
	VUNPCKLPS   Y3, Y2, Y6                  \
	VUNPCKHPS   Y3, Y2, Y7                  \
	VUNPCKLPD   Y6, Y4, Y0                  \
	VUNPCKHPD   Y6, Y4, Y1                  \
	VUNPCKLPD   Y7, Y5, Y2                  \
	VUNPCKHPD   Y7, Y5, Y3                  \
	VMOVUPS     Y0, (DI)                    \
	VMOVUPS     Y1, (DI)(R10*1)             \
	VMOVUPS     Y2, (DI)(R10*2)             \
	VMOVUPS     Y3, (DI)(R11*1)             \
	LEAQ        (DI)(R10*4), DI

// func transposeAVX(dst, src unsafe.Pointer, step, stride uintptr, blocks, groups int)
TEXT ·transposeAVX(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), R12
	MOVQ src+8(FP), R13
	MOVQ step+16(FP), R10
	MOVQ stride+24(FP), R8
	MOVQ blocks+32(FP), R15
	MOVQ groups+40(FP), DX
	LEAQ (R8)(R8*2), R9
	LEAQ (R10)(R10*2), R11

group:
	MOVQ R12, DI
	MOVQ R13, AX
	LEAQ (AX)(R8*4), BX
	MOVQ R15, CX

block:
	HALF(0)
	HALF(16)
	ADDQ $32, AX
	ADDQ $32, BX
	DECQ CX
	JNZ  block
	ADDQ $32, R12
	LEAQ (R13)(R8*8), R13
	DECQ DX
	JNZ  group
	VZEROUPPER
	RET

// func copyRowsAVX(dst, src unsafe.Pointer, stride uintptr, k, bytes int)
TEXT ·copyRowsAVX(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ stride+16(FP), R8
	MOVQ k+24(FP), CX
	MOVQ bytes+32(FP), DX
	CMPQ DX, $64
	JEQ  two
	JGT  four

one:
	VMOVUPS (SI), Y0
	VMOVUPS Y0, (DI)
	ADDQ    R8, SI
	ADDQ    $32, DI
	DECQ    CX
	JNZ     one
	VZEROUPPER
	RET

two:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	ADDQ    R8, SI
	ADDQ    $64, DI
	DECQ    CX
	JNZ     two
	VZEROUPPER
	RET

four:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMOVUPS 64(SI), Y2
	VMOVUPS 96(SI), Y3
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, 64(DI)
	VMOVUPS Y3, 96(DI)
	ADDQ    R8, SI
	ADDQ    $128, DI
	DECQ    CX
	JNZ     four
	VZEROUPPER
	RET
