#include <stddef.h>
/* cuda_open loads the driver: 0, an error of cuInit, or -1 with the reason. */
int cuda_open(char *why, size_t size);
void *cuda_library(const char *const *names, char *why, size_t size);
