#include "search_hopper.cuh"

WARPGROUPS(bf16, BF16)
