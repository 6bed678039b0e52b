//go:build cuda

#include <dlfcn.h>
#include <stdio.h>
#include "driver.h"

int cuda_later(unsigned flags) { (void)flags; return 0; }
int cuda_absent(void) { return 34; } /* CUDA_ERROR_STUB_LIBRARY */

#define F(n) extern void *cuda_slot_##n;
F(cuInit)
#include "symbols.h"
#undef F
#define F(n) {#n, &cuda_slot_##n},
static const struct { const char *name; void **slot; } slots[] = {
#include "symbols.h"
};

int cuda_open(char *why, size_t size) {
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		snprintf(why, size, "%s", dlerror());
		return -1;
	}
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	if (!init) {
		snprintf(why, size, "libcuda.so.1 has no cuInit");
		return -1;
	}
	int code = init(0);
	if (code) return code;
	for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
		void *f = dlsym(lib, slots[i].name);
		if (f) *slots[i].slot = f;
	}
	return 0;
}

/* library opens the first of names that is there; the last is NULL. */
void *cuda_library(const char *const *names, char *why, size_t size) {
	why[0] = 0;
	for (; *names; names++) {
		void *lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
		if (lib) return lib;
		if (!why[0]) snprintf(why, size, "%s", dlerror());
	}
	return NULL;
}
