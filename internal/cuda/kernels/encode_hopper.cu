#include "common.cuh"
#include "wgmma.cuh"
#include "cluster.cuh"

// Products of encoders in integers of 8 bits for compute capability 9.0: sums are exact,
// and every row of x and of w has a scale of its own, or x one for every 256 columns.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// D[64,N] (+)= A[64,32]·B[32,N], both in shared memory and k-major; D is set when first.
__device__ __forceinline__ void multiply(int (&d)[96], u64 a, u64 b, bool first) {
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %98, 0; wgmma.mma_async.sync.aligned.m64n192k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, %96, %97, p; }"
		: "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]), "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]), "+r"(d[71]), "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]), "+r"(d[78]), "+r"(d[79]), "+r"(d[80]), "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]), "+r"(d[85]), "+r"(d[86]), "+r"(d[87]), "+r"(d[88]), "+r"(d[89]), "+r"(d[90]), "+r"(d[91]), "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]) : "l"(a), "l"(b), "r"(first ? 0 : 1));
}
__device__ __forceinline__ void multiply(int (&d)[128], u64 a, u64 b, bool first) {
	asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129, p; }"
		: "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]), "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]), "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]), "+r"(d[30]), "+r"(d[31]), "+r"(d[32]), "+r"(d[33]), "+r"(d[34]), "+r"(d[35]), "+r"(d[36]), "+r"(d[37]), "+r"(d[38]), "+r"(d[39]), "+r"(d[40]), "+r"(d[41]), "+r"(d[42]), "+r"(d[43]), "+r"(d[44]), "+r"(d[45]), "+r"(d[46]), "+r"(d[47]), "+r"(d[48]), "+r"(d[49]), "+r"(d[50]), "+r"(d[51]), "+r"(d[52]), "+r"(d[53]), "+r"(d[54]), "+r"(d[55]), "+r"(d[56]), "+r"(d[57]), "+r"(d[58]), "+r"(d[59]), "+r"(d[60]), "+r"(d[61]), "+r"(d[62]), "+r"(d[63]), "+r"(d[64]), "+r"(d[65]), "+r"(d[66]), "+r"(d[67]), "+r"(d[68]), "+r"(d[69]), "+r"(d[70]), "+r"(d[71]), "+r"(d[72]), "+r"(d[73]), "+r"(d[74]), "+r"(d[75]), "+r"(d[76]), "+r"(d[77]), "+r"(d[78]), "+r"(d[79]), "+r"(d[80]), "+r"(d[81]), "+r"(d[82]), "+r"(d[83]), "+r"(d[84]), "+r"(d[85]), "+r"(d[86]), "+r"(d[87]), "+r"(d[88]), "+r"(d[89]), "+r"(d[90]), "+r"(d[91]), "+r"(d[92]), "+r"(d[93]), "+r"(d[94]), "+r"(d[95]), "+r"(d[96]), "+r"(d[97]), "+r"(d[98]), "+r"(d[99]), "+r"(d[100]), "+r"(d[101]), "+r"(d[102]), "+r"(d[103]), "+r"(d[104]), "+r"(d[105]), "+r"(d[106]), "+r"(d[107]), "+r"(d[108]), "+r"(d[109]), "+r"(d[110]), "+r"(d[111]), "+r"(d[112]), "+r"(d[113]), "+r"(d[114]), "+r"(d[115]), "+r"(d[116]), "+r"(d[117]), "+r"(d[118]), "+r"(d[119]), "+r"(d[120]), "+r"(d[121]), "+r"(d[122]), "+r"(d[123]), "+r"(d[124]), "+r"(d[125]), "+r"(d[126]), "+r"(d[127]) : "l"(a), "l"(b), "r"(first ? 0 : 1));
}

// What a product is of: x [rows, in], w [out, in], their scales, a bias a column.
struct operands {
	const float *xs, *ws; // [rows] or [rows, in/256]; [out]
	const bf16 *bias;
	int rows, in, out;
	__device__ __forceinline__ float2 scales(int col) const { return col < out ? __ldg((const float2 *)(ws + col)) : make_float2(0, 0); }
	__device__ __forceinline__ u32 biases(int col) const { return col < out ? __ldg((const u32 *)(bias + col)) : 0; }
};

__device__ __forceinline__ float gelu_tanh(float x) {
	float t;
	asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(x * (0.7978845608f + 0.0356774081f * x * x)));
	float h = 0.5f * x;
	return h + h * t;
}

// Four numbers, times f of size at most 127, as bytes.
__device__ __forceinline__ u32 bytes4(int x0, int x1, int x2, int x3, float f) {
	return __byte_perm(__byte_perm(byte_of(__int_as_float(x0), f), byte_of(__int_as_float(x1), f), 0x0040),
		__byte_perm(byte_of(__int_as_float(x2), f), byte_of(__int_as_float(x3), f), 0x0040), 0x5410);
}

// What is done with the sums of a tile of 64 rows and N columns, of which a thread has
// rows r0 and r0+8.

// y = sums·scales + bias, bfloat16.
template <int N>
__device__ __forceinline__ void put(bf16 *y, const operands &o, const int (&d)[N / 2], int r0, int col0, int lane) {
	int r1 = r0 + 8;
	float s0 = r0 < o.rows ? __ldg(o.xs + r0) : 0, s1 = r1 < o.rows ? __ldg(o.xs + r1) : 0;
#pragma unroll
	for (int c0 = 0; c0 < N / 8; c0 += 4) {
		u32 lo[4], hi[4];
#pragma unroll
		for (int c = 0; c < 4; c++) {
			int i = 4 * (c0 + c), col = col0 + 2 * i + lane % 4 * 2;
			float2 w = o.scales(col);
			u32 b = o.biases(col);
			lo[c] = pack(d[i] * s0 * w.x + low(b), d[i + 1] * s0 * w.y + high(b));
			hi[c] = pack(d[i + 2] * s1 * w.x + low(b), d[i + 3] * s1 * w.y + high(b));
		}
		quad_turn(lo, lane);
		quad_turn(hi, lane);
		int col = col0 + c0 * 8 + lane % 4 * 8;
		if (r0 < o.rows && col < o.out) *(uint4 *)(y + (i64)r0 * o.out + col) = make_uint4(lo[0], lo[1], lo[2], lo[3]);
		if (r1 < o.rows && col < o.out) *(uint4 *)(y + (i64)r1 * o.out + col) = make_uint4(hi[0], hi[1], hi[2], hi[3]);
	}
}

// y = act(sums·scales + bias) in bytes, with a scale for the tile's columns of a row.
template <int N, bool RELU>
__device__ __forceinline__ void put_bytes(char *y, float *ys, const operands &o, int (&d)[N / 2], int r0, int col0, int lane) {
	int r1 = r0 + 8;
	float s0 = r0 < o.rows ? __ldg(o.xs + r0) : 0, s1 = r1 < o.rows ? __ldg(o.xs + r1) : 0, m0 = 0, m1 = 0;
#pragma unroll
	for (int i = 0; i < N / 2; i += 4) {
		int col = col0 + 2 * i + lane % 4 * 2;
		float2 w = o.scales(col);
		u32 b = o.biases(col);
		float v[4] = {d[i] * s0 * w.x + low(b), d[i + 1] * s0 * w.y + high(b), d[i + 2] * s1 * w.x + low(b), d[i + 3] * s1 * w.y + high(b)};
#pragma unroll
		for (int e = 0; e < 4; e++) v[e] = RELU ? fmaxf(v[e], 0) : gelu_tanh(v[e]);
		m0 = fmaxf(m0, fmaxf(fabsf(v[0]), fabsf(v[1])));
		m1 = fmaxf(m1, fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
		for (int e = 0; e < 4; e++) d[i + e] = __float_as_int(v[e]);
	}
	for (int k = 1; k < 4; k <<= 1) {
		m0 = fmaxf(m0, __shfl_xor_sync(~0u, m0, k));
		m1 = fmaxf(m1, __shfl_xor_sync(~0u, m1, k));
	}
	m0 = fmaxf(m0, 1e-20f), m1 = fmaxf(m1, 1e-20f);
	float f0 = 127 / m0, f1 = 127 / m1;
	int parts = o.out / N;
	if (lane % 4 == 0 && r0 < o.rows) ys[(i64)r0 * parts + col0 / N] = m0 / 127;
	if (lane % 4 == 0 && r1 < o.rows) ys[(i64)r1 * parts + col0 / N] = m1 / 127;
#pragma unroll
	for (int c0 = 0; c0 < N / 8; c0 += 8) {
		u32 lo[4], hi[4];
#pragma unroll
		for (int c = 0; c < 4; c++) {
			const int *x = d + 4 * (c0 + 2 * c);
			lo[c] = bytes4(x[0], x[1], x[4], x[5], f0);
			hi[c] = bytes4(x[2], x[3], x[6], x[7], f1);
		}
		quad_turn(lo, lane);
		quad_turn(hi, lane);
		int col = col0 + c0 * 8 + lane % 4 * 16;
		if (r0 < o.rows) *(uint4 *)(y + (i64)r0 * o.out + col) = make_uint4(__byte_perm(lo[0], lo[1], 0x5410), __byte_perm(lo[2], lo[3], 0x5410), __byte_perm(lo[0], lo[1], 0x7632), __byte_perm(lo[2], lo[3], 0x7632));
		if (r1 < o.rows) *(uint4 *)(y + (i64)r1 * o.out + col) = make_uint4(__byte_perm(hi[0], hi[1], 0x5410), __byte_perm(hi[2], hi[3], 0x5410), __byte_perm(hi[0], hi[1], 0x7632), __byte_perm(hi[2], hi[3], 0x7632));
	}
}

// y += sums·scales + bias, bfloat16.
template <int N>
__device__ __forceinline__ void add(bf16 *y, const operands &o, const float (&d)[N / 2], int r0, int col0, int lane) {
	int r1 = r0 + 8, from = col0 + lane % 4 * 2;
	bf16 *p = y + (i64)r0 * o.out + from, *q = y + (i64)r1 * o.out + from;
	constexpr int BATCH = 6; // what is there is asked for in batches
#pragma unroll
	for (int c0 = 0; c0 < N / 8; c0 += BATCH) {
		u32 lo[BATCH], hi[BATCH];
#pragma unroll
		for (int k = 0; k < BATCH; k++) {
			int at = 8 * (c0 + k);
			lo[k] = r0 < o.rows && from + at < o.out ? *(const u32 *)(p + at) : 0;
			hi[k] = r1 < o.rows && from + at < o.out ? *(const u32 *)(q + at) : 0;
		}
#pragma unroll
		for (int k = 0; k < BATCH; k++) {
			int at = 8 * (c0 + k), i = 4 * (c0 + k);
			float2 w = o.scales(from + at);
			u32 b = o.biases(from + at);
			if (r0 < o.rows && from + at < o.out) *(u32 *)(p + at) = pack(d[i] * w.x + low(b) + low(lo[k]), d[i + 1] * w.y + high(b) + high(lo[k]));
			if (r1 < o.rows && from + at < o.out) *(u32 *)(q + at) = pack(d[i + 2] * w.x + low(b) + low(hi[k]), d[i + 3] * w.y + high(b) + high(hi[k]));
		}
	}
}

enum { PUT, PUT_GELU, PUT_RELU, ADD };

// Blocks stay and take tile after tile of 128 rows and N columns. Two blocks take tiles
// of the same columns together, and each fetches half of them for both: one thread
// fetches 128 bytes of every row and column at a time into a ring of stages, also those
// of the next tile while this one's sums are written. Two warpgroups take 64 rows each.
template <int N, int STAGES, int KIND>
__device__ __forceinline__ void product(void *y, float *ys, const map &x, const map &w, const operands &o) {
	constexpr int A = 128 * 128, B = N * 128;
	extern __shared__ __align__(1024) char memory[];
	u32 base = (shared_address(memory) + 1023) & ~1023;
	__shared__ u64 barriers[2 * STAGES];
	u32 full = shared_address(barriers), empty = full + 8 * STAGES;
	if (threadIdx.x == 0) {
		for (int i = 0; i < STAGES; i++) {
			barrier_init(full + 8 * i, 1);
			barrier_init(empty + 8 * i, 16);
		}
		barriers_ready();
	}
	cluster_sync();
	int rank = block_rank(), wide = (o.out + N - 1) / N, tiles = (o.rows + 255) / 256 * wide, chunks = (o.in + 127) / 128, stage = 0, phase = 0;
	if (threadIdx.x < 128) {
		fewer_registers<40>();
		if (threadIdx.x) return;
		for (int t = blockIdx.x / 2; t < tiles; t += gridDim.x / 2) {
			int row = (t / wide * 2 + rank) * 128, col = t % wide * N;
			for (int c = 0; c < chunks; c++) {
				u32 at = base + stage * (A + B), f = full + 8 * stage;
				barrier_wait(empty + 8 * stage, phase ^ 1);
				barrier_expect(f, A + B);
				fetch<1>(at, x, c * 128, row, f);
				fetch<2>(at + A + rank * B / 2, w, c * 128, col + rank * N / 2, f);
				if (++stage == STAGES) stage = 0, phase ^= 1;
			}
		}
		cluster_sync(); // the other block may still copy to this one
		return;
	}
	more_registers<232>();
	int warp = threadIdx.x / 32 - 4, group = warp / 4, lane = threadIdx.x % 32;
	u32 a = base + group * 64 * 128, b = base + A;
		// take begins the products of a stage that has arrived.
	auto take = [&](int (&d)[N / 2], bool first) {
		barrier_wait(full + 8 * stage, phase);
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < 4; i++) multiply(d, descriptor(a + stage * (A + B) + i * 32), descriptor(b + stage * (A + B) + i * 32), first && i == 0);
		wgmma_commit();
	};
	auto next = [&] {
		int before = stage;
		if (++stage == STAGES) stage = 0, phase ^= 1;
		return before;
	};
	for (int t = blockIdx.x / 2; t < tiles; t += gridDim.x / 2) {
		int r0 = (t / wide * 2 + rank) * 128 + group * 64 + warp % 4 * 16 + lane / 4, col = t % wide * N;
		int d[N / 2];
		if constexpr (KIND == ADD) { // 256 columns of x have a scale
			float sum[N / 2];
#pragma unroll
			for (int i = 0; i < N / 2; i++) sum[i] = 0;
			const float *s = o.xs + (i64)r0 * (chunks / 2);
			for (int c = 0; c < chunks / 2; c++) {
				float s0 = r0 < o.rows ? __ldg(s + c) : 0, s1 = r0 + 8 < o.rows ? __ldg(s + 8 * (chunks / 2) + c) : 0;
				take(d, true);
				int before = next();
				take(d, false);
				wgmma_wait<1>();
				release<2>(empty + 8 * before);
				before = next();
				wgmma_wait<0>();
				hold(d);
				release<2>(empty + 8 * before);
#pragma unroll
				for (int i = 0; i < N / 2; i += 4) {
					sum[i] += d[i] * s0;
					sum[i + 1] += d[i + 1] * s0;
					sum[i + 2] += d[i + 2] * s1;
					sum[i + 3] += d[i + 3] * s1;
				}
			}
			add<N>((bf16 *)y, o, sum, r0, col, lane);
		} else {
			int before = -1;
			for (int c = 0; c < chunks; c++) {
				take(d, c == 0);
				wgmma_wait<1>();
				if (before >= 0) release<2>(empty + 8 * before);
				before = next();
			}
			wgmma_wait<0>();
			hold(d);
			release<2>(empty + 8 * before);
			if constexpr (KIND == PUT) put<N>((bf16 *)y, o, d, r0, col, lane);
			else put_bytes<N, KIND == PUT_RELU>((char *)y, ys, o, d, r0, col, lane);
		}
	}
	cluster_sync();
}

#define BYTES(NAME, N, STAGES, KIND)                                                                                       \
	extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(384, 1) NAME(void *y, float *ys,                      \
			const __grid_constant__ map x, const __grid_constant__ map w, const float *xs, const float *ws,                \
			const bf16 *bias, int rows, int in, int out) {                                                                 \
		product<N, STAGES, KIND>(y, ys, x, w, {xs, ws, bias, rows, in, out});                                              \
	}
BYTES(bytes_put, 256, 4, PUT)
BYTES(bytes_put_gelu, 256, 4, PUT_GELU)
BYTES(bytes_put_relu, 256, 4, PUT_RELU)
BYTES(bytes_add, 192, 5, ADD)
#endif
