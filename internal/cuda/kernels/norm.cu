#include "common.cuh"

// One block a row. inv[r] = 1/sqrt(mean x² + eps).
extern "C" __global__ void rms_norm(bf16 *y, float *inv, const bf16 *x, const bf16 *w, int dim, float eps) {
	i64 r = blockIdx.x;
	float sum = 0;
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c);
		for (int i = 0; i < 8; i++) sum += v.x[i] * v.x[i];
	}
	float s = rsqrtf(block_sum(sum) / dim + eps);
	if (threadIdx.x == 0) inv[r] = s;
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c), g = load8(w + c);
		for (int i = 0; i < 8; i++) v.x[i] *= s * g.x[i];
		store8(y + r * dim + c, v);
	}
}

extern "C" __global__ void rms_norm_again(bf16 *y, const float *inv, const bf16 *x, const bf16 *w, int dim) {
	i64 r = blockIdx.x;
	float s = inv[r];
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c), g = load8(w + c);
		for (int i = 0; i < 8; i++) v.x[i] *= s * g.x[i];
		store8(y + r * dim + c, v);
	}
}

// Each block takes every gridDim.x-th row and leaves its share of dw in
// part[block, dim]; sum_parts adds the shares up in the order of the blocks.
// WIDE is the number of times 8·blockDim.x columns that a row has.
template <int WIDE>
__device__ void rms_back(bf16 *dx, float *part, const bf16 *dy, const bf16 *x, const bf16 *w, const float *inv, int rows, int dim) {
	float sum[WIDE][8] = {};
	for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
		float s = inv[r], dot = 0;
		eight g[WIDE], v[WIDE];
#pragma unroll
		for (int j = 0; j < WIDE; j++) {
			int c = (j * blockDim.x + threadIdx.x) * 8;
			if (c >= dim) continue;
			g[j] = load8(dy + r * dim + c);
			v[j] = load8(x + r * dim + c);
			eight k = load8(w + c);
			for (int i = 0; i < 8; i++) {
				sum[j][i] += g[j].x[i] * v[j].x[i] * s;
				g[j].x[i] *= k.x[i];
				dot += g[j].x[i] * v[j].x[i];
			}
		}
		dot = block_sum(dot) * s * s * s / dim;
#pragma unroll
		for (int j = 0; j < WIDE; j++) {
			int c = (j * blockDim.x + threadIdx.x) * 8;
			if (c >= dim) continue;
			eight d = load8(dx + r * dim + c);
			for (int i = 0; i < 8; i++) d.x[i] += g[j].x[i] * s - v[j].x[i] * dot;
			store8(dx + r * dim + c, d);
		}
	}
	if (!part) return;
#pragma unroll
	for (int j = 0; j < WIDE; j++) {
		int c = (j * blockDim.x + threadIdx.x) * 8;
		if (c >= dim) continue;
		for (int i = 0; i < 8; i++) part[(i64)blockIdx.x * dim + c + i] = sum[j][i];
	}
}

#define RMS_BACK(n)                                                                                                        \
	extern "C" __global__ void __launch_bounds__(512) rms_norm_backward_##n(bf16 *dx, float *part, const bf16 *dy,         \
			const bf16 *x, const bf16 *w, const float *inv, int rows, int dim) {                                           \
		rms_back<n>(dx, part, dy, x, w, inv, rows, dim);                                                                   \
	}
RMS_BACK(1)
RMS_BACK(2)

// dst[c] += Σ part[i, c] over n parts. A block takes 32 columns; each of its warps
// sums every eighth part.
extern "C" __global__ void __launch_bounds__(256) sum_parts(float *dst, const float *part, int n, int dim) {
	__shared__ float shares[8][32];
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
	float s = 0;
	if (c < dim) {
#pragma unroll 8
		for (int i = warp; i < n; i += 8) s += part[(i64)i * dim + c];
	}
	shares[warp][lane] = s;
	__syncthreads();
	if (warp || c >= dim) return;
	for (int i = 1; i < 8; i++) s += shares[i][lane];
	dst[c] += s;
}

// stat[r] = mean, 1/sqrt(variance + eps).
extern "C" __global__ void layer_norm(bf16 *y, float2 *stat, const bf16 *x, const bf16 *w, const bf16 *b, int dim, float eps) {
	i64 r = blockIdx.x;
	float sum = 0;
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c);
		for (int i = 0; i < 8; i++) sum += v.x[i];
	}
	float mean = block_sum(sum) / dim, sq = 0;
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c);
		for (int i = 0; i < 8; i++) sq += (v.x[i] - mean) * (v.x[i] - mean);
	}
	float s = rsqrtf(block_sum(sq) / dim + eps);
	if (threadIdx.x == 0) stat[r] = make_float2(mean, s);
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c), g = load8(w + c), a = load8(b + c);
		for (int i = 0; i < 8; i++) v.x[i] = (v.x[i] - mean) * s * g.x[i] + a.x[i];
		store8(y + r * dim + c, v);
	}
}

extern "C" __global__ void layer_norm_again(bf16 *y, const float2 *stat, const bf16 *x, const bf16 *w, const bf16 *b, int dim) {
	i64 r = blockIdx.x;
	float2 s = stat[r];
	for (int c = threadIdx.x * 8; c < dim; c += blockDim.x * 8) {
		eight v = load8(x + r * dim + c), g = load8(w + c), a = load8(b + c);
		for (int i = 0; i < 8; i++) v.x[i] = (v.x[i] - s.x) * s.y * g.x[i] + a.x[i];
		store8(y + r * dim + c, v);
	}
}

// part[block, 2·dim] is dw and db of the block's rows.
template <int WIDE>
__device__ void layer_back(bf16 *dx, float *part, const bf16 *dy, const bf16 *x, const bf16 *w, const float2 *stat, int rows, int dim) {
	float sw[WIDE][8] = {}, sb[WIDE][8] = {};
	for (i64 r = blockIdx.x; r < rows; r += gridDim.x) {
		float2 s = stat[r];
		float a = 0, b = 0;
		eight g[WIDE], v[WIDE];
#pragma unroll
		for (int j = 0; j < WIDE; j++) {
			int c = (j * 256 + threadIdx.x) * 8;
			if (c >= dim) continue;
			g[j] = load8(dy + r * dim + c);
			v[j] = load8(x + r * dim + c);
			eight k = load8(w + c);
			for (int i = 0; i < 8; i++) {
				v[j].x[i] = (v[j].x[i] - s.x) * s.y;
				sw[j][i] += g[j].x[i] * v[j].x[i];
				sb[j][i] += g[j].x[i];
				g[j].x[i] *= k.x[i];
				a += g[j].x[i];
				b += g[j].x[i] * v[j].x[i];
			}
		}
		a = block_sum(a) / dim;
		b = block_sum(b) / dim;
#pragma unroll
		for (int j = 0; j < WIDE; j++) {
			int c = (j * 256 + threadIdx.x) * 8;
			if (c >= dim) continue;
			eight d = load8(dx + r * dim + c);
			for (int i = 0; i < 8; i++) d.x[i] += s.y * (g[j].x[i] - a - v[j].x[i] * b);
			store8(dx + r * dim + c, d);
		}
	}
	if (!part) return;
#pragma unroll
	for (int j = 0; j < WIDE; j++) {
		int c = (j * 256 + threadIdx.x) * 8;
		if (c >= dim) continue;
		for (int i = 0; i < 8; i++) {
			part[(i64)blockIdx.x * 2 * dim + c + i] = sw[j][i];
			part[(i64)blockIdx.x * 2 * dim + dim + c + i] = sb[j][i];
		}
	}
}

#define LAYER_BACK(n)                                                                                                      \
	extern "C" __global__ void __launch_bounds__(256) layer_norm_backward_##n(bf16 *dx, float *part, const bf16 *dy,       \
			const bf16 *x, const bf16 *w, const float2 *stat, int rows, int dim) {                                         \
		layer_back<n>(dx, part, dy, x, w, stat, rows, dim);                                                                \
	}
LAYER_BACK(1)
LAYER_BACK(2)
LAYER_BACK(3)

// The columns of dy [rows, dim] summed by chunks of rows into part[chunk, dim].
extern "C" __global__ void sum_rows(float *part, const bf16 *dy, int rows, int dim, int chunk) {
	int c = (blockIdx.x * blockDim.x + threadIdx.x) * 8;
	if (c >= dim) return;
	int from = blockIdx.y * chunk, to = min(rows, from + chunk);
	float s[8] = {};
	for (i64 r = from; r < to; r++) {
		eight v = load8(dy + r * dim + c);
		for (int i = 0; i < 8; i++) s[i] += v.x[i];
	}
	for (int i = 0; i < 8; i++) part[(i64)blockIdx.y * dim + c + i] = s[i];
}
