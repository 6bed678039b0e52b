#include "common.cuh"

// What encoders need beside products and attention, forward only.

// Two e4m3 numbers (compute capability 8.9 and later), lo in the lower byte; what is
// too large becomes the largest, 448.
__device__ __forceinline__ u32 eighths(float lo, float hi) {
#if __CUDA_ARCH__ >= 890
	u16 y;
	asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(hi), "f"(lo));
	return y;
#else
	return 0;
#endif
}
__device__ __forceinline__ void store8(unsigned char *p, const eight &v, float f) {
	*reinterpret_cast<uint2 *>(p) = make_uint2(eighths(v.x[0] * f, v.x[1] * f) | eighths(v.x[2] * f, v.x[3] * f) << 16,
		eighths(v.x[4] * f, v.x[5] * f) | eighths(v.x[6] * f, v.x[7] * f) << 16);
}

// As integers of x·f, which are at most 127 in size.
__device__ __forceinline__ void store_bytes(unsigned char *p, const eight &v, float f) {
	u32 y[2];
	for (int i = 0; i < 2; i++)
		y[i] = __byte_perm(__byte_perm(byte_of(v.x[4 * i], f), byte_of(v.x[4 * i + 1], f), 0x0040),
			__byte_perm(byte_of(v.x[4 * i + 2], f), byte_of(v.x[4 * i + 3], f), 0x0040), 0x5410);
	*reinterpret_cast<uint2 *>(p) = make_uint2(y[0], y[1]);
}

// y = e4m3(x·scale).
extern "C" __global__ void eighth(unsigned char *y, const float *x, i64 n, float scale) {
	i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8;
	if (i >= n) return;
	eight v;
	for (int k = 0; k < 8; k++) v.x[k] = x[i + k];
	store8(y + i, v, scale);
}

// norm_row normalises a row that a warp holds in registers, V times 256 columns, and
// writes it, and once more in 8 bits where there is room for that: as e4m3 times scale, or,
// with a place for the row's own scale, in integers of which the largest is 127.
template <int V>
__device__ __forceinline__ void norm_row(bf16 *to, unsigned char *to8, float scale, float *own, eight (&v)[V], const bf16 *w, const bf16 *b, int dim, float eps) {
	int lane = threadIdx.x % 32;
	float sum = 0;
#pragma unroll
	for (int j = 0; j < V; j++)
		if ((j * 32 + lane) * 8 < dim)
			for (int i = 0; i < 8; i++) sum += v[j].x[i];
	float mean = warp_sum(sum) / dim, sq = 0;
#pragma unroll
	for (int j = 0; j < V; j++)
		if ((j * 32 + lane) * 8 < dim)
			for (int i = 0; i < 8; i++) sq += (v[j].x[i] - mean) * (v[j].x[i] - mean);
	float s = rsqrtf(warp_sum(sq) / dim + eps), most = 1e-20f;
#pragma unroll
	for (int j = 0; j < V; j++) {
		int c = (j * 32 + lane) * 8;
		if (c >= dim) continue;
		eight g = load8(w + c), a = load8(b + c);
		for (int i = 0; i < 8; i++) {
			v[j].x[i] = (v[j].x[i] - mean) * s * g.x[i] + a.x[i];
			most = fmaxf(most, fabsf(v[j].x[i]));
		}
		store8(to + c, v[j]);
		if (to8 && !own) store8(to8 + c, v[j], scale);
	}
	if (!own) return;
	most = warp_max(most);
	if (lane == 0) *own = most / 127;
#pragma unroll
	for (int j = 0; j < V; j++) {
		int c = (j * 32 + lane) * 8;
		if (c < dim) store_bytes(to8 + c, v[j], 127 / most);
	}
}

// x = LayerNorm(x), a warp a row.
template <int V>
__device__ __forceinline__ void norm_in(bf16 *x, unsigned char *x8, float scale, float *scales, const bf16 *w, const bf16 *b, int rows, int dim, float eps) {
	i64 r = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (r >= rows) return;
	bf16 *p = x + r * dim;
	eight v[V];
#pragma unroll
	for (int j = 0; j < V; j++) {
		int c = (j * 32 + threadIdx.x % 32) * 8;
		if (c < dim) v[j] = load8(p + c);
	}
	norm_row<V>(p, x8 ? x8 + r * dim : 0, scale, scales ? scales + r : 0, v, w, b, dim, eps);
}

// x[r] = LayerNorm(words[ids[r]] + places[at[r]]).
template <int V>
__device__ __forceinline__ void embed_norm(bf16 *x, unsigned char *x8, float scale, float *scales, const bf16 *words, const bf16 *places, const int *ids, const int *at, const bf16 *w, const bf16 *b, int rows, int dim, float eps) {
	i64 r = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (r >= rows) return;
	const bf16 *p = words + (i64)ids[r] * dim, *q = places + (i64)at[r] * dim;
	eight v[V];
#pragma unroll
	for (int j = 0; j < V; j++) {
		int c = (j * 32 + threadIdx.x % 32) * 8;
		if (c >= dim) continue;
		v[j] = load8(p + c);
		eight a = load8(q + c);
		for (int i = 0; i < 8; i++) v[j].x[i] += a.x[i];
	}
	norm_row<V>(x + r * dim, x8 ? x8 + r * dim : 0, scale, scales ? scales + r : 0, v, w, b, dim, eps);
}

#define NORMS(V)                                                                                                           \
	extern "C" __global__ void __launch_bounds__(256) norm_in_##V(bf16 *x, unsigned char *x8, float scale, float *scales,                 \
			const bf16 *w, const bf16 *b, int rows, int dim, float eps) {                                                  \
		norm_in<V>(x, x8, scale, scales, w, b, rows, dim, eps);                                                                    \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(256) embed_norm_##V(bf16 *x, unsigned char *x8, float scale, float *scales,              \
			const bf16 *words, const bf16 *places, const int *ids, const int *at, const bf16 *w, const bf16 *b,            \
			int rows, int dim, float eps) {                                                                                \
		embed_norm<V>(x, x8, scale, scales, words, places, ids, at, w, b, rows, dim, eps);                                         \
	}
NORMS(1)
NORMS(2)
NORMS(3)
NORMS(4)
NORMS(8)

// y[r] = LayerNorm(silu(gate)·up) over the first n of width columns, for gu
// [rows, 2·width]; a block a row, a thread for eight columns. w and b are zeros from
// n on.
extern "C" __global__ void swiglu_norm(bf16 *y, const bf16 *gu, const bf16 *w, const bf16 *b, int n, int width, float eps) {
	i64 r = blockIdx.x;
	int c = threadIdx.x * 8;
	eight v = {};
	float sum = 0, sq = 0;
	if (c < width) {
		eight g = load8(gu + r * 2 * width + c), u = load8(gu + r * 2 * width + width + c);
		for (int i = 0; i < 8; i++) {
			v.x[i] = c + i < n ? g.x[i] / (1 + __expf(-g.x[i])) * u.x[i] : 0;
			sum += v.x[i];
		}
	}
	float mean = block_sum(sum) / n;
	for (int i = 0; i < 8; i++)
		if (c + i < n) sq += (v.x[i] - mean) * (v.x[i] - mean);
	float s = rsqrtf(block_sum(sq) / n + eps);
	if (c >= width) return;
	eight g = load8(w + c), a = load8(b + c);
	for (int i = 0; i < 8; i++) v.x[i] = (v.x[i] - mean) * s * g.x[i] + a.x[i];
	store8(y + r * width + c, v);
}

// out[s] is the mean of the rows of sequence s, or its first row, brought to length 1
// where that is asked for. A block a sequence: lanes threads share a row, several rows
// are summed side by side and joined in a fixed order.
extern "C" __global__ void pool(float *out, const bf16 *x, const int *cu, int dim, int lanes, int first, int unit) {
	extern __shared__ float sums[]; // [groups, dim]
	int from = cu[blockIdx.x], to = first ? from + 1 : cu[blockIdx.x + 1];
	int group = threadIdx.x / lanes, groups = blockDim.x / lanes, c = threadIdx.x % lanes * 8;
	for (; c < dim; c += lanes * 8) {
		float s[8] = {};
		for (i64 r = from + group; r < to; r += groups) {
			eight v = load8(x + r * dim + c);
			for (int i = 0; i < 8; i++) s[i] += v.x[i];
		}
		for (int i = 0; i < 8; i++) sums[group * dim + c + i] = s[i];
	}
	__syncthreads();
	float sq = 0;
	for (int i = threadIdx.x; i < dim; i += blockDim.x) {
		float s = 0;
		for (int g = 0; g < groups; g++) s += sums[g * dim + i];
		s /= to - from;
		sums[i] = s; // of this thread's column alone
		sq += s * s;
	}
	sq = block_sum(sq);
	float f = unit && sq > 0 ? rsqrtf(sq) : 1;
	for (int i = threadIdx.x; i < dim; i += blockDim.x) out[(i64)blockIdx.x * dim + i] = sums[i] * f;
}
