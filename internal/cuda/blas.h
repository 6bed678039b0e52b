#include <stddef.h>

/* A product in cuBLASLt's column-major terms: d[m,n] = a·b + beta·d (+ bias[m]).
 * a is [m,k] (or [k,m] when transA), b is [k,n] (or [n,k] when transB). */
struct lt_product {
	int trans_a, trans_b, m, n, k, lda, ldb, ldd;
	int out_float;  /* d is float32; otherwise bfloat16, as a and b are */
	int accumulate; /* beta = 1 */
	int bias;
	unsigned align; /* bytes, of every address */
};

struct lt_plan; /* descriptors and the chosen algorithm */

int lt_open(const char *const *names, char *why, size_t size);
int lt_create(void **handle);
int lt_plan(void *handle, const struct lt_product *p, size_t workspace, struct lt_plan **out);
int lt_run(void *handle, struct lt_plan *plan, unsigned long long a, unsigned long long b, unsigned long long d,
	unsigned long long bias, unsigned long long workspace, size_t workspace_size, void *stream);
