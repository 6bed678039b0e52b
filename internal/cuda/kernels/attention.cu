#include "attention.cuh"

// Attention over packed sequences on tensor cores (mma.sync m16n8k16), after
// FlashAttention-2 (arXiv 2307.08691): scores are made block by block and never
// stored; the backward pass makes them again from the rows' ln Σ e^s. dQ and
// dK, dV are two kernels, so that nothing is summed in an order that changes.
//
// A tile has 64 rows. Rows of q, k and v lie stride values apart; a head is d
// values wide, computed as D ≥ d, a multiple of 16, with zeros.

__device__ __forceinline__ void ldmatrix4_trans(u32 (&r)[4], u32 a) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void copy_async(u32 to, const void *from, bool valid) {
	int n = valid ? 16 : 0; // the rest is filled with zeros
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }
template <int N> __device__ __forceinline__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N)); }

// fetch begins to copy rows [0, n) of x into a block of R rows in shared memory,
// D+8 values apart so that the rows of a fragment fall on different banks.
template <int D, int R, int THREADS>
__device__ __forceinline__ void fetch(bf16 *to, const bf16 *x, i64 stride, int n, int d) {
	for (int i = threadIdx.x; i < R * (D / 8); i += THREADS) {
		int r = i / (D / 8), c = i % (D / 8) * 8;
		bool ok = r < n && c < d;
		copy_async(shared_address(to + r * (D + 8) + c), ok ? x + r * stride + c : x, ok);
	}
}

// A fragment [16, 16] of rows in shared memory.
template <int D> __device__ __forceinline__ u32 a_address(const bf16 *block, int row, int col, int lane) {
	return shared_address(block + (row + lane % 16) * (D + 8) + col + lane / 16 * 8);
}
// B of x·yᵀ: 16 rows of y, 16 columns.
template <int D> __device__ __forceinline__ u32 b_address(const bf16 *block, int row, int col, int lane) {
	return shared_address(block + (row + lane % 8 + lane / 16 * 8) * (D + 8) + col + lane / 8 % 2 * 8);
}
// B of p·y, for ldmatrix_trans: 16 rows of y, 16 columns.
template <int D> __device__ __forceinline__ u32 t_address(const bf16 *block, int row, int col, int lane) {
	return shared_address(block + (row + lane % 8 + lane / 8 % 2 * 8) * (D + 8) + col + lane / 16 * 8);
}

// scores sets s to a·bᵀ, of 16 rows of block a and N rows of block b.
template <int D, int N>
__device__ __forceinline__ void scores(float (&s)[N / 8][4], const bf16 *a, int row, const bf16 *b, int lane) {
#pragma unroll
	for (int c = 0; c < N / 8; c++) s[c][0] = s[c][1] = s[c][2] = s[c][3] = 0;
#pragma unroll
	for (int i = 0; i < D / 16; i++) {
		u32 f[4], g[4];
		ldmatrix4(f, a_address<D>(a, row, i * 16, lane));
#pragma unroll
		for (int c = 0; c < N / 16; c++) {
			ldmatrix4(g, b_address<D>(b, c * 16, i * 16, lane));
			mma(s[2 * c], f, g[0], g[1]);
			mma(s[2 * c + 1], f, g[2], g[3]);
		}
	}
}

// add adds p·b to sum: p as scores leaves it, b N rows.
template <int D, int N>
__device__ __forceinline__ void add(float (&sum)[D / 8][4], const float (&p)[N / 8][4], const bf16 *b, int lane) {
#pragma unroll
	for (int c = 0; c < N / 16; c++) {
		u32 f[4] = {pack(p[2 * c][0], p[2 * c][1]), pack(p[2 * c][2], p[2 * c][3]), pack(p[2 * c + 1][0], p[2 * c + 1][1]), pack(p[2 * c + 1][2], p[2 * c + 1][3])};
#pragma unroll
		for (int i = 0; i < D / 16; i++) {
			u32 g[4];
			ldmatrix4_trans(g, t_address<D>(b, c * 16, i * 16, lane));
			mma(sum[2 * i], f, g[0], g[1]);
			mma(sum[2 * i + 1], f, g[2], g[3]);
		}
	}
}

// store writes rows r0 and r1, where they are before last, each times its factor.
template <int D>
__device__ __forceinline__ void store(bf16 *to, i64 stride, const float (&x)[D / 8][4], int d, int r0, int r1, int last, float f0, float f1, int lane) {
#pragma unroll
	for (int c = 0; c < D / 8; c++) {
		int col = c * 8 + lane % 4 * 2;
		if (col >= d) continue;
		if (r0 < last) *(u32 *)(to + r0 * stride + col) = pack(x[c][0] * f0, x[c][1] * f0);
		if (r1 < last) *(u32 *)(to + r1 * stride + col) = pack(x[c][2] * f1, x[c][3] * f1);
	}
}

template <int D>
__device__ void attend(bf16 *out, float *lse, const bf16 *q, const bf16 *k, const bf16 *v, const tile *tiles, const shape &s) {
	constexpr int BM = 64, BN = 64, L = D + 8, T = 128;
	extern __shared__ __align__(16) bf16 memory[];
	bf16 *sk = memory, *sv = memory + BN * L;
	const tile t = tiles[blockIdx.x];
	int h = blockIdx.y, g = h * s.kv / s.heads, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int first = s.rows[t.seq] + t.row, last = s.rows[t.seq + 1], from = s.cu[t.seq], keys = s.cu[t.seq + 1] - from;
	int n = min(BM, last - first), r0 = first + warp * 16 + lane / 4, r1 = r0 + 8;
	int lim0 = sees(s, t.seq, r0, last), lim1 = sees(s, t.seq, r1, last), end = sees(s, t.seq, first + n - 1, last);
	const bf16 *kb = k + from * s.ks + g * s.d, *vb = v + from * s.vs + g * s.d;

	fetch<D, BM, T>(sk, q + first * s.qs + h * s.d, s.qs, n, s.d);
	commit();
	wait<0>();
	__syncthreads();
	u32 qf[D / 16][4];
#pragma unroll
	for (int i = 0; i < D / 16; i++) ldmatrix4(qf[i], a_address<D>(sk, warp * 16, i * 16, lane));
	__syncthreads();
	fetch<D, BN, T>(sk, kb, s.ks, min(BN, keys), s.d);
	commit();

	float acc[D / 8][4] = {}, m0 = -INF, m1 = -INF, l0 = 0, l1 = 0;
	const float f = s.scale * 1.44269504f; // powers of two are faster than e's
	for (int j = 0; j < end; j += BN) {
		fetch<D, BN, T>(sv, vb + j * s.vs, s.vs, min(BN, keys - j), s.d);
		commit();
		wait<1>();
		__syncthreads();
		float sc[BN / 8][4] = {};
#pragma unroll
		for (int i = 0; i < D / 16; i++)
#pragma unroll
			for (int c = 0; c < BN / 16; c++) {
				u32 b[4];
				ldmatrix4(b, b_address<D>(sk, c * 16, i * 16, lane));
				mma(sc[2 * c], qf[i], b[0], b[1]);
				mma(sc[2 * c + 1], qf[i], b[2], b[3]);
			}
		__syncthreads();
		if (j + BN < end) fetch<D, BN, T>(sk, kb + (j + BN) * s.ks, s.ks, min(BN, keys - j - BN), s.d);
		commit();

		float x0 = m0, x1 = m1;
		bool whole = j + BN <= __shfl_sync(~0u, lim0, 0) && warp * 16 + 16 <= n; // the first row sees the fewest
#pragma unroll
		for (int c = 0; c < BN / 8; c++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				int key = j + c * 8 + lane % 4 * 2 + e;
				sc[c][e] = whole || key < lim0 ? sc[c][e] * f : -INF;
				sc[c][e + 2] = whole || key < lim1 ? sc[c][e + 2] * f : -INF;
				x0 = fmaxf(x0, sc[c][e]);
				x1 = fmaxf(x1, sc[c][e + 2]);
			}
		for (int o = 1; o < 4; o <<= 1) {
			x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, o));
			x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, o));
		}
		float z0 = x0 == -INF ? 0 : x0, z1 = x1 == -INF ? 0 : x1, c0 = exp2f(m0 - z0), c1 = exp2f(m1 - z1);
		m0 = x0, m1 = x1;
		l0 *= c0, l1 *= c1;
#pragma unroll
		for (int c = 0; c < D / 8; c++) acc[c][0] *= c0, acc[c][1] *= c0, acc[c][2] *= c1, acc[c][3] *= c1;
#pragma unroll
		for (int c = 0; c < BN / 8; c++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				l0 += sc[c][e] = exp2f(sc[c][e] - z0);
				l1 += sc[c][e + 2] = exp2f(sc[c][e + 2] - z1);
			}
		wait<1>();
		__syncthreads();
		add<D, BN>(acc, sc, sv, lane);
		__syncthreads();
	}
	wait<0>();
	for (int o = 1; o < 4; o <<= 1) {
		l0 += __shfl_xor_sync(~0u, l0, o);
		l1 += __shfl_xor_sync(~0u, l1, o);
	}
	store<D>(out + h * s.d, (i64)s.heads * s.d, acc, s.d, r0, r1, last, 1 / l0, 1 / l1, lane);
	if (!lse || lane % 4) return;
	if (r0 < last) lse[(i64)h * s.total + r0] = (m0 + log2f(l0)) * 0.69314718f;
	if (r1 < last) lse[(i64)h * s.total + r1] = (m1 + log2f(l1)) * 0.69314718f;
}

// delta[head, row] = Σ dout·out: what the softmax's gradient subtracts.
extern "C" __global__ void attention_delta(float *delta, const bf16 *dout, const bf16 *out, int total, int heads, int d) {
	i64 item = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
	if (item >= (i64)total * heads) return;
	float s = 0;
	for (int c = threadIdx.x % 32 * 2; c < d; c += 64) {
		u32 a = *(const u32 *)(dout + item * d + c), b = *(const u32 *)(out + item * d + c);
		s += low(a) * low(b) + high(a) * high(b);
	}
	s = warp_sum(s);
	if (threadIdx.x % 32 == 0) delta[item % heads * total + item / heads] = s;
}

// dQ of a tile of query rows.
template <int D>
__device__ void back_q(bf16 *dq, i64 dqs, const bf16 *dout, const float *lse, const float *delta, const bf16 *q, const bf16 *k, const bf16 *v, const tile *tiles, const shape &s) {
	constexpr int BM = 64, BN = 32, L = D + 8, T = 128;
	extern __shared__ __align__(16) bf16 memory[];
	bf16 *sq = memory, *sd = sq + BM * L, *sk = sd + BM * L, *sv = sk + BN * L;
	const tile t = tiles[blockIdx.x];
	int h = blockIdx.y, g = h * s.kv / s.heads, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int first = s.rows[t.seq] + t.row, last = s.rows[t.seq + 1], from = s.cu[t.seq], keys = s.cu[t.seq + 1] - from;
	int n = min(BM, last - first), r0 = first + warp * 16 + lane / 4, r1 = r0 + 8;
	int lim0 = sees(s, t.seq, r0, last), lim1 = sees(s, t.seq, r1, last), end = sees(s, t.seq, first + n - 1, last);
	const bf16 *kb = k + from * s.ks + g * s.d, *vb = v + from * s.vs + g * s.d;
	i64 w = (i64)s.heads * s.d;
	fetch<D, BM, T>(sq, q + first * s.qs + h * s.d, s.qs, n, s.d);
	fetch<D, BM, T>(sd, dout + first * w + h * s.d, w, n, s.d);
	const float *lh = lse + (i64)h * s.total, *dh = delta + (i64)h * s.total;
	float e0 = r0 < last ? lh[r0] * 1.44269504f : 0, e1 = r1 < last ? lh[r1] * 1.44269504f : 0;
	float t0 = r0 < last ? dh[r0] : 0, t1 = r1 < last ? dh[r1] : 0;
	float acc[D / 8][4] = {};
	const float f = s.scale * 1.44269504f;
	for (int j = 0; j < end; j += BN) {
		__syncthreads();
		fetch<D, BN, T>(sk, kb + j * s.ks, s.ks, min(BN, keys - j), s.d);
		fetch<D, BN, T>(sv, vb + j * s.vs, s.vs, min(BN, keys - j), s.d);
		commit();
		wait<0>();
		__syncthreads();
		float sc[BN / 8][4], dp[BN / 8][4];
		scores<D, BN>(sc, sq, warp * 16, sk, lane);
		scores<D, BN>(dp, sd, warp * 16, sv, lane);
#pragma unroll
		for (int c = 0; c < BN / 8; c++)
#pragma unroll
			for (int e = 0; e < 2; e++) {
				int key = j + c * 8 + lane % 4 * 2 + e;
				float p0 = key < lim0 ? exp2f(sc[c][e] * f - e0) : 0, p1 = key < lim1 ? exp2f(sc[c][e + 2] * f - e1) : 0;
				sc[c][e] = p0 * (dp[c][e] - t0);
				sc[c][e + 2] = p1 * (dp[c][e + 2] - t1);
			}
		add<D, BN>(acc, sc, sk, lane);
	}
	store<D>(dq + h * s.d, dqs, acc, s.d, r0, r1, last, s.scale, s.scale, lane);
}

// dK and dV of a tile of keys: the scores transposed, keys in rows, over all
// query rows and all query heads that read the key head.
template <int D>
__device__ void back_kv(bf16 *dk, i64 dks, bf16 *dv, i64 dvs, const bf16 *dout, const float *lse, const float *delta, const bf16 *q, const bf16 *k, const bf16 *v, const tile *tiles, const shape &s) {
	constexpr int BM = 64, BN = 32, L = D + 8, T = 128;
	extern __shared__ __align__(16) bf16 memory[];
	bf16 *sk = memory, *sv = sk + BM * L, *sq = sv + BM * L, *sd = sq + BN * L;
	__shared__ float se[BN], st[BN];
	__shared__ int sl[BN];
	const tile t = tiles[blockIdx.x];
	int g = blockIdx.y, group = s.heads / s.kv, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int from = s.cu[t.seq], keys = s.cu[t.seq + 1] - from, n = min(BM, keys - t.row);
	int begin = s.rows[t.seq], last = s.rows[t.seq + 1];
	int key0 = t.row + warp * 16 + lane / 4, key1 = key0 + 8;
	i64 w = (i64)s.heads * s.d;
	fetch<D, BM, T>(sk, k + (from + t.row) * s.ks + g * s.d, s.ks, n, s.d);
	fetch<D, BM, T>(sv, v + (from + t.row) * s.vs + g * s.d, s.vs, n, s.d);
	float ak[D / 8][4] = {}, av[D / 8][4] = {};
	const float f = s.scale * 1.44269504f;
	for (int h = g * group; h < (g + 1) * group; h++)
		for (int j = begin; j < last; j += BN) {
			int rows = min(BN, last - j);
			if (sees(s, t.seq, j + rows - 1, last) <= t.row) continue; // none of these rows sees a key of the tile
			__syncthreads();
			fetch<D, BN, T>(sq, q + j * s.qs + h * s.d, s.qs, rows, s.d);
			fetch<D, BN, T>(sd, dout + j * w + h * s.d, w, rows, s.d);
			commit();
			if (threadIdx.x < BN) {
				int r = j + threadIdx.x;
				se[threadIdx.x] = r < last ? lse[(i64)h * s.total + r] * 1.44269504f : 0;
				st[threadIdx.x] = r < last ? delta[(i64)h * s.total + r] : 0;
				sl[threadIdx.x] = sees(s, t.seq, r, last);
			}
			wait<0>();
			__syncthreads();
			float sc[BN / 8][4], dp[BN / 8][4];
			scores<D, BN>(sc, sk, warp * 16, sq, lane);
			scores<D, BN>(dp, sv, warp * 16, sd, lane);
#pragma unroll
			for (int c = 0; c < BN / 8; c++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					int r = c * 8 + lane % 4 * 2 + e;
					float p0 = key0 < sl[r] ? exp2f(sc[c][e] * f - se[r]) : 0, p1 = key1 < sl[r] ? exp2f(sc[c][e + 2] * f - se[r]) : 0;
					sc[c][e] = p0;
					sc[c][e + 2] = p1;
					dp[c][e] = p0 * (dp[c][e] - st[r]);
					dp[c][e + 2] = p1 * (dp[c][e + 2] - st[r]);
				}
			add<D, BN>(av, sc, sd, lane);
			add<D, BN>(ak, dp, sq, lane);
		}
	int end = from + keys;
	store<D>(dk + g * s.d, dks, ak, s.d, from + key0, from + key1, end, s.scale, s.scale, lane);
	store<D>(dv + g * s.d, dvs, av, s.d, from + key0, from + key1, end, 1, 1, lane);
}

#define ATTENTION(D)                                                                                                       \
	extern "C" __global__ void __launch_bounds__(128) attention_##D(bf16 *out, float *lse, const bf16 *q, const bf16 *k,   \
			const bf16 *v, const tile *tiles, SHAPE) {                                                                     \
		attend<D>(out, lse, q, k, v, tiles, MAKE_SHAPE);                                                                   \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(128) attention_back_q_##D(bf16 *dq, i64 dqs, const bf16 *dout,            \
			const float *lse, const float *delta, const bf16 *q, const bf16 *k, const bf16 *v, const tile *tiles, SHAPE) { \
		back_q<D>(dq, dqs, dout, lse, delta, q, k, v, tiles, MAKE_SHAPE);                                                  \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(128) attention_back_kv_##D(bf16 *dk, i64 dks, bf16 *dv, i64 dvs,          \
			const bf16 *dout, const float *lse, const float *delta, const bf16 *q, const bf16 *k, const bf16 *v,           \
			const tile *tiles, SHAPE) {                                                                                    \
		back_kv<D>(dk, dks, dv, dvs, dout, lse, delta, q, k, v, tiles, MAKE_SHAPE);                                        \
	}
ATTENTION(16)
ATTENTION(32)
ATTENTION(64)
ATTENTION(80)
ATTENTION(96)
ATTENTION(128)
