#include "search_hopper.cuh"

WARPGROUPS(f16, F16)
