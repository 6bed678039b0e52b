#include "search_wgmma.cuh"
#include "cluster.cuh"

// The scan of many queries for compute capability 9.0, by warpgroup products: the
// computation of search.cu's tiles. Blocks stay and take tile after tile, all
// tiles of queries for some rows, then the next rows, so that rows are read from
// memory once. One thread fetches 128 bytes of every query and row of a tile at a
// time into a ring of stages, also those of the next tile while the candidates of
// this one are picked; two warpgroups multiply. Where the tiles of queries are
// pairs, two blocks take one together, each fetches half of the rows for both, and
// a stage is fetched into when it is free in both.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// QUERIES of a tile are 128: each warpgroup takes 64 and all 256 rows; or 64: each
// takes all and half of the rows.
template <int KIND, int QUERIES, int BLOCKS>
__device__ __forceinline__ void warpgroup_scan(const map &queries, const map &rows, i64 lo, i64 hi, int chunks, int qtiles, const u32 *thresholds, const candidates &to) {
	typedef typename sum_of<KIND>::type T;
	constexpr int ROWS = 256, N = QUERIES == 128 ? 256 : 128, A = QUERIES * 128, B = ROWS * 128, STAGES = QUERIES == 128 ? 4 : 5;
	extern __shared__ __align__(1024) char memory[];
	u32 base = (shared_address(memory) + 1023) & ~1023;
	__shared__ u64 barriers[2 * STAGES];
	u32 full = shared_address(barriers), empty = full + 8 * STAGES;
	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			barrier_init(full + 8 * i, 1);
			barrier_init(empty + 8 * i, 8 * BLOCKS);
		}
		barriers_ready();
	}
	if constexpr (BLOCKS == 1) __syncthreads();
	else cluster_sync();
	int rank = BLOCKS == 1 ? 0 : block_rank(), wide = qtiles / BLOCKS;
	int tiles = (int)((hi - lo + ROWS - 1) / ROWS) * wide, stage = 0, phase = 0;
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x) return;
		for (int t = blockIdx.x / BLOCKS; t < tiles; t += gridDim.x / BLOCKS) {
			int row = (int)(lo + (i64)(t / wide) * ROWS), q = (t % wide * BLOCKS + rank) * QUERIES;
			for (int c = 0; c < chunks; c++) {
				u32 at = base + stage * (A + B), f = full + 8 * stage;
				barrier_wait(empty + 8 * stage, phase ^ 1);
				barrier_expect(f, A + B);
				fetch<1>(at, queries, c * 128, q, f);
				if constexpr (BLOCKS == 1) fetch<1>(at + A, rows, c * 128, row, f);
				if constexpr (BLOCKS == 1) fetch<1>(at + A + B / 2, rows, c * 128, row + ROWS / 2, f);
				else fetch<BLOCKS>(at + A + rank * B / 2, rows, c * 128, row + rank * ROWS / 2, f);
				if (++stage == STAGES) stage = 0, phase ^= 1;
			}
		}
		if constexpr (BLOCKS > 1) cluster_sync(); // the other block may still copy to this one
		return;
	}
	more_registers<232>();
	int warp = threadIdx.x / 32 - 4, group = warp / 4, lane = threadIdx.x % 32;
	u32 a = base + (QUERIES == 128 ? group * 64 * 128 : 0), b = base + A + (QUERIES == 128 ? 0 : group * 128 * 128);
	for (int t = blockIdx.x / BLOCKS; t < tiles; t += gridDim.x / BLOCKS) {
		i64 row = lo + (i64)(t / wide) * ROWS + (QUERIES == 128 ? 0 : group * 128);
		int q = (t % wide * BLOCKS + rank) * QUERIES + (QUERIES == 128 ? group * 64 : 0) + warp % 4 * 16 + lane / 4;
		T t0 = ((const T *)thresholds)[q], t1 = ((const T *)thresholds)[q + 8];
		T d[N / 2];
		int before = -1;
		for (int c = 0; c < chunks; c++) {
			barrier_wait(full + 8 * stage, phase);
			wgmma_fence();
#pragma unroll
			for (int i = 0; i < 4; i++)
				warpgroup<KIND, N>::product(d, descriptor(a + stage * (A + B) + i * 32), descriptor(b + stage * (A + B) + i * 32), c == 0 && i == 0);
			wgmma_commit();
			wgmma_wait<1>();
			if (before >= 0) release<BLOCKS>(empty + 8 * before);
			before = stage;
			if (++stage == STAGES) stage = 0, phase ^= 1;
		}
		wgmma_wait<0>();
		hold(d);
		release<BLOCKS>(empty + 8 * before);
		offer<N>(d, t0, t1, q, row, hi, to);
	}
	if constexpr (BLOCKS > 1) cluster_sync();
}
// A module a kind: they take long to compile.
#define WARPGROUPS(NAME, KIND)                                                                                                       \
	SCAN(search_warpgroups_##NAME##_64, KIND, 64, 1)                                                                                 \
	SCAN(search_warpgroups_##NAME##_128, KIND, 128, 1)                                                                               \
	SCAN(__cluster_dims__(2) search_warpgroups_##NAME##_256, KIND, 128, 2)
#define SCAN(NAME, KIND, QUERIES, BLOCKS)                                                                                            \
	extern "C" __global__ void __launch_bounds__(384, 1) NAME(const __grid_constant__ map queries,                                   \
			const __grid_constant__ map rows, i64 lo, i64 hi, int chunks, int qtiles, const u32 *thresholds, int *count, u32 *ids,   \
			int cap) {                                                                                                               \
		warpgroup_scan<KIND, QUERIES, BLOCKS>(queries, rows, lo, hi, chunks, qtiles, thresholds, {count, ids, cap});                 \
	}
#else
#define WARPGROUPS(NAME, KIND)
#endif
