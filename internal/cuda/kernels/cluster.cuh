// What a tile of products needs of the copy engine and of clusters of two blocks, for
// kernels of compute capability 9.0. After wgmma.cuh.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL

// fetch begins to copy a box of 128 bytes by some rows, and says so to the barrier;
// of two blocks to the same places of both.
template <int BLOCKS> __device__ __forceinline__ void fetch(u32 to, const map &m, int byte, int row, u32 full) {
	if constexpr (BLOCKS == 1)
		asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
			::"r"(to), "l"(&m), "r"(byte), "r"(row), "r"(full) : "memory");
	else
		asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
			::"r"(to), "l"(&m), "r"(byte), "r"(row), "r"(full), "h"((u16)3) : "memory");
}
__device__ __forceinline__ int block_rank() {
	int r;
	asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
	return r;
}
__device__ __forceinline__ void cluster_sync() { asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory"); }

// release says in every block that a warp is done with a stage.
template <int BLOCKS> __device__ __forceinline__ void release(u32 empty) {
	if (threadIdx.x % 32) return;
	if constexpr (BLOCKS == 1) barrier_arrive(empty);
	else
		for (int i = 0; i < BLOCKS; i++)
			asm volatile("{ .reg .b32 r; mapa.shared::cluster.u32 r, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [r]; }" ::"r"(empty), "r"(i) : "memory");
}

#endif
