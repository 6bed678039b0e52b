#include "attention.cuh"
#include "wgmma.cuh"

// Attention for compute capability 9.0 by warpgroup products, head dimensions 64
// and 128: the computation of attention.cu with tiles of 128 rows. Of the three
// warpgroups of a block one fetches and two compute 64 rows each, without waiting
// for each other: while one takes exponentials the other's products run. Operands
// lie in shared memory as blocks of 64 columns; the probabilities and their
// gradients stay in registers, where they are the left operand of the next
// product. That is why the scores are made twice in the backward pass, once with
// queries and once with keys as rows: nothing is exchanged between threads, and
// nothing is summed in an order that changes.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// map tells the copy engine where a matrix lies: CUtensorMap of the driver, with
// boxes of 64 columns and the 128-byte swizzle.
struct alignas(64) map { char opaque[128]; };

// fetch begins to copy rows [row, row+R) of a head's D columns to blocks
// [D/64][R][64], and says so to the barrier. Rows beyond the end of the matrix
// are zeros; those beyond the end of the sequence are another's, and masked.
template <int D, int R>
__device__ __forceinline__ void fetch(u32 to, const map &m, int head, int row, u32 full) {
#pragma unroll
	for (int b = 0; b < D / 64; b++)
		asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
			::"r"(to + b * R * 128), "l"(&m), "r"(head * D + b * 64), "r"(row), "r"(full) : "memory");
}

// Columns [16·i, 16·i+16) of rows from on of blocks of R rows, k-major.
template <int R> __device__ __forceinline__ u64 columns(u32 block, int from, int i) {
	return descriptor(block + i / 4 * (R * 128) + from * 128 + i % 4 * 32);
}
// Rows [16·i, 16·i+16), all columns, for wgmma_registers.
template <int R> __device__ __forceinline__ u64 rows16(u32 block, int i) { return descriptor(block + i * 2048, R * 128); }

// Barriers in shared memory: a full one for every stage, on which those who fill
// it arrive and the bytes that were announced, and an empty one, on which the
// 256 computing threads arrive. Stage i of a ring of two is used for the i/2-th
// time in phase i/2.
__device__ __forceinline__ void barrier_init(u32 b, int count) { asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b), "r"(count)); }
__device__ __forceinline__ void barrier_arrive(u32 b) { asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(b) : "memory"); }
__device__ __forceinline__ void barrier_expect(u32 b, int bytes) {
	asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }" ::"r"(b), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(u32 b, int parity) {
	asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra done; bra again; done: }" ::"r"(b), "r"(parity) : "memory");
}
__device__ __forceinline__ void barriers_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

struct ring {
	u32 base; // full, full, empty, empty
	__device__ __forceinline__ void init(int fillers) {
		for (int i = 0; i < 2; i++) {
			barrier_init(base + 8 * i, fillers);
			barrier_init(base + 16 + 8 * i, 256);
		}
	}
	__device__ __forceinline__ u32 full(int i) { return base + 8 * (i & 1); }
	__device__ __forceinline__ void await_full(int i) { barrier_wait(full(i), i >> 1 & 1); }
	__device__ __forceinline__ void await_empty(int i) { barrier_wait(full(i) + 16, (i >> 1 & 1) ^ 1); }
	__device__ __forceinline__ void release(int i) { barrier_arrive(full(i) + 16); }
};

template <int N> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// store writes rows r0 and r1, where they are before last, each times its factor.
template <int D>
__device__ __forceinline__ void store(bf16 *to, i64 stride, const float (&x)[D / 2], int r0, int r1, int last, float f0, float f1, int lane) {
#pragma unroll
	for (int c = 0; c < D / 8; c++) {
		int col = c * 8 + lane % 4 * 2;
		if (r0 < last) *(u32 *)(to + r0 * stride + col) = pack(x[4 * c] * f0, x[4 * c + 1] * f0);
		if (r1 < last) *(u32 *)(to + r1 * stride + col) = pack(x[4 * c + 2] * f1, x[4 * c + 3] * f1);
	}
}

template <int D>
__device__ __forceinline__ void attend(bf16 *out, float *lse, const map &q, const map &k, const map &v, const tile *tiles, const shape &s) {
	constexpr int BM = 128, BN = 128, SIZE = 128 * D * 2;
	extern __shared__ __align__(1024) char memory[];
	u32 sq = (shared_address(memory) + 1023) & ~1023, sk = sq + SIZE, sv = sk + 2 * SIZE;
	const tile t = tiles[blockIdx.x];
	int h = blockIdx.y, g = h * s.kv / s.heads;
	int first = s.rows[t.seq] + t.row, last = s.rows[t.seq + 1], from = s.cu[t.seq];
	int n = min(BM, last - first), rounds = (sees(s, t.seq, first + n - 1, last) + BN - 1) / BN;
	__shared__ u64 barriers[9];
	u32 bar = shared_address(barriers);
	ring rk = {bar}, rv = {bar + 32};
	u32 ready = bar + 64;
	if (threadIdx.x == 0) {
		rk.init(1);
		rv.init(1);
		barrier_init(ready, 1);
		barriers_ready();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x) return;
		barrier_expect(ready, SIZE);
		fetch<D, BM>(sq, q, h, first, ready);
		for (int i = 0; i < rounds; i++) {
			rk.await_empty(i);
			barrier_expect(rk.full(i), SIZE);
			fetch<D, BN>(sk + (i & 1) * SIZE, k, g, from + i * BN, rk.full(i));
			rv.await_empty(i);
			barrier_expect(rv.full(i), SIZE);
			fetch<D, BN>(sv + (i & 1) * SIZE, v, g, from + i * BN, rv.full(i));
		}
		return;
	}
	more_registers<232>();
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, group = warp / 4;
	int r0 = first + warp * 16 + lane / 4, r1 = r0 + 8, lim0 = sees(s, t.seq, r0, last), lim1 = sees(s, t.seq, r1, last);
	float acc[D / 2], m0 = -INF, m1 = -INF, l0 = 0, l1 = 0;
#pragma unroll
	for (int i = 0; i < D / 2; i++) acc[i] = 0;
	const float f = s.scale * 1.44269504f; // powers of two are faster than e's
	barrier_wait(ready, 0);
	for (int round = 0; round < rounds; round++) {
		int j = round * BN, stage = round & 1;
		float sc[BN / 2];
		rk.await_full(round);
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < D / 16; i++) wgmma_shared(sc, columns<BM>(sq, group * 64, i), columns<BN>(sk + stage * SIZE, 0, i), i == 0);
		wgmma_commit();
		wgmma_wait<0>();
		rk.release(round);

		float x0 = m0, x1 = m1;
		bool whole = j + BN <= __shfl_sync(~0u, lim0, 0) && warp * 16 + 16 <= n; // the first row sees the fewest
		if (!whole) {
#pragma unroll
			for (int c = 0; c < BN / 8; c++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					int key = j + c * 8 + lane % 4 * 2 + e;
					if (key >= lim0) sc[4 * c + e] = -INF;
					if (key >= lim1) sc[4 * c + 2 + e] = -INF;
				}
		}
#pragma unroll
		for (int c = 0; c < BN / 8; c++) {
			x0 = fmaxf(x0, fmaxf(sc[4 * c], sc[4 * c + 1]));
			x1 = fmaxf(x1, fmaxf(sc[4 * c + 2], sc[4 * c + 3]));
		}
		for (int o = 1; o < 4; o <<= 1) {
			x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, o));
			x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, o));
		}
		float z0 = x0 == -INF ? 0 : x0 * f, z1 = x1 == -INF ? 0 : x1 * f, c0 = exp2f(m0 * f - z0), c1 = exp2f(m1 * f - z1);
		m0 = x0, m1 = x1;
		l0 *= c0, l1 *= c1;
#pragma unroll
		for (int c = 0; c < D / 8; c++) acc[4 * c] *= c0, acc[4 * c + 1] *= c0, acc[4 * c + 2] *= c1, acc[4 * c + 3] *= c1;
		u32 p[BN / 16][4];
#pragma unroll
		for (int c = 0; c < BN / 16; c++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				float *x = sc + 8 * c + 2 * e; // row 0, row 1, row 0, row 1
				float z = e % 2 ? z1 : z0;
				x[0] = exp2f(x[0] * f - z);
				x[1] = exp2f(x[1] * f - z);
				if (e % 2) l1 += x[0] + x[1];
				else l0 += x[0] + x[1];
				p[c][e] = pack(x[0], x[1]);
			}
		rv.await_full(round);
		wgmma_fence();
#pragma unroll
		for (int c = 0; c < BN / 16; c++) wgmma_registers(acc, p[c], rows16<BN>(sv + stage * SIZE, c));
		wgmma_commit();
		wgmma_wait<0>();
		rv.release(round);
	}
	for (int o = 1; o < 4; o <<= 1) {
		l0 += __shfl_xor_sync(~0u, l0, o);
		l1 += __shfl_xor_sync(~0u, l1, o);
	}
	store<D>(out + h * D, (i64)s.heads * D, acc, r0, r1, last, 1 / l0, 1 / l1, lane);
	if (!lse || lane % 4) return;
	if (r0 < last) lse[(i64)h * s.total + r0] = m0 * s.scale + __logf(l0);
	if (r1 < last) lse[(i64)h * s.total + r1] = m1 * s.scale + __logf(l1);
}

// dQ of a tile of 128 query rows, 64 keys at a time.
template <int D>
__device__ __forceinline__ void back_q(bf16 *dq, i64 dqs, const map &dout, const float *lse, const float *delta, const map &q, const map &k, const map &v, const tile *tiles, const shape &s) {
	constexpr int BM = 128, BN = 64, SIZE = BM * D * 2, PART = BN * D * 2;
	extern __shared__ __align__(1024) char memory[];
	u32 sq = (shared_address(memory) + 1023) & ~1023, sd = sq + SIZE, sk = sd + SIZE, sv = sk + 2 * PART;
	const tile t = tiles[blockIdx.x];
	int h = blockIdx.y, g = h * s.kv / s.heads;
	int first = s.rows[t.seq] + t.row, last = s.rows[t.seq + 1], from = s.cu[t.seq];
	int n = min(BM, last - first), rounds = (sees(s, t.seq, first + n - 1, last) + BN - 1) / BN;
	__shared__ u64 barriers[5];
	u32 bar = shared_address(barriers);
	ring both = {bar};
	u32 ready = bar + 32;
	if (threadIdx.x == 0) {
		both.init(1);
		barrier_init(ready, 1);
		barriers_ready();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x) return;
		barrier_expect(ready, 2 * SIZE);
		fetch<D, BM>(sq, q, h, first, ready);
		fetch<D, BM>(sd, dout, h, first, ready);
		for (int i = 0; i < rounds; i++) {
			both.await_empty(i);
			barrier_expect(both.full(i), 2 * PART);
			fetch<D, BN>(sk + (i & 1) * PART, k, g, from + i * BN, both.full(i));
			fetch<D, BN>(sv + (i & 1) * PART, v, g, from + i * BN, both.full(i));
		}
		return;
	}
	more_registers<232>();
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, group = warp / 4;
	int r0 = first + warp * 16 + lane / 4, r1 = r0 + 8, lim0 = sees(s, t.seq, r0, last), lim1 = sees(s, t.seq, r1, last);
	const float *lh = lse + (i64)h * s.total, *dh = delta + (i64)h * s.total;
	float e0 = r0 < last ? lh[r0] * 1.44269504f : 0, e1 = r1 < last ? lh[r1] * 1.44269504f : 0;
	float t0 = r0 < last ? dh[r0] : 0, t1 = r1 < last ? dh[r1] : 0;
	float acc[D / 2];
#pragma unroll
	for (int i = 0; i < D / 2; i++) acc[i] = 0;
	const float f = s.scale * 1.44269504f;
	barrier_wait(ready, 0);
	for (int round = 0; round < rounds; round++) {
		int j = round * BN, stage = round & 1;
		both.await_full(round);
		float sc[BN / 2], dp[BN / 2];
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < D / 16; i++) wgmma_shared(sc, columns<BM>(sq, group * 64, i), columns<BN>(sk + stage * PART, 0, i), i == 0);
#pragma unroll
		for (int i = 0; i < D / 16; i++) wgmma_shared(dp, columns<BM>(sd, group * 64, i), columns<BN>(sv + stage * PART, 0, i), i == 0);
		wgmma_commit();
		wgmma_wait<0>();
		bool whole = j + BN <= __shfl_sync(~0u, lim0, 0) && warp * 16 + 16 <= n;
		u32 p[BN / 16][4];
#pragma unroll
		for (int c = 0; c < BN / 16; c++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				float y[2];
#pragma unroll
				for (int o = 0; o < 2; o++) {
					int i = 8 * c + 2 * e + o, key = j + c * 16 + e / 2 * 8 + lane % 4 * 2 + o;
					float x = exp2f(sc[i] * f - (e % 2 ? e1 : e0));
					if (!whole && key >= (e % 2 ? lim1 : lim0)) x = 0;
					y[o] = x * (dp[i] - (e % 2 ? t1 : t0));
				}
				p[c][e] = pack(y[0], y[1]);
			}
		wgmma_fence();
#pragma unroll
		for (int c = 0; c < BN / 16; c++) wgmma_registers(acc, p[c], rows16<BN>(sk + stage * PART, c));
		wgmma_commit();
		wgmma_wait<0>();
		both.release(round);
	}
	store<D>(dq + h * D, dqs, acc, r0, r1, last, s.scale, s.scale, lane);
}

// dK and dV of a tile of 128 keys, over 64 query rows at a time of every query
// head that reads the key head.
template <int D>
__device__ __forceinline__ void back_kv(bf16 *dk, i64 dks, bf16 *dv, i64 dvs, const map &dout, const float *lse, const float *delta, const map &q, const map &k, const map &v, const tile *tiles, const shape &s) {
	constexpr int BM = 128, BN = 64, SIZE = BM * D * 2, PART = BN * D * 2;
	extern __shared__ __align__(1024) char memory[];
	__shared__ float se[2][BN], st[2][BN];
	__shared__ int sl[2][BN];
	u32 sk = (shared_address(memory) + 1023) & ~1023, sv = sk + SIZE, sq = sv + SIZE, sd = sq + 2 * PART;
	const tile t = tiles[blockIdx.x];
	int g = blockIdx.y, heads = s.heads / s.kv;
	int from = s.cu[t.seq], keys = s.cu[t.seq + 1] - from;
	int begin = s.rows[t.seq], last = s.rows[t.seq + 1];
	// The first block of rows in which some row sees a key of the tile.
	while (begin < last && sees(s, t.seq, min(begin + BN, last) - 1, last) <= t.row) begin += BN;
	int blocks = (last - begin + BN - 1) / BN, rounds = max(0, blocks) * heads;
	__shared__ u64 barriers[5];
	u32 bar = shared_address(barriers);
	ring both = {bar};
	u32 ready = bar + 32;
	if (threadIdx.x == 0) {
		both.init(33);
		barrier_init(ready, 1);
		barriers_ready();
	}
	__syncthreads();
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x == 0) {
			barrier_expect(ready, 2 * SIZE);
			fetch<D, BM>(sk, k, g, from + t.row, ready);
			fetch<D, BM>(sv, v, g, from + t.row, ready);
			for (int i = 0; i < rounds; i++) {
				int h = g * heads + i / blocks, j = begin + i % blocks * BN;
				both.await_empty(i);
				barrier_expect(both.full(i), 2 * PART);
				fetch<D, BN>(sq + (i & 1) * PART, q, h, j, both.full(i));
				fetch<D, BN>(sd + (i & 1) * PART, dout, h, j, both.full(i));
			}
		} else if (threadIdx.x / 32 == 1) { // what belongs to the rows
			for (int i = 0; i < rounds; i++) {
				int h = g * heads + i / blocks, j = begin + i % blocks * BN, stage = i & 1;
				both.await_empty(i);
				for (int c = threadIdx.x % 32; c < BN; c += 32) {
					int r = j + c;
					se[stage][c] = r < last ? lse[(i64)h * s.total + r] * 1.44269504f : 0;
					st[stage][c] = r < last ? delta[(i64)h * s.total + r] : 0;
					sl[stage][c] = sees(s, t.seq, r, last);
				}
				barrier_arrive(both.full(i));
			}
		}
		return;
	}
	more_registers<232>();
	int lane = threadIdx.x % 32, warp = threadIdx.x / 32 - 4, group = warp / 4;
	int key0 = t.row + warp * 16 + lane / 4, key1 = key0 + 8;
	float ak[D / 2], av[D / 2];
#pragma unroll
	for (int i = 0; i < D / 2; i++) ak[i] = av[i] = 0;
	const float f = s.scale * 1.44269504f;
	barrier_wait(ready, 0);
	for (int round = 0; round < rounds; round++) {
		int stage = round & 1;
		both.await_full(round);
		float sc[BN / 2], dp[BN / 2];
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < D / 16; i++) wgmma_shared(sc, columns<BM>(sk, group * 64, i), columns<BN>(sq + stage * PART, 0, i), i == 0);
#pragma unroll
		for (int i = 0; i < D / 16; i++) wgmma_shared(dp, columns<BM>(sv, group * 64, i), columns<BN>(sd + stage * PART, 0, i), i == 0);
		wgmma_commit();
		wgmma_wait<0>();
		u32 p[BN / 16][4], z[BN / 16][4];
#pragma unroll
		for (int c = 0; c < BN / 16; c++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				float x[2], y[2];
#pragma unroll
				for (int o = 0; o < 2; o++) {
					int i = 8 * c + 2 * e + o, r = c * 16 + e / 2 * 8 + lane % 4 * 2 + o;
					x[o] = (e % 2 ? key1 : key0) < sl[stage][r] ? exp2f(sc[i] * f - se[stage][r]) : 0;
					y[o] = x[o] * (dp[i] - st[stage][r]);
				}
				p[c][e] = pack(x[0], x[1]);
				z[c][e] = pack(y[0], y[1]);
			}
		wgmma_fence();
#pragma unroll
		for (int c = 0; c < BN / 16; c++) wgmma_registers(av, p[c], rows16<BN>(sd + stage * PART, c));
#pragma unroll
		for (int c = 0; c < BN / 16; c++) wgmma_registers(ak, z[c], rows16<BN>(sq + stage * PART, c));
		wgmma_commit();
		wgmma_wait<0>();
		both.release(round);
	}
	int end = from + keys;
	store<D>(dk + g * D, dks, ak, from + key0, from + key1, end, s.scale, s.scale, lane);
	store<D>(dv + g * D, dvs, av, from + key0, from + key1, end, 1, 1, lane);
}

#define HOPPER(D)                                                                                                          \
	extern "C" __global__ void __launch_bounds__(384, 1) hopper_##D(bf16 *out, float *lse, const __grid_constant__ map q,  \
			const __grid_constant__ map k, const __grid_constant__ map v, const tile *tiles, SHAPE) {                      \
		attend<D>(out, lse, q, k, v, tiles, MAKE_SHAPE);                                                                   \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(384, 1) hopper_back_q_##D(bf16 *dq, i64 dqs,                              \
			const __grid_constant__ map dout, const float *lse, const float *delta, const __grid_constant__ map q,         \
			const __grid_constant__ map k, const __grid_constant__ map v, const tile *tiles, SHAPE) {                      \
		back_q<D>(dq, dqs, dout, lse, delta, q, k, v, tiles, MAKE_SHAPE);                                                  \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(384, 1) hopper_back_kv_##D(bf16 *dk, i64 dks, bf16 *dv, i64 dvs,          \
			const __grid_constant__ map dout, const float *lse, const float *delta, const __grid_constant__ map q,         \
			const __grid_constant__ map k, const __grid_constant__ map v, const tile *tiles, SHAPE) {                      \
		back_kv<D>(dk, dks, dv, dvs, dout, lse, delta, q, k, v, tiles, MAKE_SHAPE);                                        \
	}
HOPPER(64)
HOPPER(128)
#endif
