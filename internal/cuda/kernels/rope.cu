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

// Two values from j on, and two of float32.
__device__ __forceinline__ float2 two(const bf16 *p, int j) {
	u32 x = *(const u32 *)(p + j);
	return make_float2(low(x), high(x));
}
__device__ __forceinline__ float2 two(const float *p, int j) { return *(const float2 *)(p + j); }

// A warp takes HEADS neighbouring heads of a row, which have the same angles, and a
// lane two pairs of each. dim is at most 128.
constexpr int HEADS = 4;

// RMSNorm of every head, then the turn: y [rows, heads·dim], inv [rows, heads].
extern "C" __global__ void norm_rope(bf16 *y, float *inv, const bf16 *x, i64 stride, const bf16 *w, const float *cos, const float *sin,
		int rows, int heads, int dim, float eps) {
	int groups = (heads + HEADS - 1) / HEADS, half = dim / 2, lane = threadIdx.x % 32, j = 2 * lane;
	i64 item = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, r = item / groups;
	if (r >= rows) return;
	int h = item % groups * HEADS, n = min(HEADS, heads - h);
	const bf16 *p = x + r * stride + h * dim;
	float2 a[HEADS], b[HEADS], c, t, u, v;
	bool in = j < half;
	if (in) c = two(cos, r * half + j), t = two(sin, r * half + j), u = two(w, j), v = two(w, j + half);
#pragma unroll
	for (int k = 0; k < HEADS; k++) {
		a[k] = b[k] = make_float2(0, 0);
		if (in && k < n) a[k] = two(p, k * dim + j), b[k] = two(p, k * dim + j + half);
	}
	y += (r * heads + h) * dim;
	inv += r * heads + h;
#pragma unroll
	for (int k = 0; k < HEADS; k++) {
		float s = rsqrtf(warp_sum(a[k].x * a[k].x + a[k].y * a[k].y + b[k].x * b[k].x + b[k].y * b[k].y) / dim + eps);
		if (k >= n) continue;
		if (lane == 0) inv[k] = s;
		if (!in) continue;
		float a0 = a[k].x * s * u.x, a1 = a[k].y * s * u.y, b0 = b[k].x * s * v.x, b1 = b[k].y * s * v.y;
		*(u32 *)(y + k * dim + j) = pack(a0 * c.x - b0 * t.x, a1 * c.y - b1 * t.y);
		*(u32 *)(y + k * dim + j + half) = pack(b0 * c.x + a0 * t.x, b1 * c.y + a1 * t.y);
	}
}

// Sets dx. Each warp takes every n-th group of heads; dw's shares go to
// part[block, dim].
extern "C" __global__ void __launch_bounds__(256) norm_rope_backward(bf16 *dx, i64 dstride, float *part, const bf16 *dy, const bf16 *x, i64 stride, const bf16 *w,
		const float *inv, const float *cos, const float *sin, int rows, int heads, int dim) {
	extern __shared__ float shares[]; // [warps, dim]
	int groups = (heads + HEADS - 1) / HEADS, half = dim / 2, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, j = 2 * lane;
	bool in = j < half;
	float2 lo = make_float2(0, 0), hi = lo, u = lo, v = lo;
	if (in) u = two(w, j), v = two(w, j + half);
	for (i64 item = (i64)blockIdx.x * warps + warp; item < (i64)rows * groups; item += (i64)gridDim.x * warps) {
		i64 r = item / groups;
		int h = item % groups * HEADS, n = min(HEADS, heads - h);
		const bf16 *p = x + r * stride + h * dim, *d = dy + (r * heads + h) * dim;
		bf16 *q = dx + r * dstride + h * dim;
		float2 xa[HEADS], xb[HEADS], ga[HEADS], gb[HEADS], c = make_float2(0, 0), t = c;
		float s[HEADS];
		if (in) c = two(cos, r * half + j), t = two(sin, r * half + j);
#pragma unroll
		for (int k = 0; k < HEADS; k++) {
			xa[k] = xb[k] = ga[k] = gb[k] = make_float2(0, 0);
			s[k] = k < n ? inv[r * heads + h + k] : 0;
			if (in && k < n) xa[k] = two(p, k * dim + j), xb[k] = two(p, k * dim + j + half), ga[k] = two(d, k * dim + j), gb[k] = two(d, k * dim + j + half);
		}
#pragma unroll
		for (int k = 0; k < HEADS; k++) {
			float2 a = ga[k], b = gb[k]; // turned back:
			ga[k] = make_float2(a.x * c.x + b.x * t.x, a.y * c.y + b.y * t.y);
			gb[k] = make_float2(b.x * c.x - a.x * t.x, b.y * c.y - a.y * t.y);
			lo.x += ga[k].x * xa[k].x * s[k];
			lo.y += ga[k].y * xa[k].y * s[k];
			hi.x += gb[k].x * xb[k].x * s[k];
			hi.y += gb[k].y * xb[k].y * s[k];
			ga[k] = make_float2(ga[k].x * u.x, ga[k].y * u.y);
			gb[k] = make_float2(gb[k].x * v.x, gb[k].y * v.y);
			float dot = warp_sum(ga[k].x * xa[k].x + ga[k].y * xa[k].y + gb[k].x * xb[k].x + gb[k].y * xb[k].y) * s[k] * s[k] * s[k] / dim;
			if (!in || k >= n) continue;
			*(u32 *)(q + k * dim + j) = pack(ga[k].x * s[k] - xa[k].x * dot, ga[k].y * s[k] - xa[k].y * dot);
			*(u32 *)(q + k * dim + j + half) = pack(gb[k].x * s[k] - xb[k].x * dot, gb[k].y * s[k] - xb[k].y * dot);
		}
	}
	if (!part) return;
	if (in) {
		*(float2 *)(shares + warp * dim + j) = lo;
		*(float2 *)(shares + warp * dim + j + half) = hi;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < dim; i += blockDim.x) {
		float sum = 0;
		for (int k = 0; k < warps; k++) sum += shares[k * dim + i];
		part[(i64)blockIdx.x * dim + i] = sum;
	}
}
