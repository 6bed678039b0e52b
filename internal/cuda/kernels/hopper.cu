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
struct ring {
	u32 base; // full, full, empty, empty
	__device__ __forceinline__ void init(int fillers, int takers) {
		for (int i = 0; i < 2; i++) {
			barrier_init(base + 8 * i, fillers);
			barrier_init(base + 16 + 8 * i, takers);
		}
	}
	__device__ __forceinline__ u32 full(int i) { return base + 8 * (i & 1); }
	__device__ __forceinline__ void await_full(int i) { barrier_wait(full(i), i >> 1 & 1); }
	__device__ __forceinline__ void await_empty(int i) { barrier_wait(full(i) + 16, (i >> 1 & 1) ^ 1); }
	__device__ __forceinline__ void release(int i) { barrier_arrive(full(i) + 16); }
};

// 2^x; 0 where that is below float32's normal numbers.
__device__ __forceinline__ float exp2_fast(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

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
		rk.init(1, 256);
		rv.init(1, 256);
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
		float z0 = x0 == -INF ? 0 : x0 * f, z1 = x1 == -INF ? 0 : x1 * f, c0 = exp2_fast(m0 * f - z0), c1 = exp2_fast(m1 * f - z1);
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
				x[0] = exp2_fast(x[0] * f - z);
				x[1] = exp2_fast(x[1] * f - z);
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

// attend for short sequences: a block takes a head of a whole sequence, whose keys and
// values are fetched once and stay. Its two warpgroups take tiles of 64 query rows by
// turns, 64 keys at a time; two blocks or more share a multiprocessor, so that some
// multiply while others take exponentials.
template <int D>
__device__ __forceinline__ void attend_short(bf16 *out, const map &q, const map &k, const map &v, const tile *tiles, const shape &s) {
	constexpr int B = 64, SIZE = B * D * 2;
	extern __shared__ __align__(1024) char memory[];
	const int seq = tiles[blockIdx.x].seq, h = blockIdx.y, g = h * s.kv / s.heads, group = threadIdx.x / 128;
	const int from = s.cu[seq], blocks = (s.cu[seq + 1] - from + B - 1) / B, begin = s.rows[seq], last = s.rows[seq + 1];
	u32 sq = ((shared_address(memory) + 1023) & ~1023) + group * SIZE, sk = sq + (2 - group) * SIZE, sv = sk + blocks * SIZE;
	__shared__ u64 barriers[18];
	u32 ready = shared_address(barriers) + 8 * group, fk = shared_address(barriers) + 16, fv = fk + 64;
	if (threadIdx.x == 0) {
		for (int i = 0; i < 18; i++) barrier_init(ready + 8 * i, 1);
		barriers_ready();
	}
	__syncthreads();
	const bool leads = threadIdx.x % 128 == 0;
	int row = group * B; // of the tile, in the sequence
	if (leads && begin + row < last) {
		barrier_expect(ready, SIZE);
		fetch<D, B>(sq, q, h, begin + row, ready);
	}
	if (threadIdx.x == 0)
		for (int i = 0; i < blocks; i++) {
			barrier_expect(fk + 8 * i, SIZE);
			fetch<D, B>(sk + i * SIZE, k, g, from + i * B, fk + 8 * i);
			barrier_expect(fv + 8 * i, SIZE);
			fetch<D, B>(sv + i * SIZE, v, g, from + i * B, fv + 8 * i);
		}
	__syncwarp();
	const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
	const float f = s.scale * 1.44269504f; // powers of two are faster than e's
	for (int turn = 0; begin + row < last; turn++, row += 2 * B) {
		int first = begin + row, n = min(B, last - first), rounds = (sees(s, seq, first + n - 1, last) + B - 1) / B;
		int r0 = first + warp * 16 + lane / 4, r1 = r0 + 8, lim0 = sees(s, seq, r0, last), lim1 = sees(s, seq, r1, last);
		float acc[D / 2], m0 = -INF, m1 = -INF, l0 = 0, l1 = 0;
#pragma unroll
		for (int i = 0; i < D / 2; i++) acc[i] = 0;
		barrier_wait(ready, turn & 1);
		for (int round = 0; round < rounds; round++) {
			int j = round * B;
			float sc[B / 2];
			barrier_wait(fk + 8 * round, 0);
			wgmma_fence();
#pragma unroll
			for (int i = 0; i < D / 16; i++) wgmma_shared(sc, columns<B>(sq, 0, i), columns<B>(sk + round * SIZE, 0, i), i == 0);
			wgmma_commit();
			wgmma_wait<0>();
			if (round == rounds - 1 && first + 2 * B < last) { // the group has read its queries: the next
				asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
				if (leads) {
					barrier_expect(ready, SIZE);
					fetch<D, B>(sq, q, h, first + 2 * B, ready);
				}
				__syncwarp();
			}

			float x0 = m0, x1 = m1;
			bool whole = j + B <= __shfl_sync(~0u, lim0, 0) && warp * 16 + 16 <= n; // the first row sees the fewest
			if (!whole) {
#pragma unroll
				for (int c = 0; c < B / 8; c++)
#pragma unroll
					for (int e = 0; e < 2; e++) {
						int key = j + c * 8 + lane % 4 * 2 + e;
						if (key >= lim0) sc[4 * c + e] = -INF;
						if (key >= lim1) sc[4 * c + 2 + e] = -INF;
					}
			}
#pragma unroll
			for (int c = 0; c < B / 8; c++) {
				x0 = fmaxf(x0, fmaxf(sc[4 * c], sc[4 * c + 1]));
				x1 = fmaxf(x1, fmaxf(sc[4 * c + 2], sc[4 * c + 3]));
			}
			for (int o = 1; o < 4; o <<= 1) {
				x0 = fmaxf(x0, __shfl_xor_sync(~0u, x0, o));
				x1 = fmaxf(x1, __shfl_xor_sync(~0u, x1, o));
			}
			float z0 = x0 == -INF ? 0 : x0 * f, z1 = x1 == -INF ? 0 : x1 * f, c0 = exp2_fast(m0 * f - z0), c1 = exp2_fast(m1 * f - z1);
			m0 = x0, m1 = x1;
			l0 *= c0, l1 *= c1;
#pragma unroll
			for (int c = 0; c < D / 8; c++) acc[4 * c] *= c0, acc[4 * c + 1] *= c0, acc[4 * c + 2] *= c1, acc[4 * c + 3] *= c1;
			u32 p[B / 16][4];
#pragma unroll
			for (int c = 0; c < B / 16; c++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
					float *x = sc + 8 * c + 2 * e; // row 0, row 1, row 0, row 1
					float z = e % 2 ? z1 : z0;
					x[0] = exp2_fast(x[0] * f - z);
					x[1] = exp2_fast(x[1] * f - z);
					if (e % 2) l1 += x[0] + x[1];
					else l0 += x[0] + x[1];
					p[c][e] = pack(x[0], x[1]);
				}
			barrier_wait(fv + 8 * round, 0);
			wgmma_fence();
#pragma unroll
			for (int c = 0; c < B / 16; c++) wgmma_registers(acc, p[c], rows16<B>(sv + round * SIZE, c));
			wgmma_commit();
			wgmma_wait<0>();
		}
		for (int o = 1; o < 4; o <<= 1) {
			l0 += __shfl_xor_sync(~0u, l0, o);
			l1 += __shfl_xor_sync(~0u, l1, o);
		}
		store<D>(out + h * D, (i64)s.heads * D, acc, r0, r1, last, 1 / l0, 1 / l1, lane);
	}
}

extern "C" __global__ void __launch_bounds__(256, 2) hopper_short_64(bf16 *out, float *, const __grid_constant__ map q,
		const __grid_constant__ map k, const __grid_constant__ map v, const tile *tiles, SHAPE) {
	attend_short<64>(out, q, k, v, tiles, MAKE_SHAPE);
}

// The backward pass takes keys in tiles of 128 and, for each, query rows in blocks
// of 64.
constexpr int TILE = 128, BLOCK = 64;

// Two numbers that belong to a query row each.
__device__ __forceinline__ float2 pair(const float *x, int i) { return *(const float2 *)(x + i); }

// seen is the last tile of which row block b of a sequence sees a key.
__device__ __forceinline__ int seen(const shape &s, int seq, int b) {
	int last = s.rows[seq + 1], j = s.rows[seq] + b * BLOCK;
	return (sees(s, seq, min(j + BLOCK, last) - 1, last) - 1) / TILE;
}

// first_block is the first block of rows that sees a key of the tile.
__device__ __forceinline__ int first_block(const shape &s, int seq, int tile, int blocks) {
	int lo = 0, hi = blocks;
	while (lo < hi) {
		int middle = (lo + hi) / 2;
		if (seen(s, seq, middle) < tile) lo = middle + 1;
		else hi = middle;
	}
	return lo;
}

// former is how many of a sequence's tiles are not in its latter half.
__device__ __forceinline__ int former(const shape &s, int seq) {
	int tiles = (s.cu[seq + 1] - s.cu[seq] + TILE - 1) / TILE;
	return tiles - tiles / 2;
}

// A block of threads takes two tiles, so that all have about the same to do: the
// i-th of a sequence takes the i-th tile from the end, which few rows see, and then
// the i-th from the start. span is one of the two and the order of its row blocks:
// [mid, blocks) upwards, then [begin, mid) downwards.
struct span {
	int keys, begin, mid, blocks; // keys: which tile
	__device__ __forceinline__ span(const shape &s, const tile &t, int part) {
		int tiles = (s.cu[t.seq + 1] - s.cu[t.seq] + TILE - 1) / TILE, i = t.row / TILE;
		blocks = (s.rows[t.seq + 1] - s.rows[t.seq] + BLOCK - 1) / BLOCK;
		keys = part == 0 ? tiles - 1 - i : i;
		begin = first_block(s, t.seq, keys, blocks);
		mid = part == 0 ? begin : max(begin, first_block(s, t.seq, former(s, t.seq), blocks));
	}
	__device__ __forceinline__ int block(int x) const { return x < blocks - mid ? mid + x : blocks - 1 - x; }
};
// first_part skips the latter half's tile where it is the middle one, which has no
// partner.
__device__ __forceinline__ int first_part(const shape &s, const tile &t) { return t.row / TILE * 2 + 1 == (s.cu[t.seq + 1] - s.cu[t.seq] + TILE - 1) / TILE; }

// dK and dV of two tiles of keys over the row blocks of every query head that reads
// the key head, and these tiles' parts of dQ. The parts of a block of rows are added
// in memory, those of the latter tiles to one sum and those of the former to
// another, each in the order of the threads' blocks, which turns keeps: it counts
// who was there. A block of threads waits only for such as began before it, and in
// this order of row blocks they come past the same rows at least two rounds earlier.
// A sum is laid out as the threads hold it.
template <int D>
__device__ __forceinline__ void back(bf16 *dk, i64 dks, bf16 *dv, i64 dvs, float *sums, u32 *turns, const map &dout, const float *lse, const float *delta,
		const map &q, const map &k, const map &v, const tile *tiles, int g0, int slots, const shape &s) {
	constexpr int SIZE = TILE * D * 2, PART = BLOCK * D * 2, SLOPES = TILE * BLOCK * 2, SUMS = BLOCK * D * 4, GIVERS = D * 2;
	extern __shared__ __align__(1024) char memory[];
	__shared__ __align__(8) float se[2][BLOCK], st[2][BLOCK];
	__shared__ int sl[2][BLOCK];
	__shared__ u32 ticket;
	u32 sk = (shared_address(memory) + 1023) & ~1023, sv = sk + SIZE, sq = sv + SIZE, sd = sq + 2 * PART, sz = sd + 2 * PART, ss = sz + 2 * SLOPES;
	__shared__ u64 barriers[10];
	u32 bar = shared_address(barriers);
	ring both = {bar}, out = {bar + 32};
	u32 ready = bar + 64, done = bar + 72; // of a tile of keys
	if (threadIdx.x == 0) {
		ticket = atomicAdd(turns, 1);
		both.init(33, 256);
		out.init(GIVERS, 1);
		barrier_init(ready, 1);
		barrier_init(done, 256);
		barriers_ready();
	}
	__syncthreads();
	const tile t = tiles[ticket % gridDim.x];
	int g = ticket / gridDim.x, heads = s.heads / s.kv;
	int from = s.cu[t.seq], first = s.rows[t.seq], last = s.rows[t.seq + 1];
	if (threadIdx.x < 128) {
		fewer_registers<24>();
		int i = 0;
		if (threadIdx.x == 0) {
#pragma unroll 1
			for (int part = first_part(s, t), pass = 0; part < 2; part++, pass++) {
				span a(s, t, part);
				if (pass) barrier_wait(done, 0);
				barrier_expect(ready, 2 * SIZE);
				fetch<D, TILE>(sk, k, g0 + g, from + a.keys * TILE, ready);
				fetch<D, TILE>(sv, v, g0 + g, from + a.keys * TILE, ready);
#pragma unroll 1
				for (int h = 0; h < heads; h++)
#pragma unroll 1
					for (int x = 0; x < a.blocks - a.begin; x++, i++) {
						int j = first + a.block(x) * BLOCK, head = (g0 + g) * heads + h;
						both.await_empty(i);
						barrier_expect(both.full(i), 2 * PART);
						fetch<D, BLOCK>(sq + (i & 1) * PART, q, head, j, both.full(i));
						fetch<D, BLOCK>(sd + (i & 1) * PART, dout, head, j, both.full(i));
					}
			}
		} else if (threadIdx.x / 32 == 1) { // what belongs to the rows
#pragma unroll 1
			for (int part = first_part(s, t); part < 2; part++) {
				span a(s, t, part);
#pragma unroll 1
				for (int h = 0; h < heads; h++) {
					const float *l = lse + (i64)((g0 + g) * heads + h) * s.total, *d = delta + (l - lse);
#pragma unroll 1
					for (int x = 0; x < a.blocks - a.begin; x++, i++) {
						int j = first + a.block(x) * BLOCK, stage = i & 1;
						both.await_empty(i);
#pragma unroll
						for (int c = threadIdx.x % 32; c < BLOCK; c += 32) {
							int r = j + c;
							se[stage][c] = r < last ? l[r] * 1.44269504f : 0;
							st[stage][c] = r < last ? d[r] : 0;
							sl[stage][c] = sees(s, t.seq, r, last);
						}
						barrier_arrive(both.full(i));
					}
				}
			}
		} else if (threadIdx.x == 64) { // adds to dQ
#pragma unroll 1
			for (int part = first_part(s, t); part < 2; part++) {
				span a(s, t, part);
#pragma unroll 1
				for (int h = 0; h < heads; h++)
#pragma unroll 1
					for (int x = 0; x < a.blocks - a.begin; x++, i++) {
						int b = a.block(x);
						u32 before = part ? a.keys : seen(s, t.seq, b) - a.keys, turn, place = ss + (i & 1) * SUMS;
						i64 at = ((i64)(g * heads + h) * slots + (first / BLOCK + b + t.seq)) * 2 + part;
						float *to = sums + at * (BLOCK * D);
						u32 *counter = turns + 1 + at;
						out.await_full(i);
						if (before == 0) {
							asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(place), "n"(SUMS) : "memory");
						} else {
							do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(turn) : "l"(counter) : "memory");
							while (turn != before);
							asm volatile("fence.proxy.async;" ::: "memory");
							asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(place), "n"(SUMS) : "memory");
						}
						asm volatile("cp.async.bulk.commit_group;" ::: "memory");
						asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
						asm volatile("fence.proxy.async;" ::: "memory");
						asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
						out.release(i);
					}
			}
		}
		return;
	}
	more_registers<240>();
	int lane = threadIdx.x % 32, warp = __shfl_sync(~0u, threadIdx.x / 32, 0) - 4, group = warp / 4, own = threadIdx.x % 128;
	// Where stmatrix puts this thread's row of slopes, in chunks of 16 bytes that are swizzled.
	u32 row = warp * 16 + lane / 8 % 2 * 8 + lane % 8, half = lane / 16, turned = lane % 8;
	const float f = s.scale * 1.44269504f;
	int round = 0;
#pragma unroll 1
	for (int part = first_part(s, t), pass = 0; part < 2; part++, pass++) {
		int key0, rest;
		{
			span a(s, t, part);
			key0 = a.keys * TILE;
			rest = (a.blocks - a.begin) * heads;
		}
		float ak[D / 2], av[D / 2];
#pragma unroll
		for (int i = 0; i < D / 2; i++) ak[i] = av[i] = 0;
		barrier_wait(ready, pass);
#pragma unroll 1
		for (; rest > 0; rest--, round++) {
			int stage = round & 1;
			both.await_full(round);
			float sc[BLOCK / 2], dp[BLOCK / 2];
			wgmma_fence();
#pragma unroll
			for (int i = 0; i < D / 16; i++) wgmma_shared(sc, columns<TILE>(sk, group * 64, i), columns<BLOCK>(sq + stage * PART, 0, i), i == 0);
			wgmma_commit();
#pragma unroll
			for (int i = 0; i < D / 16; i++) wgmma_shared(dp, columns<TILE>(sv, group * 64, i), columns<BLOCK>(sd + stage * PART, 0, i), i == 0);
			wgmma_commit();
			wgmma_wait<1>();
			hold(sc);
			// The first row sees the fewest keys, and rows beyond the last none.
			bool whole = sl[stage][0] >= key0 + TILE && sl[stage][BLOCK - 1] > 0;
			u32 p[BLOCK / 16][4], z[BLOCK / 16][4];
#pragma unroll
			for (int c = 0; c < BLOCK / 16; c++)
#pragma unroll
				for (int e = 0; e < 4; e++) {
					float *x = sc + 8 * c + 2 * e;
					int r = c * 16 + e / 2 * 8 + lane % 4 * 2;
					float2 l = pair(se[stage], r);
					x[0] = exp2_fast(x[0] * f - l.x);
					x[1] = exp2_fast(x[1] * f - l.y);
					if (!whole) {
						int key = key0 + warp * 16 + lane / 4 + e % 2 * 8;
						if (key >= sl[stage][r]) x[0] = 0;
						if (key >= sl[stage][r + 1]) x[1] = 0;
					}
					p[c][e] = pack(x[0], x[1]);
				}
			wgmma_fence();
#pragma unroll
			for (int c = 0; c < BLOCK / 16; c++) wgmma_registers(av, p[c], rows16<BLOCK>(sd + stage * PART, c));
			wgmma_commit();
			wgmma_wait<1>();
			hold(dp);
#pragma unroll
			for (int c = 0; c < BLOCK / 16; c++) {
#pragma unroll
				for (int e = 0; e < 4; e++) {
					int i = 8 * c + 2 * e;
					float2 d = pair(st[stage], c * 16 + e / 2 * 8 + lane % 4 * 2);
					z[c][e] = pack(sc[i] * (dp[i] - d.x), sc[i + 1] * (dp[i + 1] - d.y));
				}
				asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(sz + stage * SLOPES + row * 128 + ((2 * c + half) ^ turned) * 16),
					"r"(z[c][0]), "r"(z[c][1]), "r"(z[c][2]), "r"(z[c][3]) : "memory");
			}
			fence_async();
			asm volatile("bar.sync 1, 256;" ::: "memory");
			// Of dQ a warpgroup makes 64 columns; where there are no more, both make the same
			// and give it every other round.
			float dq[BLOCK / 2];
			wgmma_fence();
#pragma unroll
			for (int i = 0; i < TILE / 16; i++)
				wgmma_turned(dq, rows16<TILE>(sz + stage * SLOPES, i), rows16<TILE>(sk + (D == 128 ? group * (TILE * 128) : 0), i), i == 0);
			wgmma_commit();
#pragma unroll
			for (int c = 0; c < BLOCK / 16; c++) wgmma_registers(ak, z[c], rows16<BLOCK>(sq + stage * PART, c));
			wgmma_commit();
			wgmma_wait<1>();
			hold(dq);
			hold(p);
			if (D == 128 || stage == group) {
				out.await_empty(round);
				u32 to = ss + stage * SUMS + (D == 128 ? group * (BLOCK * 64 * 4) : 0) + own * 16;
#pragma unroll
				for (int c = 0; c < 8; c++)
					asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + c * 2048), "f"(dq[4 * c]), "f"(dq[4 * c + 1]), "f"(dq[4 * c + 2]), "f"(dq[4 * c + 3]) : "memory");
				fence_async();
				barrier_arrive(out.full(round));
			}
			wgmma_wait<0>();
			hold(z);
			both.release(round);
		}
		barrier_arrive(done);
		int end = s.cu[t.seq + 1], r0 = from + key0 + warp * 16 + lane / 4;
		store<D>(dk + (g0 + g) * D, dks, ak, r0, r0 + 8, end, s.scale, s.scale, lane);
		store<D>(dv + (g0 + g) * D, dvs, av, r0, r0 + 8, end, 1, 1, lane);
	}
}

// dQ of a tile of 128 rows from its sums. Four threads that hold eight columns of a
// row exchange them, so that each writes 16 bytes.
template <int D>
__device__ __forceinline__ void back_sums(bf16 *dq, i64 dqs, const float *sums, const tile *tiles, int h0, int slots, const shape &s) {
	const tile t = tiles[blockIdx.x];
	int lane = threadIdx.x % 32, own = threadIdx.x % 128, last = s.rows[t.seq + 1];
	int b = t.row / BLOCK + threadIdx.x / 128, j = s.rows[t.seq] + b * BLOCK, r0 = j + own / 32 * 16 + lane / 4, r1 = r0 + 8;
	if (j >= last) return;
	const float4 *early = (const float4 *)(sums + (((i64)blockIdx.y * slots + s.rows[t.seq] / BLOCK + b + t.seq) * 2 + 1) * (BLOCK * D)) + own;
	const float4 *late = early - BLOCK * D / 4;
	bool two = seen(s, t.seq, b) >= former(s, t.seq);
	bf16 *to = dq + (h0 + blockIdx.y) * D + lane % 4 * 8;
#pragma unroll
	for (int c0 = 0; c0 < D / 8; c0 += 4) {
		u32 lo[4], hi[4];
#pragma unroll
		for (int c = 0; c < 4; c++) {
			float4 x = early[(c0 + c) * 128], y = two ? late[(c0 + c) * 128] : make_float4(0, 0, 0, 0);
			lo[c] = pack((x.x + y.x) * s.scale, (x.y + y.y) * s.scale);
			hi[c] = pack((x.z + y.z) * s.scale, (x.w + y.w) * s.scale);
		}
		quad_turn(lo, lane);
		quad_turn(hi, lane);
		if (r0 < last) *(uint4 *)(to + r0 * dqs + c0 * 8) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
		if (r1 < last) *(uint4 *)(to + r1 * dqs + c0 * 8) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
	}
}

#define HOPPER(D)                                                                                                          \
	extern "C" __global__ void __launch_bounds__(384, 1) hopper_##D(bf16 *out, float *lse, const __grid_constant__ map q,  \
			const __grid_constant__ map k, const __grid_constant__ map v, const tile *tiles, SHAPE) {                      \
		attend<D>(out, lse, q, k, v, tiles, MAKE_SHAPE);                                                                   \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(384, 1) hopper_back_##D(bf16 *dk, i64 dks, bf16 *dv, i64 dvs,             \
			float *sums, u32 *turns, const __grid_constant__ map dout, const float *lse, const float *delta,               \
			const __grid_constant__ map q, const __grid_constant__ map k, const __grid_constant__ map v,                   \
			const tile *tiles, int g0, int slots, SHAPE) {                                                                 \
		back<D>(dk, dks, dv, dvs, sums, turns, dout, lse, delta, q, k, v, tiles, g0, slots, MAKE_SHAPE);                   \
	}                                                                                                                      \
	extern "C" __global__ void __launch_bounds__(256) hopper_back_sums_##D(bf16 *dq, i64 dqs, const float *sums,           \
			const tile *tiles, int h0, int slots, SHAPE) {                                                                 \
		back_sums<D>(dq, dqs, sums, tiles, h0, slots, MAKE_SHAPE);                                                         \
	}
HOPPER(64)
HOPPER(128)
#endif
