//go:build cuda

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "driver.h"
#include "blas.h"

/* The part of cuBLASLt's interface used here, so that its headers are not needed:
 * cublasLt.h and library_types.h of CUDA 12 and 13. */
enum { R_32F = 0, R_16BF = 14, R_8F_E4M3 = 28, COMPUTE_32F = 68, OP_N = 0, OP_T = 1 };
enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8, DESC_SCALE_A = 17, DESC_SCALE_B = 18, DESC_SCALE_D = 20, DESC_FAST_SUM = 25, DESC_BIAS_TYPE = 26 };
enum { PREF_WORKSPACE = 1, PREF_ALIGN_A = 5, EPILOGUE_RELU = 2, EPILOGUE_BIAS = 4, EPILOGUE_GELU = 32 };
typedef struct { uint64_t data[8]; } algo_t;
typedef struct { algo_t algo; size_t workspace; int state; float waves; int reserved[4]; } heuristic_t;

static struct {
	int (*create)(void **);
	int (*desc_create)(void **, int, int);
	int (*desc_set)(void *, int, const void *, size_t);
	int (*layout_create)(void **, int, uint64_t, uint64_t, int64_t);
	int (*pref_create)(void **);
	int (*pref_destroy)(void *);
	int (*pref_set)(void *, int, const void *, size_t);
	int (*heuristic)(void *, void *, void *, void *, void *, void *, void *, int, heuristic_t *, int *);
	int (*matmul)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *,
		void *, void *, const algo_t *, void *, size_t, void *);
} lt;

struct lt_plan {
	void *desc, *a, *b, *c, *d; /* c is what is added: bfloat16 where d is e4m3 */
	algo_t algo;
	float beta;
	int bias, scaled, scaled_out;
};

int lt_open(const char *const *names, char *why, size_t size) {
	void *lib = cuda_library(names, why, size);
	if (!lib) return -1;
	struct { const char *name; void **to; } f[] = {
		{"cublasLtCreate", (void **)&lt.create}, {"cublasLtMatmulDescCreate", (void **)&lt.desc_create},
		{"cublasLtMatmulDescSetAttribute", (void **)&lt.desc_set}, {"cublasLtMatrixLayoutCreate", (void **)&lt.layout_create},
		{"cublasLtMatmulPreferenceCreate", (void **)&lt.pref_create}, {"cublasLtMatmulPreferenceDestroy", (void **)&lt.pref_destroy},
		{"cublasLtMatmulPreferenceSetAttribute", (void **)&lt.pref_set}, {"cublasLtMatmulAlgoGetHeuristic", (void **)&lt.heuristic},
		{"cublasLtMatmul", (void **)&lt.matmul},
	};
	for (size_t i = 0; i < sizeof f / sizeof *f; i++)
		if (!(*f[i].to = dlsym(lib, f[i].name))) {
			snprintf(why, size, "cuBLASLt without %s", f[i].name);
			return -1;
		}
	return 0;
}

int lt_create(void **handle) { return lt.create(handle); }

/* A plan lives as long as the process. */
int lt_plan(void *handle, const struct lt_product *p, size_t workspace, struct lt_plan **out) {
	static const int types[] = {R_16BF, R_32F, R_8F_E4M3}, acts[] = {0, EPILOGUE_GELU, EPILOGUE_RELU};
	struct lt_plan *q = calloc(1, sizeof *q);
	int in = p->in_eighth ? R_8F_E4M3 : R_16BF, type = types[p->out], added = type == R_8F_E4M3 ? R_16BF : type, half = R_16BF, fast = 1;
	int ta = p->trans_a ? OP_T : OP_N, tb = p->trans_b ? OP_T : OP_N, epilogue = acts[p->act] | (p->bias ? EPILOGUE_BIAS : 0);
	uint64_t none = 16; /* stands in for the bias: some algorithms ask for its alignment */
	void *pref = 0;
	uint32_t align = p->align;
	heuristic_t h;
	int found = 0, e;
	q->beta = p->accumulate;
	q->bias = p->bias;
	q->scaled = p->in_eighth;
	q->scaled_out = type == R_8F_E4M3;
	(e = lt.desc_create(&q->desc, COMPUTE_32F, R_32F)) ||
	(e = lt.desc_set(q->desc, DESC_TRANSA, &ta, sizeof ta)) ||
	(e = lt.desc_set(q->desc, DESC_TRANSB, &tb, sizeof tb)) ||
	(epilogue && (e = lt.desc_set(q->desc, DESC_EPILOGUE, &epilogue, sizeof epilogue))) ||
	(p->bias && (e = lt.desc_set(q->desc, DESC_BIAS, &none, sizeof none))) ||
	(p->in_eighth && ((p->bias && (e = lt.desc_set(q->desc, DESC_BIAS_TYPE, &half, sizeof half))) ||
		(e = lt.desc_set(q->desc, DESC_FAST_SUM, &fast, 1)) ||
		(e = lt.desc_set(q->desc, DESC_SCALE_A, &none, sizeof none)) || (e = lt.desc_set(q->desc, DESC_SCALE_B, &none, sizeof none)) ||
		(q->scaled_out && (e = lt.desc_set(q->desc, DESC_SCALE_D, &none, sizeof none))))) ||
	(e = lt.layout_create(&q->a, in, p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda)) ||
	(e = lt.layout_create(&q->b, in, p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb)) ||
	(e = lt.layout_create(&q->c, added, p->m, p->n, p->ldd)) ||
	(e = lt.layout_create(&q->d, type, p->m, p->n, p->ldd)) ||
	(e = lt.pref_create(&pref)) ||
	(e = lt.pref_set(pref, PREF_WORKSPACE, &workspace, sizeof workspace)) ||
	(e = lt.pref_set(pref, PREF_ALIGN_A, &align, sizeof align)) ||
	(e = lt.pref_set(pref, PREF_ALIGN_A + 1, &align, sizeof align)) ||
	(e = lt.pref_set(pref, PREF_ALIGN_A + 2, &align, sizeof align)) ||
	(e = lt.pref_set(pref, PREF_ALIGN_A + 3, &align, sizeof align)) ||
	(e = lt.heuristic(handle, q->desc, q->a, q->b, q->c, q->d, pref, 1, &h, &found));
	if (pref) lt.pref_destroy(pref);
	if (!e && !found) e = 15; /* CUBLAS_STATUS_NOT_SUPPORTED */
	if (e) return e;
	q->algo = h.algo;
	*out = q;
	return 0;
}

int lt_run(void *handle, struct lt_plan *q, const struct lt_operands *at, unsigned long long workspace, size_t workspace_size, void *stream) {
	float one = 1;
	int e = 0;
	(q->bias && (e = lt.desc_set(q->desc, DESC_BIAS, &at->bias, sizeof at->bias))) ||
	(q->scaled && ((e = lt.desc_set(q->desc, DESC_SCALE_A, &at->scale_a, sizeof at->scale_a)) ||
		(e = lt.desc_set(q->desc, DESC_SCALE_B, &at->scale_b, sizeof at->scale_b)))) ||
	(q->scaled_out && (e = lt.desc_set(q->desc, DESC_SCALE_D, &at->scale_d, sizeof at->scale_d)));
	if (e) return e;
	/* What is added is d itself, unless the two are stored in different ways. */
	return lt.matmul(handle, q->desc, &one, (void *)at->a, q->a, (void *)at->b, q->b, &q->beta, (void *)(q->scaled_out ? 0 : at->d), q->c, (void *)at->d, q->d,
		&q->algo, (void *)workspace, workspace_size, stream);
}
