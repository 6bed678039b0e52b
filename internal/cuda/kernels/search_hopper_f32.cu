#include "search_hopper.cuh"

WARPGROUPS(f32, F32)
