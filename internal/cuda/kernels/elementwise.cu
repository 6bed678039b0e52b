#include "common.cuh"

__device__ __forceinline__ i64 index8() { return ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8; }

extern "C" __global__ void add_bf16(bf16 *y, const bf16 *x, i64 n) {
	i64 i = index8();
	if (i >= n) return;
	eight a = load8(y + i), b = load8(x + i);
	for (int k = 0; k < 8; k++) a.x[k] += b.x[k];
	store8(y + i, a);
}
extern "C" __global__ void add_float(float *y, const float *x, i64 n) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] += x[i];
}

// Host values are float32.
extern "C" __global__ void narrow(bf16 *y, const float *x, i64 n) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] = to_bf16(x[i]);
}
extern "C" __global__ void widen(float *y, const bf16 *x, i64 n) {
	i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n) y[i] = to_float(x[i]);
}

// y = silu(gate)·up with gu [rows, 2·dim] = [gate | up].
extern "C" __global__ void swiglu(bf16 *y, const bf16 *gu, i64 n, int dim) {
	i64 i = index8();
	if (i >= n) return;
	const bf16 *p = gu + i / dim * 2 * dim + i % dim;
	eight g = load8(p), u = load8(p + dim);
	for (int k = 0; k < 8; k++) g.x[k] = g.x[k] / (1 + __expf(-g.x[k])) * u.x[k];
	store8(y + i, g);
}
// dgu may be gu.
extern "C" __global__ void swiglu_backward(bf16 *dgu, bf16 *y, const bf16 *dy, const bf16 *gu, i64 n, int dim) {
	i64 i = index8();
	if (i >= n) return;
	i64 at = i / dim * 2 * dim + i % dim;
	eight g = load8(gu + at), u = load8(gu + at + dim), d = load8(dy + i), act;
	for (int k = 0; k < 8; k++) {
		float s = 1 / (1 + __expf(-g.x[k])), silu = g.x[k] * s, slope = s + silu * (1 - s);
		act.x[k] = silu * u.x[k];
		g.x[k] = d.x[k] * u.x[k] * slope;
		u.x[k] = d.x[k] * silu;
	}
	store8(y + i, act);
	store8(dgu + at, g);
	store8(dgu + at + dim, u);
}

// Exact GELU, or its approximation by tanh.
__device__ __forceinline__ float gelu_value(float x, int tanh) {
	if (!tanh) return 0.5f * x * (1 + erff(x * 0.70710678f));
	return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}
__device__ __forceinline__ float gelu_slope(float x, int tanh) {
	if (!tanh) return 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * __expf(-0.5f * x * x);
	float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));
	return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 3 * 0.044715f * x * x);
}
extern "C" __global__ void gelu(bf16 *y, const bf16 *x, i64 n, int tanh) {
	i64 i = index8();
	if (i >= n) return;
	eight v = load8(x + i);
	for (int k = 0; k < 8; k++) v.x[k] = gelu_value(v.x[k], tanh);
	store8(y + i, v);
}
extern "C" __global__ void gelu_backward(bf16 *dx, const bf16 *dy, const bf16 *x, i64 n, int tanh) {
	i64 i = index8();
	if (i >= n) return;
	eight v = load8(x + i), d = load8(dy + i);
	for (int k = 0; k < 8; k++) v.x[k] = d.x[k] * gelu_slope(v.x[k], tanh);
	store8(dx + i, v);
}
