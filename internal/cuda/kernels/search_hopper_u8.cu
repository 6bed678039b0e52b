#include "search_hopper.cuh"

WARPGROUPS(u8, U8)
