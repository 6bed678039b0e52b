//go:build cuda

package cuda

/*
#cgo LDFLAGS: -L${SRCDIR}/stub -ldl
#include <string.h>
#include <cuda.h>
#include "driver.h"

// run launches f with n arguments, each of which begins at words[at[i]].
static int run(void *f, const unsigned *dims, unsigned shared, void *stream, unsigned long long *words, const int *at, int n) {
	void *p[32];
	for (int i = 0; i < n; i++) p[i] = &words[at[i]];
	return cuLaunchKernel(f, dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], shared, stream, p, 0);
}
static int pin(void **p, size_t n) { return cuMemHostAlloc(p, n, 0); }
static int allow_shared(void *f, int bytes) {
	return cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}
// encode describes a bfloat16 matrix to the copy engine of Hopper: boxes of 64
// columns and box_rows rows, laid out with the 128-byte swizzle.
static int encode(void *out, unsigned long long address, unsigned long long cols, unsigned long long rows, unsigned long long stride, unsigned box_rows) {
	cuuint64_t dims[2] = {cols, rows}, strides[1] = {stride};
	cuuint32_t box[2] = {64, box_rows}, steps[2] = {1, 1};
	CUtensorMap m;
	int e = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)address, dims, strides, box, steps,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	memcpy(out, &m, sizeof m);
	return e;
}
// encode_bytes does so for rows of bytes, in boxes of 128 bytes and box_rows rows.
static int encode_bytes(void *out, unsigned long long address, unsigned long long bytes, unsigned long long rows, unsigned long long pitch, unsigned box_rows) {
	cuuint64_t dims[2] = {bytes, rows}, strides[1] = {pitch};
	cuuint32_t box[2] = {128, box_rows}, steps[2] = {1, 1};
	CUtensorMap m;
	int e = cuTensorMapEncodeTiled(&m, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, (void *)address, dims, strides, box, steps,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	memcpy(out, &m, sizeof m);
	return e;
}
static const char *error_name(int code) {
	const char *s = 0;
	return cuGetErrorName(code, &s) ? 0 : s;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"

	"searchloop/internal/fail"
)

// Device is one GPU and the stream on which this program's work for it runs.
type Device struct {
	Name         string
	Major, Minor int // compute capability
	SMs          int

	ordinal int
	ctx     cu.CUContext
	stream  cu.Stream
	blas    *blas
	pinned  unsafe.Pointer // staging memory of the host
	stages  chan *stage    // of Later
	loaded  []*Module
	held    map[Ptr]int64 // bytes by allocation
	used    int64
	peak    int64
}

var driver struct {
	once sync.Once
	err  error
}

// openDriver loads libcuda once.
func openDriver() error {
	driver.once.Do(func() {
		var why [512]C.char
		switch code := C.cuda_open(&why[0], C.size_t(len(why))); {
		case code == -1:
			driver.err = fail.WithHint(fail.New(fail.Usage, "open GPU", "", "no NVIDIA driver: %s", C.GoString(&why[0])),
				"install the driver (nvidia-smi must work), or use the CPU")
		case code != 0:
			driver.err = fail.New(fail.Usage, "open GPU", "", "the NVIDIA driver does not start: %s", errorName(int(code)))
		}
	})
	return driver.err
}

func errorName(code int) string {
	if s := C.error_name(C.int(code)); s != nil {
		return fmt.Sprintf("%s (%d)", C.GoString(s), code)
	}
	return fmt.Sprintf("error %d", code)
}

// Count is the number of GPUs that the driver shows.
func Count() (int, error) {
	if err := openDriver(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, fail.Wrap(fail.Usage, "count GPUs", "", err)
}

// Open takes the GPU of the given number. The kernels need compute capability
// 8.0: Ampere or later. The error is a fail.Usage.
func Open(ordinal int) (*Device, error) {
	if err := openDriver(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "open GPU", "", err)
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fail.New(fail.Usage, "open GPU", "", "there is no GPU %d: the driver shows %d (see CUDA_VISIBLE_DEVICES)", ordinal, n)
	}
	dev, err := cu.GetDevice(ordinal)
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "open GPU", "", err)
	}
	d := &Device{ordinal: ordinal, held: map[Ptr]int64{}, stages: make(chan *stage, 4)}
	for _, a := range []struct {
		to   *int
		attr cu.DeviceAttribute
	}{{&d.Major, cu.ComputeCapabilityMajor}, {&d.Minor, cu.ComputeCapabilityMinor}, {&d.SMs, cu.MultiprocessorCount}} {
		if *a.to, err = dev.Attribute(a.attr); err != nil {
			return nil, fail.Wrap(fail.Usage, "open GPU", "", err)
		}
	}
	if d.Name, err = dev.Name(); err != nil {
		return nil, fail.Wrap(fail.Usage, "open GPU", "", err)
	}
	if d.Major < 8 {
		return nil, fail.New(fail.Usage, "open GPU", "", "%s has compute capability %d.%d: 8.0 (Ampere) or later is needed", d.Name, d.Major, d.Minor)
	}
	if d.ctx, err = dev.RetainPrimaryCtx(); err != nil {
		return nil, fail.Wrap(fail.Usage, "open GPU", d.Name, err)
	}
	err = d.Do(func() error {
		var err error
		if d.stream, err = cu.MakeStream(cu.NonBlocking); err != nil {
			return err
		}
		if code := C.pin(&d.pinned, pinnedSize); code != 0 {
			return errors.New(errorName(int(code)))
		}
		return nil
	})
	if err != nil {
		return nil, fail.Wrap(fail.Usage, "open GPU", d.Name, err)
	}
	return d, nil
}

// Close gives back the device's memory and kernels, when the work queued so far is
// done. The Device is no use afterwards.
func (d *Device) Close() (err error) {
	defer Guard(&err)
	d.Wait()
	d.must("close", func() error {
		var errs []error
		for p := range d.held {
			errs = append(errs, cu.MemFree(cu.DevicePtr(p)))
		}
		for _, m := range d.loaded {
			errs = append(errs, m.m.Unload())
		}
		for len(d.stages) > 0 {
			errs = append(errs, cu.MemFreeHost((<-d.stages).memory))
		}
		return errors.Join(append(errs, cu.MemFreeHost(d.pinned), d.stream.Destroy())...)
	})
	d.held, d.loaded, d.used = map[Ptr]int64{}, nil, 0
	return nil
}

// pinnedSize is the size of the staging memory. Pageable memory would be copied
// by the driver through a buffer of its own, in smaller pieces.
const pinnedSize = 16 << 20

// Do runs f with the device's context on its thread.
func (d *Device) Do(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		return err
	}
	return f()
}

// must runs f and panics with a *Fault when it fails.
func (d *Device) must(what string, f func() error) {
	if err := d.Do(f); err != nil {
		panic(&Fault{fail.WithHint(fail.Wrap(kindOf(err), what, d.Name, err), d.hint(err))})
	}
}

func kindOf(err error) fail.Kind {
	if errors.Is(err, cu.OutOfMemory) {
		return fail.Usage
	}
	return fail.Service
}

func (d *Device) hint(err error) string {
	if !errors.Is(err, cu.OutOfMemory) {
		return ""
	}
	free, total := d.Memory()
	return fmt.Sprintf("%.1f GiB are held by this program and %.1f of %.1f GiB are free: ask for less (smaller packs, fewer bytes a number), or take a larger GPU, or end what else runs on it", gib(d.used), gib(free), gib(total))
}

func gib(n int64) float64 { return float64(n) / (1 << 30) }

// Memory is the device's free and total memory in bytes.
func (d *Device) Memory() (free, total int64) {
	_ = d.Do(func() (err error) { free, total, err = cu.MemInfo(); return err })
	return free, total
}

// Used is the memory held now, and at most since the last call, in bytes.
func (d *Device) Used() (now, peak int64) {
	peak, d.peak = d.peak, d.used
	return d.used, peak
}

// Alloc returns bytes of memory; its content is not defined.
func (d *Device) Alloc(bytes int64) Ptr {
	if bytes == 0 {
		return 0
	}
	var p Ptr
	d.must("allocate "+fmt.Sprintf("%.2f GiB", gib(bytes)), func() error {
		a, err := cu.MemAlloc(bytes)
		p = Ptr(a)
		return err
	})
	d.held[p] = bytes
	d.used += bytes
	d.peak = max(d.peak, d.used)
	return p
}

// Free gives memory back once the work queued so far is done.
func (d *Device) Free(p Ptr) {
	if p == 0 {
		return
	}
	n, ok := d.held[p]
	if !ok {
		panic("cuda: Free of memory that Alloc did not return")
	}
	d.Wait()
	d.must("free", func() error { return cu.MemFree(cu.DevicePtr(p)) })
	delete(d.held, p)
	d.used -= n
}

// Upload copies host memory to the device. Small pieces are taken over by the
// driver and do not wait for the queue.
func (d *Device) Upload(dst Ptr, src unsafe.Pointer, bytes int) {
	const small = 64 << 10
	if bytes <= 8*small {
		for at := 0; at < bytes; at += small {
			d.must("copy to the GPU", func() error {
				return cu.MemcpyHtoDAsync(cu.DevicePtr(dst)+cu.DevicePtr(at), unsafe.Add(src, at), int64(min(small, bytes-at)), d.stream)
			})
		}
		return
	}
	for bytes > 0 {
		n := min(bytes, pinnedSize)
		d.Wait() // the staging memory may be in use
		copy(unsafe.Slice((*byte)(d.pinned), n), unsafe.Slice((*byte)(src), n))
		d.must("copy to the GPU", func() error {
			return cu.MemcpyHtoDAsync(cu.DevicePtr(dst), d.pinned, int64(n), d.stream)
		})
		dst, src, bytes = dst+Ptr(n), unsafe.Add(src, n), bytes-n
	}
}

// Download copies device memory to the host, when the work queued so far is done.
func (d *Device) Download(dst unsafe.Pointer, src Ptr, bytes int) {
	for bytes > 0 {
		n := min(bytes, pinnedSize)
		d.must("copy from the GPU", func() error {
			return cu.MemcpyDtoHAsync(d.pinned, cu.DevicePtr(src), int64(n), d.stream)
		})
		d.Wait()
		copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(d.pinned), n))
		dst, src, bytes = unsafe.Add(dst, n), src+Ptr(n), bytes-n
	}
}

// AllocHost returns bytes of page-locked memory of the host, which the device
// copies from and to at its own pace; its content is not defined.
func (d *Device) AllocHost(bytes int64) (p unsafe.Pointer) {
	d.must(fmt.Sprintf("lock %.2f GiB of host memory", gib(bytes)), func() error {
		if code := C.pin(&p, C.size_t(bytes)); code != 0 {
			return fmt.Errorf("%s: page-locked memory must be free on the host, and allowed (ulimit -l)", errorName(int(code)))
		}
		return nil
	})
	return p
}

// FreeHost gives it back once the work queued so far is done.
func (d *Device) FreeHost(p unsafe.Pointer) {
	d.Wait()
	d.must("free host memory", func() error { return cu.MemFreeHost(p) })
}

// Fetch and Store queue copies between the device and memory of AllocHost. The
// host may touch that memory again after Wait.
func (d *Device) Fetch(dst Ptr, src unsafe.Pointer, bytes int) {
	d.must("copy to the GPU", func() error { return cu.MemcpyHtoDAsync(cu.DevicePtr(dst), src, int64(bytes), d.stream) })
}

func (d *Device) Store(dst unsafe.Pointer, src Ptr, bytes int) {
	d.must("copy from the GPU", func() error { return cu.MemcpyDtoHAsync(dst, cu.DevicePtr(src), int64(bytes), d.stream) })
}

// stage is page-locked memory that a download of Later passes through.
type stage struct {
	memory unsafe.Pointer
	bytes  int
}

// Later queues a download and returns at once. wait, called once and from any
// goroutine, returns when dst holds the values.
func (d *Device) Later(dst unsafe.Pointer, src Ptr, bytes int) (wait func()) {
	var s *stage
	select {
	case s = <-d.stages:
	default:
		s = new(stage)
	}
	if s.bytes < bytes {
		if s.memory != nil {
			d.FreeHost(s.memory)
		}
		n := 1 << max(20, bits.Len(uint(bytes-1))) // a few sizes, so that few are made
		*s = stage{d.AllocHost(int64(n)), n}
	}
	d.Store(s.memory, src, bytes)
	var done cu.Event
	d.must("copy from the GPU", func() (err error) {
		if done, err = cu.MakeEvent(cu.BlockingSyncEvent); err != nil {
			return err
		}
		return done.Record(d.stream)
	})
	return func() {
		d.must("copy from the GPU", func() error { return errors.Join(done.Synchronize(), cu.DestroyEvent(&done)) })
		copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(s.memory), bytes))
		select {
		case d.stages <- s:
		default:
			d.must("free host memory", func() error { return cu.MemFreeHost(s.memory) })
		}
	}
}

// Copy copies within the device.
func (d *Device) Copy(dst, src Ptr, bytes int) {
	d.must("copy", func() error {
		return cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), int64(bytes), d.stream)
	})
}

// Clear sets bytes to zero.
func (d *Device) Clear(p Ptr, bytes int) {
	d.must("clear", func() error { return cu.MemsetD8Async(cu.DevicePtr(p), 0, int64(bytes), d.stream) })
}

// Wait returns when all queued work is done.
func (d *Device) Wait() { d.must("wait", d.stream.Synchronize) }

// Mark is a place in the queue of work.
type Mark struct{ e cu.Event }

// Mark marks the end of what is queued now.
func (d *Device) Mark() (m Mark) {
	d.must("mark", func() (err error) {
		if m.e, err = cu.MakeEvent(cu.DisableTiming); err != nil {
			return err
		}
		return m.e.Record(d.stream)
	})
	return m
}

// Await returns when the work before the mark is done; a mark serves once.
func (d *Device) Await(m Mark) {
	d.must("wait", func() error {
		return errors.Join(m.e.Synchronize(), cu.DestroyEvent(&m.e))
	})
}

// Time runs f and returns the seconds the device needed for what f queued.
func (d *Device) Time(f func()) float64 {
	var a, b cu.Event
	d.must("time", func() (err error) {
		if a, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
			return err
		}
		b, err = cu.MakeEvent(cu.DefaultEvent)
		return err
	})
	d.must("time", func() error { return a.Record(d.stream) })
	f()
	var ms float64
	d.must("time", func() (err error) {
		if err = b.Record(d.stream); err != nil {
			return err
		}
		if err = b.Synchronize(); err != nil {
			return err
		}
		if ms, err = a.Elapsed(b); err != nil {
			return err
		}
		return errors.Join(cu.DestroyEvent(&a), cu.DestroyEvent(&b))
	})
	return ms / 1e3
}

// Grid is the shape of a launch.
type Grid struct {
	X, Y, Z int // blocks; 0 means 1
	Threads int // of a block
	Shared  int // bytes of dynamic shared memory
}

// Kernel is a function of a Module.
type Kernel struct {
	name   string
	f      unsafe.Pointer
	shared int // allowed so far
}

// Map tells the copy engine of compute capability 9.0 where a matrix lies.
type Map [16]C.ulonglong

// Matrix describes rows×cols bfloat16 values, rows stride values apart, for boxes
// of 64 columns and boxRows rows (at most 256) with the 128-byte swizzle. p is a
// multiple of 16, stride of 8.
func (d *Device) Matrix(p Ptr, rows, cols, stride, boxRows int) Map {
	var m Map
	d.must("describe a matrix", func() error {
		if code := C.encode(unsafe.Pointer(&m), C.ulonglong(p), C.ulonglong(cols), C.ulonglong(rows), C.ulonglong(2*stride), C.uint(boxRows)); code != 0 {
			return errors.New(errorName(int(code)))
		}
		return nil
	})
	return m
}

// Bytes describes rows of bytes, pitch apart, for boxes of 128 bytes and boxRows
// rows (at most 256) with the 128-byte swizzle. p and pitch are multiples of 16.
func (d *Device) Bytes(p Ptr, rows, bytes, pitch int64, boxRows int) Map {
	var m Map
	d.must("describe rows", func() error {
		if code := C.encode_bytes(unsafe.Pointer(&m), C.ulonglong(p), C.ulonglong(bytes), C.ulonglong(rows), C.ulonglong(pitch), C.uint(boxRows)); code != 0 {
			return errors.New(errorName(int(code)))
		}
		return nil
	})
	return m
}

// Launch queues a kernel. Arguments are Ptr, int32, int (passed as int32),
// uint32, int64, float32 and Map, in the kernel's order.
func (d *Device) Launch(k *Kernel, g Grid, args ...any) {
	var raw [128]C.ulonglong
	var begins [32]C.int
	used := 0
	for n, a := range args {
		begins[n] = C.int(used)
		i := used
		used++
		switch a := a.(type) {
		case Ptr:
			raw[i] = C.ulonglong(a)
		case int:
			if a != int(int32(a)) {
				panic(fmt.Sprintf("cuda: argument %d of %s, %d, is beyond 32 bits", n, k.name, a))
			}
			raw[i] = C.ulonglong(uint32(int32(a)))
		case int32:
			raw[i] = C.ulonglong(uint32(a))
		case uint32:
			raw[i] = C.ulonglong(a)
		case int64:
			raw[i] = C.ulonglong(a)
		case float32:
			raw[i] = C.ulonglong(math.Float32bits(a))
		case Map:
			used = i + copy(raw[i:], a[:])
		default:
			panic(fmt.Sprintf("cuda: argument %d of %s has type %T", n, k.name, a))
		}
	}
	dims := [6]C.uint{C.uint(max(1, g.X)), C.uint(max(1, g.Y)), C.uint(max(1, g.Z)), C.uint(g.Threads), 1, 1}
	d.must("launch "+k.name, func() error {
		if g.Shared > 48<<10 && g.Shared > k.shared {
			if code := C.allow_shared(k.f, C.int(g.Shared)); code != 0 {
				return errors.New(errorName(int(code)))
			}
			k.shared = g.Shared
		}
		if code := C.run(k.f, &dims[0], C.uint(g.Shared), unsafe.Pointer(d.stream.C()), &raw[0], &begins[0], C.int(len(args))); code != 0 {
			return errors.New(errorName(int(code)))
		}
		return nil
	})
}
