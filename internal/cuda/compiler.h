#include <stddef.h>
int nvrtc_open(const char *const *names, int *version, char *why, size_t size);
int nvrtc_compile(const char *source, const char *name, int headers, const char *const *header, const char *const *header_name,
	int options, const char *const *option, char **out, size_t *n);
