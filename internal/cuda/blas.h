#include <stddef.h>

/* A product in cuBLASLt's column-major terms: d[m,n] = a·b + beta·d (+ bias[m]).
 * a is [m,k] (or [k,m] when transA), b is [k,n] (or [n,k] when transB). */
struct lt_product {
	int trans_a, trans_b, m, n, k, lda, ldb, ldd;
	int in_eighth;  /* a and b are e4m3; otherwise bfloat16 */
	int out;        /* what d is: 0 bfloat16, 1 float32, 2 e4m3 */
	int accumulate; /* beta = 1 */
	int bias;       /* bfloat16 */
	int act;        /* of the sum: 0 none, 1 gelu (by tanh), 2 relu */
	unsigned align; /* bytes, of every address */
};

/* Addresses of a product. The scales, one float32 each, multiply a, b and d; 0 is 1. */
struct lt_operands {
	unsigned long long a, b, d, bias, scale_a, scale_b, scale_d;
};

struct lt_plan; /* descriptors and the chosen algorithm */

int lt_open(const char *const *names, char *why, size_t size);
int lt_create(void **handle);
int lt_plan(void *handle, const struct lt_product *p, size_t workspace, struct lt_plan **out);
int lt_run(void *handle, struct lt_plan *plan, const struct lt_operands *at, unsigned long long workspace, size_t workspace_size, void *stream);
