#include "common.cuh"

// cos and sin [rows, half] of pos[axis[j]·rows + r] · freq[j].
extern "C" __global__ void rope_table(float *cos, float *sin, const int *pos, const float *freq, const int *axis, int rows, int half) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= rows * half) return;
	int r = i / half, j = i % half;
	sincosf((float)pos[axis[j] * rows + r] * freq[j], sin + i, cos + i);
}

// One warp a head of a row; pairs are (j, j + half).
extern "C" __global__ void rope(bf16 *x, i64 stride, const float *cos, const float *sin, int rows, int heads, int dim, int inverse) {
	i64 item = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (item >= (i64)rows * heads) return;
	i64 r = item / heads;
	bf16 *p = x + r * stride + item % heads * dim;
	int half = dim / 2;
	for (int j = threadIdx.x % 32; j < half; j += 32) {
		float c = cos[r * half + j], s = sin[r * half + j], a = to_float(p[j]), b = to_float(p[j + half]);
		if (inverse) s = -s;
		p[j] = to_bf16(a * c - b * s);
		p[j + half] = to_bf16(b * c + a * s);
	}
}

// RMSNorm of every head, then the turn: y [rows, heads·dim], inv [rows, heads].
extern "C" __global__ void norm_rope(bf16 *y, float *inv, const bf16 *x, i64 stride, const bf16 *w, const float *cos, const float *sin,
		int rows, int heads, int dim, float eps) {
	i64 item = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (item >= (i64)rows * heads) return;
	i64 r = item / heads;
	const bf16 *p = x + r * stride + item % heads * dim;
	int half = dim / 2, lane = threadIdx.x % 32;
	float sum = 0;
	for (int j = lane; j < dim; j += 32) sum += to_float(p[j]) * to_float(p[j]);
	float s = rsqrtf(warp_sum(sum) / dim + eps);
	if (lane == 0) inv[item] = s;
	for (int j = lane; j < half; j += 32) {
		float c = cos[r * half + j], t = sin[r * half + j];
		float a = to_float(p[j]) * s * to_float(w[j]), b = to_float(p[j + half]) * s * to_float(w[j + half]);
		y[item * dim + j] = to_bf16(a * c - b * t);
		y[item * dim + j + half] = to_bf16(b * c + a * t);
	}
}

// Sets dx. Each warp takes every n-th head of a row; dw's shares go to
// part[block, dim]. dim is at most 256.
extern "C" __global__ void norm_rope_backward(bf16 *dx, i64 dstride, float *part, const bf16 *dy, const bf16 *x, i64 stride, const bf16 *w,
		const float *inv, const float *cos, const float *sin, int rows, int heads, int dim) {
	extern __shared__ float shares[]; // [warps, dim]
	int half = dim / 2, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
	float lo[4] = {}, hi[4] = {};
	for (i64 item = (i64)blockIdx.x * warps + warp; item < (i64)rows * heads; item += (i64)gridDim.x * warps) {
		i64 r = item / heads;
		int h = item % heads;
		const bf16 *p = x + r * stride + h * dim;
		bf16 *q = dx + r * dstride + h * dim;
		float s = inv[item], dot = 0, ga[4], gb[4], xa[4], xb[4];
#pragma unroll
		for (int k = 0; k < 4; k++) {
			int j = lane + 32 * k;
			if (j >= half) continue;
			float c = cos[r * half + j], t = sin[r * half + j];
			float a = to_float(dy[item * dim + j]), b = to_float(dy[item * dim + j + half]);
			float ua = a * c + b * t, ub = b * c - a * t; // turned back
			xa[k] = to_float(p[j]);
			xb[k] = to_float(p[j + half]);
			lo[k] += ua * xa[k] * s;
			hi[k] += ub * xb[k] * s;
			ga[k] = ua * to_float(w[j]);
			gb[k] = ub * to_float(w[j + half]);
			dot += ga[k] * xa[k] + gb[k] * xb[k];
		}
		dot = warp_sum(dot) * s * s * s / dim;
#pragma unroll
		for (int k = 0; k < 4; k++) {
			int j = lane + 32 * k;
			if (j >= half) continue;
			q[j] = to_bf16(ga[k] * s - xa[k] * dot);
			q[j + half] = to_bf16(gb[k] * s - xb[k] * dot);
		}
	}
	if (!part) return;
#pragma unroll
	for (int k = 0; k < 4; k++) {
		int j = lane + 32 * k;
		if (j >= half) continue;
		shares[warp * dim + j] = lo[k];
		shares[warp * dim + j + half] = hi[k];
	}
	__syncthreads();
	for (int j = threadIdx.x; j < dim; j += blockDim.x) {
		float s = 0;
		for (int i = 0; i < warps; i++) s += shares[i * dim + j];
		part[(i64)blockIdx.x * dim + j] = s;
	}
}
