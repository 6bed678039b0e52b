/* Put first in the include path: gorgonia.org/cu v0.9.6 is written against the
 * prototypes of CUDA 12, and these five changed with CUDA 13. The driver still
 * exports the old ones under the names below. */
#ifndef SEARCHLOOP_CUDA_H
#define SEARCHLOOP_CUDA_H
#include_next <cuda.h>
#if CUDA_VERSION >= 13000
#undef cuCtxCreate
#undef cuMemAdvise
#undef cuMemPrefetchAsync
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuGraphRemoveDependencies
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#define cuCtxCreate cuCtxCreate_v2
CUresult cuCtxCreate_v2(CUcontext *, unsigned int, CUdevice);
CUresult cuMemAdvise(CUdeviceptr, size_t, CUmem_advise, CUdevice);
CUresult cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream);
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphGetEdges(CUgraph, CUgraphNode *, CUgraphNode *, size_t *);
CUresult cuGraphRemoveDependencies(CUgraph, const CUgraphNode *, const CUgraphNode *, size_t);
CUresult cuGraphNodeGetDependencies(CUgraphNode, CUgraphNode *, size_t *);
CUresult cuGraphNodeGetDependentNodes(CUgraphNode, CUgraphNode *, size_t *);
#endif
#endif
