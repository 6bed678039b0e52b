//go:build cuda

package cuda

// #include <stdlib.h>
import "C"

import (
	"os"
	"path/filepath"
	"unsafe"
)

// cStrings is a NULL-terminated array of C strings.
func cStrings(list []string) (array **C.char, free func()) {
	p := (*[1 << 16]*C.char)(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0)))))
	for i, s := range list {
		p[i] = C.CString(s)
	}
	return &p[0], func() {
		for i := range list {
			C.free(unsafe.Pointer(p[i]))
		}
		C.free(unsafe.Pointer(p))
	}
}

// libraryNames is where a library of the toolkit is looked for: by the loader,
// then in the toolkit's folders. CUDA's major version is part of the name.
func libraryNames(name string) []string {
	var out []string
	for _, dir := range []string{"", filepath.Join(os.Getenv("CUDA_HOME"), "lib64"), filepath.Join(os.Getenv("CUDA_HOME"), "lib"), "/usr/local/cuda/lib64"} {
		if dir == "lib64" || dir == "lib" {
			continue // no CUDA_HOME
		}
		for _, v := range []string{".13", ".12", ""} {
			out = append(out, filepath.Join(dir, name+".so"+v))
		}
	}
	return out
}
