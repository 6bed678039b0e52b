//go:build cuda

#define _GNU_SOURCE
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include "driver.h"
#include "compiler.h"

static struct {
	int (*version)(int *, int *);
	const char *(*error)(int);
	int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
	int (*destroy)(void **);
	int (*compile)(void *, int, const char *const *);
	int (*log_size)(void *, size_t *);
	int (*log)(void *, char *);
	int (*cubin_size)(void *, size_t *);
	int (*cubin)(void *, char *);
} rtc;

/* NVRTC opens a second library by name only, which fails when it was itself found
 * by its path: open the one that lies beside it. */
static void open_builtins(void *in) {
	Dl_info info;
	char pattern[4096];
	glob_t found;
	if (!dladdr(in, &info)) return;
	const char *end = strrchr(info.dli_fname, '/');
	if (!end) return;
	snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins.so.*", (int)(end - info.dli_fname), info.dli_fname);
	if (!glob(pattern, 0, 0, &found)) {
		for (size_t i = 0; i < found.gl_pathc; i++) dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_GLOBAL);
		globfree(&found);
	}
}

int nvrtc_open(const char *const *names, int *version, char *why, size_t size) {
	void *lib = cuda_library(names, why, size);
	if (!lib) return -1;
	struct { const char *name; void **to; } f[] = {
		{"nvrtcVersion", (void **)&rtc.version}, {"nvrtcGetErrorString", (void **)&rtc.error},
		{"nvrtcCreateProgram", (void **)&rtc.create}, {"nvrtcDestroyProgram", (void **)&rtc.destroy},
		{"nvrtcCompileProgram", (void **)&rtc.compile}, {"nvrtcGetProgramLogSize", (void **)&rtc.log_size},
		{"nvrtcGetProgramLog", (void **)&rtc.log}, {"nvrtcGetCUBINSize", (void **)&rtc.cubin_size},
		{"nvrtcGetCUBIN", (void **)&rtc.cubin},
	};
	for (size_t i = 0; i < sizeof f / sizeof *f; i++)
		if (!(*f[i].to = dlsym(lib, f[i].name))) {
			snprintf(why, size, "NVRTC without %s", f[i].name);
			return -1;
		}
	open_builtins(rtc.version);
	int major = 0, minor = 0;
	int code = rtc.version(&major, &minor);
	*version = 1000 * major + 10 * minor;
	return code;
}

/* The caller frees *out: the cubin, or the compiler's messages when the result is
 * not 0. */
int nvrtc_compile(const char *source, const char *name, int headers, const char *const *header, const char *const *header_name,
		int options, const char *const *option, char **out, size_t *n) {
	void *p = 0;
	*out = 0, *n = 0;
	int code = rtc.create(&p, source, name, headers, header, header_name);
	if (!code) {
		code = rtc.compile(p, options, option);
		int (*size)(void *, size_t *) = code ? rtc.log_size : rtc.cubin_size;
		int (*get)(void *, char *) = code ? rtc.log : rtc.cubin;
		int again = size(p, n);
		if (!again && (*out = malloc(*n + 1))) again = get(p, *out);
		if (!code) code = again;
		rtc.destroy(&p);
	}
	if (code && !*out) {
		*out = strdup(rtc.error(code));
		*n = strlen(*out);
	}
	return code;
}
