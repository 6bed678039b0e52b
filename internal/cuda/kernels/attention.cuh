#include "common.cuh"

// What the two sets of attention kernels share.

// A tile is a block of query rows (or keys) of one sequence.
struct tile {
	int seq, row; // sequence, first row (or key) inside it
};

struct shape {
	const int *cu;      // [sequences+1], of the keys
	const int *rows;    // [sequences+1], of the queries
	const int *at;      // token of each query row, or null: row r is token r
	i64 qs, ks, vs;     // strides
	int heads, kv, d, causal, total; // total: query rows, the stride of lse
	float scale;
};

// sees is the number of keys that query row r of the pack sees.
__device__ __forceinline__ int sees(const shape &s, int seq, int r, int last) {
	if (r >= last) return 0;
	if (!s.causal) return s.cu[seq + 1] - s.cu[seq];
	return s.at ? s.at[r] - s.cu[seq] + 1 : r - s.rows[seq] + 1;
}

#define SHAPE const int *cu, const int *rows, const int *at, i64 qs, i64 ks, i64 vs, int heads, int kv, int d, int causal, int total, float scale
#define MAKE_SHAPE shape{cu, rows, at, qs, ks, vs, heads, kv, d, causal, total, scale}
