//go:build cuda

package cuda

/*
#include <stdlib.h>
#include "compiler.h"
*/
import "C"

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// sources are the kernels, one .cu file a module; what they share is in .cuh.
//
//go:embed kernels/*.cu kernels/*.cuh
var sources embed.FS

// Sources names the modules that can be compiled, sorted.
func Sources() []string {
	files, err := fs.Glob(sources, "kernels/*.cu")
	if err != nil {
		panic(err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".cu")
	}
	return files
}

var compiler struct {
	once    sync.Once
	version int
	err     error
}

// openCompiler loads NVRTC once.
func openCompiler() (version int, err error) {
	compiler.once.Do(func() {
		names, free := cStrings(libraryNames("libnvrtc"))
		defer free()
		var why [512]C.char
		var v C.int
		if C.nvrtc_open(names, &v, &why[0], C.size_t(len(why))) != 0 {
			compiler.err = fail.WithHint(fail.New(fail.Usage, "open NVRTC", "", "%s", C.GoString(&why[0])),
				"install CUDA's run-time compiler (libnvrtc, of CUDA 12 or 13), or set CUDA_HOME or LD_LIBRARY_PATH to where it is")
			return
		}
		compiler.version = int(v)
	})
	return compiler.version, compiler.err
}

// Compile makes machine code of a module for a compute capability such as 90. It
// needs no GPU. The error holds the compiler's messages.
func Compile(module string, capability int) (cubin []byte, err error) {
	if _, err := openCompiler(); err != nil {
		return nil, err
	}
	text, err := sources.ReadFile("kernels/" + module + ".cu")
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "compile kernels", module, err)
	}
	var headers, headerNames []string
	shared, err := fs.Glob(sources, "kernels/*.cuh")
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "compile kernels", module, err)
	}
	for _, f := range shared {
		h, err := sources.ReadFile(f)
		if err != nil {
			return nil, fail.Wrap(fail.Bug, "compile kernels", f, err)
		}
		headers, headerNames = append(headers, string(h)), append(headerNames, path.Base(f))
	}
	options := compileOptions(capability)
	cs := make([]**C.char, 3)
	for i, list := range [][]string{headers, headerNames, options} {
		var free func()
		cs[i], free = cStrings(list)
		defer free()
	}
	source, name := C.CString(string(text)), C.CString(module+".cu")
	defer C.free(unsafe.Pointer(source))
	defer C.free(unsafe.Pointer(name))
	var out *C.char
	var n C.size_t
	code := C.nvrtc_compile(source, name, C.int(len(headers)), cs[0], cs[1], C.int(len(options)), cs[2], &out, &n)
	defer C.free(unsafe.Pointer(out))
	result := C.GoBytes(unsafe.Pointer(out), C.int(n))
	if code != 0 {
		return nil, fail.New(fail.Bug, "compile kernels", module+".cu", "for sm_%d:\n%s", capability, strings.TrimRight(string(result), "\x00\n"))
	}
	return result, nil
}

func compileOptions(capability int) []string {
	arch := fmt.Sprintf("sm_%d", capability)
	if capability == 90 {
		arch = "sm_90a" // wgmma
	}
	return []string{"--gpu-architecture=" + arch, "--std=c++17"}
}

// Module is a compiled source file on a device.
type Module struct{ m cu.Module }

// Load compiles modules for the device, all at once, or takes them from the cache
// of an earlier run, and loads them.
func (d *Device) Load(modules []string) (map[string]*Module, error) {
	cubins, errs := make([][]byte, len(modules)), make([]error, len(modules))
	var wait sync.WaitGroup
	for i, name := range modules {
		wait.Go(func() { cubins[i], errs[i] = cached(name, 10*d.Major+d.Minor) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	out := map[string]*Module{}
	for i, name := range modules {
		m := &Module{}
		err := d.Do(func() (err error) { m.m, err = cu.LoadData(string(cubins[i])); return err })
		if err != nil {
			return nil, fail.Wrap(fail.Service, "load kernels", name, err)
		}
		out[name] = m
		d.loaded = append(d.loaded, m)
	}
	return out, nil
}

// Kernel finds a function of the module.
func (d *Device) Kernel(m *Module, name string) (*Kernel, error) {
	k := &Kernel{name: name}
	err := d.Do(func() error {
		f, err := m.m.Function(name)
		k.f = *(*unsafe.Pointer)(unsafe.Pointer(&f)) // the handle itself; cu keeps it to itself
		return err
	})
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "find kernel", name, err)
	}
	return k, nil
}

// cached is Compile with a cache in the user's cache folder. A cache that cannot
// be written or read costs time, nothing else.
func cached(module string, capability int) ([]byte, error) {
	version, err := openCompiler()
	if err != nil {
		return nil, err
	}
	h := sha256.New()
	fmt.Fprintln(h, version, capability, compileOptions(capability), module)
	err = fs.WalkDir(sources, "kernels", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(name) == ".cu" && path.Base(name) != module+".cu" {
			return err
		}
		text, err := sources.ReadFile(name)
		fmt.Fprintln(h, name, len(text))
		h.Write(text)
		return err
	})
	if err != nil {
		return nil, fail.Wrap(fail.Bug, "compile kernels", module, err)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return Compile(module, capability)
	}
	file := filepath.Join(dir, "searchloop", "cubin", hex.EncodeToString(h.Sum(nil)[:16])+".cubin")
	if cubin, err := os.ReadFile(file); err == nil {
		return cubin, nil
	}
	cubin, err := Compile(module, capability)
	if err != nil {
		return nil, err
	}
	_ = atomicfile.WriteFile(file, cubin)
	return cubin, nil
}
