#include "common.cuh"

// One block a row of logits z [rows, vocab], float32, before the scale: log-prob
// of the target, entropy and ln Σ e^(scale·z), in one pass over the row.
extern "C" __global__ void head(float *logp, float *entropy, float *lse, const float *z, const int *targets, float scale, int vocab) {
	i64 r = blockIdx.x;
	const float *p = z + r * vocab;
	float m = -INF, sum = 0, dot = 0; // Σ e^(v-m), Σ v·e^(v-m)
	for (int c = threadIdx.x; c < vocab; c += blockDim.x) {
		float v = p[c] * scale;
		if (v == -INF) continue;
		if (v > m) {
			float f = __expf(m - v);
			sum *= f;
			dot *= f;
			m = v;
		}
		float e = __expf(v - m);
		sum += e;
		dot += e * v;
	}
	float top = block_max(m), f = m == -INF ? 0 : __expf(m - top);
	sum = block_sum(sum * f);
	dot = block_sum(dot * f);
	if (threadIdx.x) return;
	float l = top + logf(sum);
	lse[r] = l;
	logp[r] = p[targets[r]] * scale - l;
	entropy[r] = l - dot / sum;
}

// The logits become their gradient, as bfloat16 in the first half of each row's
// memory: p·(c0 + c1·z), and at the target scale·dlogp more. A row whose two
// coefficients are 0 becomes zeros whatever its logits are.
extern "C" __global__ void head_backward(float *z, const int *targets, const float *dlogp, const float *dentropy, const float *entropy,
		const float *lse, float scale, int vocab) {
	i64 r = blockIdx.x;
	const float *p = z + r * vocab;
	bf16 *out = (bf16 *)(z + r * vocab);
	float dl = dlogp[r], de = dentropy[r], l = lse[r], c0 = scale * (de * (l - entropy[r]) - dl), c1 = -scale * de;
	bool none = dl == 0 && de == 0;
	int target = targets[r];
	for (int from = 0; from < vocab; from += blockDim.x * 4) {
		float g[4];
#pragma unroll
		for (int k = 0; k < 4; k++) {
			int c = from + k * blockDim.x + threadIdx.x;
			if (c >= vocab || none) {
				g[k] = 0;
				continue;
			}
			float v = p[c] * scale, e = __expf(v - l);
			g[k] = e == 0 ? 0 : e * (c0 + c1 * v);
			if (c == target) g[k] += scale * dl;
		}
		__syncthreads(); // what is written lies before what is still to be read
#pragma unroll
		for (int k = 0; k < 4; k++) {
			int c = from + k * blockDim.x + threadIdx.x;
			if (c < vocab) out[c] = to_bf16(g[k]);
		}
		__syncthreads();
	}
}
