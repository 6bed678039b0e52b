#include "common.cuh"

// What exact search needs on every GPU. Rows and queries are bytes: a row is a
// whole number of 16-byte pieces, what lies beyond its numbers is zero, and tiles
// take 128 bytes of it at a time, whatever they mean.
enum { F32, F16, BF16, U8 };

// Sums of bytes times bytes are whole numbers, the rest float32.
template <int KIND> struct sum_of { typedef float type; };
template <> struct sum_of<U8> { typedef int type; };

// Candidates of a query: rows of the slab whose sum reached the query's
// threshold, in any order. A count beyond cap says that some are missing.
struct candidates {
	int *count;
	u32 *ids;
	int cap;
	__device__ __forceinline__ void add(int q, i64 row) const {
		int at = atomicAdd(count + q, 1);
		if (at < cap) ids[(i64)q * cap + at] = (u32)row;
	}
};

// offer takes the sums of a warp's tile, 16 queries by N rows laid out as mma
// leaves them: queries q and q+8 of the tile's, q = lane/4, and rows 8c+2(lane%4)
// and the next. Nearly always one comparison a query decides, and then one for
// every 32 rows.
template <int N, typename T>
__device__ __forceinline__ void offer(const T (&d)[N / 2], T t0, T t1, int q, i64 row, i64 hi, const candidates &to) {
	T m[8];
#pragma unroll
	for (int i = 0; i < 8; i++) m[i] = d[i];
#pragma unroll
	for (int i = 8; i < N / 2; i++) m[i % 8] = max(m[i % 8], d[i]);
	if (!(max(max(m[0], m[1]), max(m[4], m[5])) >= t0 || max(max(m[2], m[3]), max(m[6], m[7])) >= t1)) return;
	row += 2 * (threadIdx.x % 4);
#pragma unroll
	for (int g = 0; g < N / 2; g += 16) {
		T m0 = d[g], m1 = d[g + 2];
#pragma unroll
		for (int i = g; i < g + 16; i++) (i & 2 ? m1 : m0) = max(i & 2 ? m1 : m0, d[i]);
		if (!(m0 >= t0 || m1 >= t1)) continue;
#pragma unroll
		for (int i = g; i < g + 16; i++) {
			i64 r = row + i / 4 * 8 + i % 2;
			if (d[i] >= (i & 2 ? t1 : t0) && r < hi) to.add(q + (i & 2) * 4, r);
		}
	}
}
