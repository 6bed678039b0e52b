#pragma once

// What go-faiss lacks: settings and row ranges of a single search, ids, joining,
// threads. Indices are go-faiss's handles.

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    int64_t nprobe;   // 0: what the index says
    int64_t from, to; // only ids from … to-1; to < 0: all
} search_settings;

enum { HAS_NPROBE = 1, HAS_EF_SEARCH = 2, HAS_ID_MAP = 4, HAS_RANGES = 8 };

int index_traits(const void* index, int* traits);
int index_search(const void* index, int64_t n, const float* x, int64_t k, const search_settings* s, float* scores, int64_t* ids);

// index_effort is the setting that searches of the index have in common, nprobe or
// efSearch, where FAISS 1.7.3 takes none for one search (HNSW and IVF with fast
// scan): it is read, or changed to *value where that is not 0. Other kinds: 0.
int index_effort(void* index, int64_t* value);

// index_ids checks the ids that the index stores: each of first … first+n-1 once.
// *state is 0 when it is so or ids are just counted, 1 for an id that came
// before, 2 for one outside; *id is the first that is wrong.
int index_ids(const void* index, int64_t first, int* state, int64_t* id);

// index_mapped prepares an index whose lists are mapped from a file: pages are
// read as they are needed, without threads that read ahead.
int index_mapped(void* index);

// index_reserve makes room for n vectors where they lie in one piece.
int index_reserve(void* index, int64_t n);

// index_merge moves the vectors of other to the end of index and empties other.
int index_merge(void* index, void* other);

// set_threads is how many threads FAISS uses for a call on this thread.
void set_threads(int n);

// one_blas_thread makes FAISS multiply matrices for batches of any size, each on
// the thread that calls: the caller brings the threads.
void one_blas_thread(void);

#ifdef __cplusplus
}
#endif
