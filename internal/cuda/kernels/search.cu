#include "search.cuh"

// Exact search in four steps, a run of rows at a time: a scan finds candidates by
// sums that may be off by a known bound, the candidates are scored again in the
// order of sums of the CPU's search, the k best are kept, and from the k-th best
// follows the threshold of the next run. No score is written that is not a
// candidate's.

// ---- what is known of the rows ----

__device__ __forceinline__ float half_to_float(u16 x) {
	float y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
	return y;
}
template <int KIND> __device__ __forceinline__ float number(const char *row, int i) {
	if constexpr (KIND == F32) return ((const float *)row)[i];
	else if constexpr (KIND == F16) return half_to_float(((const u16 *)row)[i]);
	else if constexpr (KIND == BF16) return __uint_as_float((u32)((const u16 *)row)[i] << 16);
	else return ((const unsigned char *)row)[i];
}

// stats: the largest sum of squares, of bytes their distance from 128, as the bits
// of a float32, and the first row that holds NaN or an infinity. A warp a row.
template <int KIND> __device__ __forceinline__ void look(const char *rows, i64 pitch, i64 n, int dim, u32 *largest, u32 *bad) {
	i64 step = (i64)gridDim.x * blockDim.x / 32;
	float most = 0;
	for (i64 r = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < n; r += step) {
		const char *row = rows + r * pitch;
		float s = 0;
		bool finite = true;
		for (int i = threadIdx.x % 32; i < dim; i += 32) {
			float x = number<KIND>(row, i);
			if constexpr (KIND == U8) x -= 128;
			else finite &= fabsf(x) < INF;
			s = fmaf(x, x, s);
		}
		s = warp_sum(s);
		if (!__all_sync(~0u, finite)) {
			if (threadIdx.x % 32 == 0) atomicMin(bad, (u32)r);
		} else most = fmaxf(most, s);
	}
	if (threadIdx.x % 32 == 0) atomicMax(largest, __float_as_uint(most));
}
extern "C" __global__ void search_look_f32(const char *rows, i64 pitch, i64 n, int dim, u32 *largest, u32 *bad) { look<F32>(rows, pitch, n, dim, largest, bad); }
extern "C" __global__ void search_look_f16(const char *rows, i64 pitch, i64 n, int dim, u32 *largest, u32 *bad) { look<F16>(rows, pitch, n, dim, largest, bad); }
extern "C" __global__ void search_look_u8(const char *rows, i64 pitch, i64 n, int dim, u32 *largest, u32 *bad) { look<U8>(rows, pitch, n, dim, largest, bad); }

// Order-preserving bits of a float.
__device__ __forceinline__ u32 ordered(float x) {
	u32 b = __float_as_uint(x);
	return b >> 31 ? ~b : b | 0x80000000u;
}

// The range of every column: low and high hold ordered bits. A block takes a run of rows.
template <int KIND> __device__ __forceinline__ void ranges(const char *rows, i64 pitch, i64 n, int dim, u32 *low, u32 *high) {
	i64 each = (n + gridDim.x - 1) / gridDim.x, from = each * blockIdx.x, to = min(n, from + each);
	for (int c = threadIdx.x; c < dim; c += blockDim.x) {
		float a = INF, b = -INF;
		for (i64 r = from; r < to; r++) {
			float x = number<KIND>(rows + r * pitch, c);
			a = fminf(a, x), b = fmaxf(b, x);
		}
		if (from < to) {
			atomicMin(low + c, ordered(a));
			atomicMax(high + c, ordered(b));
		}
	}
}
extern "C" __global__ void search_ranges_f32(const char *rows, i64 pitch, i64 n, int dim, u32 *low, u32 *high) { ranges<F32>(rows, pitch, n, dim, low, high); }
extern "C" __global__ void search_ranges_f16(const char *rows, i64 pitch, i64 n, int dim, u32 *low, u32 *high) { ranges<F16>(rows, pitch, n, dim, low, high); }

// encode writes rows in another kind, for the scan. error and largest are, as
// bits, the largest sums of squares of what was lost and of the rows written (of
// bytes, their distance from 128). trained is low and width of every column.
template <int FROM, int TO>
__device__ __forceinline__ void encode(char *out, i64 opitch, const char *rows, i64 pitch, i64 n, int dim, const float *trained, u32 *error, u32 *largest) {
	i64 step = (i64)gridDim.x * blockDim.x / 32;
	int size = TO == U8 ? 1 : 2, lane = threadIdx.x % 32;
	float worst = 0, most = 0;
	for (i64 r = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < n; r += step) {
		const char *row = rows + r * pitch;
		char *to = out + r * opitch;
		float e = 0, s = 0;
		for (int i = lane; i < opitch / size; i += 32) {
			float x = i < dim ? number<FROM>(row, i) : 0, y = x, z = x;
			if constexpr (TO == U8) {
				float low = i < dim ? trained[i] : 0, width = i < dim ? trained[dim + i] : 0;
				float code = width > 0 ? fminf(fmaxf(rintf((x - low) / width * 255 - 0.5f), 0), 255) : 0;
				((unsigned char *)to)[i] = i < dim ? (unsigned char)code : 0;
				y = low + (code + 0.5f) / 255 * width;
				z = i < dim ? code - 128 : 0;
			} else if constexpr (TO == BF16) {
				bf16 b = to_bf16(x);
				((bf16 *)to)[i] = b;
				z = y = to_float(b);
			} else {
				u16 h;
				asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
				((u16 *)to)[i] = h;
				z = y = half_to_float(h);
			}
			e = fmaf(x - y, x - y, e);
			s = fmaf(z, z, s);
		}
		worst = fmaxf(worst, warp_sum(e));
		most = fmaxf(most, warp_sum(s));
	}
	if (lane == 0) {
		atomicMax(error, __float_as_uint(worst));
		atomicMax(largest, __float_as_uint(most));
	}
}
#define ENCODE(NAME, FROM, TO)                                                                                                       \
	extern "C" __global__ void search_encode_##NAME(char *out, i64 opitch, const char *rows, i64 pitch, i64 n, int dim,              \
			const float *trained, u32 *error, u32 *largest) {                                                                        \
		encode<FROM, TO>(out, opitch, rows, pitch, n, dim, trained, error, largest);                                                 \
	}
ENCODE(f32_f16, F32, F16)
ENCODE(f32_bf16, F32, BF16)
ENCODE(f16_bf16, F16, BF16)
ENCODE(f32_u8, F32, U8)
ENCODE(f16_u8, F16, U8)

// ---- the scan of one query: rows pass at the pace of the memory ----

__device__ __forceinline__ uint4 stream16(const char *p) {
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
	return v;
}
__device__ __forceinline__ void half_pair(u32 x, float &lo, float &hi) {
	lo = half_to_float((u16)x);
	hi = half_to_float((u16)(x >> 16));
}

// A warp scores four rows at a time, each lane 16 bytes of every 512. The query
// lies in shared memory in the order in which lanes read it: float32, or bytes
// where rows are bytes.
template <int KIND>
__device__ __forceinline__ void stream(const char *rows, i64 pitch, i64 lo, i64 hi, const char *query, int dim, const u32 *thresholds, const candidates &to) {
	typedef typename sum_of<KIND>::type T;
	constexpr int R = 4, EACH = KIND == F32 ? 4 : KIND == U8 ? 16 : 8, PARTS = KIND == U8 ? 1 : EACH / 4;
	extern __shared__ uint4 sq[];
	int chunks = (int)((pitch + 511) / 512), lane = threadIdx.x % 32;
	for (int i = threadIdx.x; i < chunks * 32; i += blockDim.x) {
		int c = i / 32, l = i % 32;
		for (int h = 0; h < PARTS; h++) {
			uint4 v = make_uint4(0, 0, 0, 0);
			if constexpr (KIND == U8) {
				if (i * 16 < pitch) v = ((const uint4 *)query)[i];
			} else {
				const float *x = (const float *)query;
				int e = i * EACH + h * 4;
				float f[4];
				for (int j = 0; j < 4; j++) f[j] = e + j < dim ? x[e + j] : 0;
				v = make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3]));
			}
			sq[(c * PARTS + h) * 32 + l] = v;
		}
	}
	__syncthreads();
	T t = ((const T *)thresholds)[0];
	i64 step = (i64)gridDim.x * (blockDim.x / 32) * R;
	for (i64 r0 = lo + ((i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * R; r0 < hi; r0 += step) {
		T sum[R];
		const char *row[R];
#pragma unroll
		for (int r = 0; r < R; r++) sum[r] = 0, row[r] = rows + min(r0 + r, hi - 1) * pitch + lane * 16;
#pragma unroll 3
		for (int c = 0; c < chunks; c++) {
			uint4 v[R];
			bool inside = c * 512 + lane * 16 < pitch;
#pragma unroll
			for (int r = 0; r < R; r++) v[r] = inside ? stream16(row[r] + c * 512) : make_uint4(0, 0, 0, 0);
#pragma unroll
			for (int h = 0; h < PARTS; h++) {
				uint4 y = sq[(c * PARTS + h) * 32 + lane];
#pragma unroll
				for (int r = 0; r < R; r++) {
					if constexpr (KIND == U8) {
						asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum[r]) : "r"(v[r].x), "r"(y.x));
						asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum[r]) : "r"(v[r].y), "r"(y.y));
						asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum[r]) : "r"(v[r].z), "r"(y.z));
						asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum[r]) : "r"(v[r].w), "r"(y.w));
					} else {
						float x[4];
						u32 a = h ? v[r].z : v[r].x, b = h ? v[r].w : v[r].y;
						if constexpr (KIND == F32) {
							x[0] = __uint_as_float(v[r].x), x[1] = __uint_as_float(v[r].y), x[2] = __uint_as_float(v[r].z), x[3] = __uint_as_float(v[r].w);
						} else if constexpr (KIND == F16) {
							half_pair(a, x[0], x[1]);
							half_pair(b, x[2], x[3]);
						} else {
							x[0] = low(a), x[1] = high(a), x[2] = low(b), x[3] = high(b);
						}
						float s = sum[r];
						s = fmaf(x[0], __uint_as_float(y.x), s);
						s = fmaf(x[1], __uint_as_float(y.y), s);
						s = fmaf(x[2], __uint_as_float(y.z), s);
						sum[r] = fmaf(x[3], __uint_as_float(y.w), s);
					}
				}
			}
		}
#pragma unroll
		for (int r = 0; r < R; r++) {
			T s = sum[r];
			if constexpr (KIND == U8) s = __reduce_add_sync(~0u, s);
			else s = warp_sum(s);
			if (lane == 0 && s >= t && r0 + r < hi) to.add(0, r0 + r);
		}
	}
}
#define STREAM(NAME, KIND)                                                                                                           \
	extern "C" __global__ void __launch_bounds__(256, 3) search_stream_##NAME(const char *rows, i64 pitch, i64 lo, i64 hi,           \
			const char *query, int dim, const u32 *thresholds, int *count, u32 *ids, int cap) {                                      \
		stream<KIND>(rows, pitch, lo, hi, query, dim, thresholds, {count, ids, cap});                                                \
	}
STREAM(f32, F32)
STREAM(f16, F16)
STREAM(bf16, BF16)
STREAM(u8, U8)

// ---- the scan of many queries by mma.sync, for every GPU ----

// d += a·b of 16 queries, 8 rows and 32 bytes of each.
template <int KIND> __device__ __forceinline__ void product(typename sum_of<KIND>::type (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
	if constexpr (KIND == F16)
		asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else if constexpr (KIND == BF16)
		asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else if constexpr (KIND == F32)
		asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			: "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
	else
		asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
			: "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// fetch begins to copy N rows of 128 bytes to shared memory, 16-byte piece c of row
// r to place c ^ (r % 8). Rows beyond last are last again; bytes beyond pitch are 0.
template <int N> __device__ __forceinline__ void fetch_rows(u32 to, const char *rows, i64 pitch, i64 row, i64 last, int from) {
#pragma unroll
	for (int i = 0; i < N * 8 / 256; i++) {
		int at = i * 256 + threadIdx.x, r = at / 8, c = at % 8;
		int inside = from + c * 16 < pitch ? 16 : 0;
		const char *p = rows + min(row + r, last) * pitch + (inside ? from + c * 16 : 0);
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to + r * 128 + (c ^ r % 8) * 16), "l"(p), "r"(inside) : "memory");
	}
}

// A block scores 64 queries against 128 rows; its eight warps take 32 by 32 each.
template <int KIND>
__device__ __forceinline__ void tile_scan(const char *rows, i64 pitch, i64 lo, i64 hi, const char *queries, i64 qpitch, int qtiles, const u32 *thresholds, const candidates &to) {
	typedef typename sum_of<KIND>::type T;
	constexpr int STAGES = 3, A = 64 * 128, B = 128 * 128;
	extern __shared__ __align__(128) char memory[];
	u32 base = shared_address(memory);
	int q0 = (int)(blockIdx.x % qtiles) * 64;
	i64 r0 = lo + (i64)(blockIdx.x / qtiles) * 128;
	int chunks = (int)((pitch + 127) / 128), lane = threadIdx.x % 32, warp = threadIdx.x / 32, wq = warp / 4 * 32, wr = warp % 4 * 32;
	auto fetch = [&](int c) {
		u32 at = base + c % STAGES * (A + B);
		if (c < chunks) {
			fetch_rows<64>(at, queries, qpitch, q0, q0 + 63, c * 128);
			fetch_rows<128>(at + A, rows, pitch, r0, hi - 1, c * 128);
		}
		asm volatile("cp.async.commit_group;" ::: "memory");
	};
	T d[2][16];
#pragma unroll
	for (int m = 0; m < 2; m++)
#pragma unroll
		for (int i = 0; i < 16; i++) d[m][i] = 0;
	for (int c = 0; c < STAGES - 1; c++) fetch(c);
	for (int c = 0; c < chunks; c++) {
		asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
		__syncthreads();
		fetch(c + STAGES - 1);
		u32 a = base + c % STAGES * (A + B), b = a + A;
#pragma unroll
		for (int k = 0; k < 4; k++) {
			u32 x[2][4], y[2][4];
#pragma unroll
			for (int m = 0; m < 2; m++) {
				int r = wq + m * 16 + lane % 16;
				ldmatrix4(x[m], a + r * 128 + ((2 * k + lane / 16) ^ r % 8) * 16);
			}
#pragma unroll
			for (int n = 0; n < 2; n++) { // of 16 rows each: the first and second 16 bytes of rows 0-7, then of 8-15
				int r = wr + n * 16 + lane / 16 * 8 + lane % 8;
				ldmatrix4(y[n], b + r * 128 + ((2 * k + lane / 8 % 2) ^ r % 8) * 16);
			}
#pragma unroll
			for (int m = 0; m < 2; m++)
#pragma unroll
				for (int n = 0; n < 4; n++) product<KIND>(*(T(*)[4])(d[m] + 4 * n), x[m], y[n / 2][n % 2 * 2], y[n / 2][n % 2 * 2 + 1]);
		}
	}
#pragma unroll
	for (int m = 0; m < 2; m++) {
		int q = q0 + wq + m * 16 + lane / 4;
		offer<32>(d[m], ((const T *)thresholds)[q], ((const T *)thresholds)[q + 8], q, r0 + wr, hi, to);
	}
}
#define TILES(NAME, KIND)                                                                                                            \
	extern "C" __global__ void __launch_bounds__(256) search_tiles_##NAME(const char *rows, i64 pitch, i64 lo, i64 hi,               \
			const char *queries, i64 qpitch, int qtiles, const u32 *thresholds, int *count, u32 *ids, int cap) {                     \
		tile_scan<KIND>(rows, pitch, lo, hi, queries, qpitch, qtiles, thresholds, {count, ids, cap});                                \
	}
TILES(f32, F32)
TILES(f16, F16)
TILES(bf16, BF16)
TILES(u8, U8)

// ---- candidates, scores, the best ----

// Rows lo to lo+n-1 are candidates of every query.
extern "C" __global__ void search_every(int *count, u32 *ids, int cap, int nq, u32 lo, int n) {
	int q = blockIdx.y;
	for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) ids[(i64)q * cap + i] = lo + i;
	if (blockIdx.x == 0 && threadIdx.x == 0) count[q] = n;
}

// The largest count; one block.
extern "C" __global__ void search_most(const int *count, int nq, int *most) {
	int m = 0;
	for (int i = threadIdx.x; i < nq; i += blockDim.x) m = max(m, count[i]);
	m = __reduce_max_sync(~0u, m);
	__shared__ int part[32];
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = m;
	__syncthreads();
	if (threadIdx.x == 0) {
		for (int i = 1; i < blockDim.x / 32; i++) m = max(m, part[i]);
		*most = m;
	}
}

// Scores of candidates, summed as package dots sums: lane i of 16 takes the terms
// i, i+16, … by fused multiply-adds, lanes i and i+8 are added, then neighbours
// twice, then the two sums that are left; further terms are added one by one,
// rounded. base, which may be 0, is added last. 16 threads a candidate.
template <int KIND>
__device__ __forceinline__ void score(float *out, const char *rows, i64 pitch, int dim, const float *queries, const float *base, const int *count, const u32 *ids, int cap) {
	extern __shared__ float numbers[];
	int q = blockIdx.y, n = min(count[q], cap);
	if (blockIdx.x * 16 >= n) return;
	for (int i = threadIdx.x; i < dim; i += blockDim.x) numbers[i] = queries[(i64)q * dim + i];
	__syncthreads();
	int lane = threadIdx.x % 16, whole = dim / 16 * 16;
	u32 mask = 0xffffu << (threadIdx.x % 32 / 16 * 16);
	for (int i = blockIdx.x * 16 + threadIdx.x / 16; i < n; i += gridDim.x * 16) {
		const char *row = rows + (i64)ids[(i64)q * cap + i] * pitch;
		float s = 0;
#pragma unroll 16
		for (int c = lane; c < whole; c += 16) s = fmaf(number<KIND>(row, c), numbers[c], s);
		s += __shfl_xor_sync(mask, s, 8);
		s += __shfl_xor_sync(mask, s, 1);
		s += __shfl_xor_sync(mask, s, 2);
		s += __shfl_xor_sync(mask, s, 4);
		for (int c = whole; c < dim; c++) s = __fadd_rn(s, __fmul_rn(number<KIND>(row, c), numbers[c]));
		if (base) s = __fadd_rn(s, base[q]);
		if (lane == 0) out[(i64)q * cap + i] = s;
	}
}
#define SCORE(NAME, KIND)                                                                                                            \
	extern "C" __global__ void search_score_##NAME(float *out, const char *rows, i64 pitch, int dim, const float *queries,           \
			const float *base, const int *count, const u32 *ids, int cap) {                                                          \
		score<KIND>(out, rows, pitch, dim, queries, base, count, ids, cap);                                                          \
	}
SCORE(f32, F32)
SCORE(f16, F16)
SCORE(u8, U8)

// The k best of the have best so far and the candidates, as keys whose order is
// that of results: larger score, then smaller row. first is the row of the whole
// index at which the slab begins. A block a query; size is a power of two.
extern "C" __global__ void search_select(u64 *best, int have, int k, const int *count, const u32 *ids, const float *scores, int cap, u32 first, int size) {
	extern __shared__ u64 keys[];
	int q = blockIdx.x, n = min(count[q], cap);
	for (int i = threadIdx.x; i < size; i += blockDim.x) {
		u64 key = 0;
		if (i < have) key = best[(i64)q * k + i];
		else if (i - have < n) {
			float s = scores[(i64)q * cap + i - have];
			key = (u64)ordered(s == 0 ? 0 : s) << 32 | (u32)~(first + ids[(i64)q * cap + i - have]);
		}
		keys[i] = key;
	}
	for (int span = 2; span <= size; span *= 2)
		for (int gap = span / 2; gap; gap /= 2) {
			__syncthreads();
			for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
				int a = i / gap * 2 * gap + i % gap, b = a + gap;
				bool falling = (a & span) == 0;
				u64 x = keys[a], y = keys[b];
				if ((x < y) == falling) keys[a] = y, keys[b] = x;
			}
		}
	__syncthreads();
	for (int i = threadIdx.x; i < min(k, size); i += blockDim.x) best[(i64)q * k + i] = keys[i];
}

// The threshold of every query's sums: what a row whose sum is below it scores is
// less than the k-th best, (score - shift)·inverse with a shift that holds the
// bound of the error. Queries from nq on are none. Counts begin anew.
extern "C" __global__ void search_threshold(u32 *thresholds, int *count, const u64 *best, int k, const double *terms, int nq, int whole) {
	int q = blockIdx.x * blockDim.x + threadIdx.x;
	if (q >= nq) {
		thresholds[q] = whole ? 0x7fffffffu : 0x7f800000u;
		return;
	}
	u32 b = (u32)(best[(i64)q * k + k - 1] >> 32);
	double t = ((double)__uint_as_float(b >> 31 ? b & 0x7fffffffu : ~b) - terms[2 * q]) * terms[2 * q + 1];
	if (whole) thresholds[q] = (u32)(int)fmin(fmax(floor(t), -2147483648.0), 2147483646.0);
	else thresholds[q] = __float_as_uint(__double2float_rd(t));
	count[q] = 0;
}

// Rows of random numbers, normal with deviation 1/√dim, the same for a seed: what
// is measured. A thread makes two numbers of the row.
extern "C" __global__ void search_noise(u16 *rows, i64 pitch, i64 n, int dim, i64 seed) {
	float scale = rsqrtf((float)dim);
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n * (dim / 2); i += (i64)gridDim.x * blockDim.x) {
		u64 x = (u64)(i + 1) * 0x9e3779b97f4a7c15ull + (u64)seed;
		x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
		x = (x ^ x >> 27) * 0x94d049bb133111ebull;
		x ^= x >> 31;
		float r = sqrtf(-2 * __logf(((u32)x + 1.0f) * 2.3283064e-10f)) * scale, s, c;
		__sincosf((float)(x >> 32) * 1.4629180792e-9f, &s, &c);
		u16 a, b;
		asm("cvt.rn.f16.f32 %0, %1;" : "=h"(a) : "f"(r * c));
		asm("cvt.rn.f16.f32 %0, %1;" : "=h"(b) : "f"(r * s));
		*(u32 *)((char *)rows + i / (dim / 2) * pitch + i % (dim / 2) * 4) = (u32)b << 16 | a;
	}
}
