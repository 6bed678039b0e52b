#include "common.cuh"

// A page holds, for every layer and key head, 64 keys and then 64 values by row:
// [layers, kv, 2, 64, d].
#define PAGE 64

// Block r writes the keys and values of new row r into slot[r] of page[r], which
// is an address.
extern "C" __global__ void cache_write(const i64 *page, const int *slot, const bf16 *k, i64 ks, const bf16 *v, i64 vs, int layer, int kv, int d) {
	i64 r = blockIdx.x;
	bf16 *p = (bf16 *)page[r];
	for (int i = threadIdx.x; i < kv * d; i += blockDim.x) {
		i64 at = ((i64)(layer * kv + i / d) * 2 * PAGE + slot[r]) * d + i % d;
		p[at] = k[r * ks + i];
		p[at + PAGE * d] = v[r * vs + i];
	}
}

// Block (r, head): query row r sees the first keys[r] keys of the pages that
// begin at pages[first[r]]. d is at most 128, the number of threads.
extern "C" __global__ void cache_attend(bf16 *out, const bf16 *q, i64 qs, const i64 *pages, const int *first, const int *keys, int layer, int heads, int kv, int d, float scale) {
	__shared__ float qv[128], w[128];
	i64 r = blockIdx.x;
	int h = blockIdx.y, g = h * kv / heads, t = threadIdx.x, n = keys[r];
	const i64 *page = pages + first[r];
	i64 base = (i64)(layer * kv + g) * 2 * PAGE * d;
	if (t < d) qv[t] = to_float(q[r * qs + h * d + t]) * scale;
	float m = -INF, sum = 0, acc = 0;
	for (int from = 0; from < n; from += 128) {
		__syncthreads();
		float s = -INF;
		if (from + t < n) {
			const bf16 *k = (const bf16 *)page[(from + t) / PAGE] + base + (from + t) % PAGE * d;
			s = 0;
			for (int c = 0; c < d; c += 8) {
				eight x = load8(k + c);
				for (int i = 0; i < 8; i++) s += x.x[i] * qv[c + i];
			}
		}
		float top = fmaxf(m, block_max(s)), f = __expf(m - top), e = __expf(s - top);
		w[t] = e;
		sum = sum * f + block_sum(e);
		m = top;
		acc *= f;
		__syncthreads();
		if (t < d)
			for (int i = 0; i < min(128, n - from); i++)
				acc += w[i] * to_float(((const bf16 *)page[(from + i) / PAGE])[base + (PAGE + (from + i) % PAGE) * d + t]);
	}
	if (t < d) out[(r * heads + h) * d + t] = to_bf16(acc / sum);
}
