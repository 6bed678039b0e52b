#include "common.cuh"

// Rows of n 4-byte words: y[i] = x[rows[i]], zeros for a negative row.
extern "C" __global__ void gather(u32 *y, const u32 *x, const int *rows, int n) {
	i64 i = blockIdx.x, r = rows[i];
	for (int c = threadIdx.x; c < n; c += blockDim.x) y[i * n + c] = r < 0 ? 0 : x[r * n + c];
}

// y[rows[i]] = x[i].
extern "C" __global__ void scatter(u32 *y, const u32 *x, const int *rows, int n) {
	i64 i = blockIdx.x, r = rows[i];
	for (int c = threadIdx.x; c < n; c += blockDim.x) y[r * n + c] = x[i * n + c];
}

// Block b adds to row target[b] of y the items order[start[b]..start[b+1]), in
// that order: the sum does not depend on which block comes first. An item is a
// row of x, times its weight where there are weights; per items share one row.
template <typename Y>
__device__ void add_segments(Y *y, const bf16 *x, const int *target, const int *start, const int *order, const float *weight, int per, int dim) {
	i64 r = target[blockIdx.x];
	int from = start[blockIdx.x], to = start[blockIdx.x + 1];
	for (int c = threadIdx.x; c < dim; c += blockDim.x) {
		float s = 0;
		for (int k = from; k < to; k++) {
			int i = order[k];
			float v = to_float(x[(i64)(i / per) * dim + c]);
			s += weight ? weight[i] * v : v;
		}
		s += to_float(y[r * dim + c]);
		if constexpr (sizeof(Y) == 2) y[r * dim + c] = to_bf16(s);
		else y[r * dim + c] = s;
	}
}
extern "C" __global__ void scatter_add_float(float *y, const bf16 *x, const int *target, const int *start, const int *order, const float *weight, int per, int dim) {
	add_segments(y, x, target, start, order, weight, per, dim);
}
extern "C" __global__ void scatter_add_bf16(bf16 *y, const bf16 *x, const int *target, const int *start, const int *order, const float *weight, int per, int dim) {
	add_segments(y, x, target, start, order, weight, per, dim);
}

// y[i] += Σ weight[4i+k]·x[taps[4i+k]].
extern "C" __global__ void mix(bf16 *y, const bf16 *x, const int *taps, const float *weight, int dim) {
	i64 i = blockIdx.x;
	for (int c = threadIdx.x; c < dim; c += blockDim.x) {
		float s = to_float(y[i * dim + c]);
		for (int k = 0; k < 4; k++) s += weight[4 * i + k] * to_float(x[(i64)taps[4 * i + k] * dim + c]);
		y[i * dim + c] = to_bf16(s);
	}
}

// y[i] = Σ_c a[i, c]·b[rows[i], c]; one warp a row.
extern "C" __global__ void row_dots(float *y, const bf16 *a, const bf16 *b, const int *rows, int n, int dim) {
	i64 i = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (i >= n) return;
	float s = 0;
	for (int c = threadIdx.x % 32; c < dim; c += 32) s += to_float(a[i * dim + c]) * to_float(b[(i64)rows[i] * dim + c]);
	s = warp_sum(s);
	if (threadIdx.x % 32 == 0) y[i] = s;
}
