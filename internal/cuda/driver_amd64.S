//go:build cuda

/* One trampoline for every function of the driver that cu refers to: the program
 * then links, and starts, without libcuda. Until cuda_open the slots lead to
 * cuda_absent; cuInit succeeds, since cu calls it before main and ends the
 * program when it fails. */
#define F(n) .globl n ; .type n, @function ; n: jmp *cuda_slot_##n(%rip) ;
	.text
F(cuInit)
#include "symbols.h"
#undef F
#define F(n) .globl cuda_slot_##n ; .hidden cuda_slot_##n ; cuda_slot_##n: .quad cuda_absent ;
	.data
	.balign 8
	.globl cuda_slot_cuInit
	.hidden cuda_slot_cuInit
cuda_slot_cuInit: .quad cuda_later
#include "symbols.h"
	.section .note.GNU-stack,"",@progbits
