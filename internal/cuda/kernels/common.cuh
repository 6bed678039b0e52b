// What the kernels share. Working values are bfloat16, sums and statistics
// float32. Rows are moved eight bfloat16 (16 bytes) at a time, so widths are
// multiples of 8 and addresses of 16.
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define INF __int_as_float(0x7f800000)

struct bf16 { u16 bits; };

__device__ __forceinline__ float to_float(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ float to_float(float x) { return x; }

__device__ __forceinline__ bf16 to_bf16(float x) {
	bf16 y;
	asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
	return y;
}

// pack puts lo into the lower half.
__device__ __forceinline__ u32 pack(float lo, float hi) {
	u32 y;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
	return y;
}
__device__ __forceinline__ float low(u32 x) { return __uint_as_float(x << 16); }
__device__ __forceinline__ float high(u32 x) { return __uint_as_float(x & 0xffff0000u); }

// The integer next to x·f, which is at most 2^22 in size, in the lowest byte.
__device__ __forceinline__ u32 byte_of(float x, float f) { return __float_as_uint(fmaf(x, f, 12582912.f)); }

struct eight { float x[8]; };

__device__ __forceinline__ eight load8(const bf16 *p) {
	uint4 v = *reinterpret_cast<const uint4 *>(p);
	return {{low(v.x), high(v.x), low(v.y), high(v.y), low(v.z), high(v.z), low(v.w), high(v.w)}};
}
__device__ __forceinline__ void store8(bf16 *p, const eight &v) {
	*reinterpret_cast<uint4 *>(p) = make_uint4(pack(v.x[0], v.x[1]), pack(v.x[2], v.x[3]), pack(v.x[4], v.x[5]), pack(v.x[6], v.x[7]));
}

__device__ __forceinline__ u32 shared_address(const void *p) { return (u32)__cvta_generic_to_shared(p); }

// Four 8 by 8 matrices of 16 bits; lane 8i+j holds the address of row j of matrix i.
__device__ __forceinline__ void ldmatrix4(u32 (&r)[4], u32 a) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
}

__device__ __forceinline__ float warp_sum(float x) {
	for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
	return x;
}
__device__ __forceinline__ float warp_max(float x) {
	for (int o = 16; o; o >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, o));
	return x;
}

// block_sum sums over a block of whole warps, for every thread, in a fixed order.
__device__ __forceinline__ float block_sum(float x) {
	__shared__ float part[32];
	x = warp_sum(x);
	__syncthreads(); // an earlier sum may still be read
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
	__syncthreads();
	float s = 0;
	for (int i = 0; i < blockDim.x / 32; i++) s += part[i];
	return s;
}
__device__ __forceinline__ float block_max(float x) {
	__shared__ float part[32];
	x = warp_max(x);
	__syncthreads();
	if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
	__syncthreads();
	float s = part[0];
	for (int i = 1; i < blockDim.x / 32; i++) s = fmaxf(s, part[i]);
	return s;
}
