#include "common.cuh"

// Block b leaves the sum of the squares of its slice of a gradient in out[b]: that
// gradient t whose first[t] is the last at most b. where holds address and length of
// each.
extern "C" __global__ void sum_squares(float *out, const i64 *where, const int *first, int tensors, int slice) {
	int lo = 0, hi = tensors;
	while (hi - lo > 1) {
		int middle = (lo + hi) / 2;
		if (first[middle] <= blockIdx.x) lo = middle;
		else hi = middle;
	}
	const float *g = (const float *)where[2 * lo];
	i64 from = (i64)(blockIdx.x - first[lo]) * slice, to = min(where[2 * lo + 1], from + slice);
	float s = 0;
#pragma unroll 8
	for (i64 i = from + threadIdx.x; i < to; i += 256) s += g[i] * g[i];
	s = block_sum(s);
	if (threadIdx.x == 0) out[blockIdx.x] = s;
}

// AdamW with decoupled decay (arXiv 1711.05101) on a float32 weight that is kept
// in two halves: w, its bits rounded to bfloat16 with ties up, and low, what is
// missing. With ties to even what is missing could be 2^15, one too many for low.
extern "C" __global__ void adamw(u16 *w, short *low, float *m, float *v, const float *g, i64 n, float scale, float lr, float b1, float c1, float b2, float c2,
		float eps, float decay, float fix1, float fix2) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n) return;
	float x = g[i] * scale, mi = b1 * m[i] + c1 * x, vi = b2 * v[i] + c2 * x * x;
	m[i] = mi;
	v[i] = vi;
	float master = __uint_as_float(((u32)w[i] << 16) + (int)low[i]);
	master -= lr * (mi * fix1 / (sqrtf(vi) * fix2 + eps) + decay * master);
	u32 bits = __float_as_uint(master), high = bits + 0x8000u >> 16;
	w[i] = (u16)high;
	low[i] = (short)(bits - (high << 16));
}
