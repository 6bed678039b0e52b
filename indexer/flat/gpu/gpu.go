// Package gpu searches the flat indices of package flat on NVIDIA GPUs. An open
// flat.Set goes in; hits come out that are those of the Set's own search: the same
// rows, and the same scores to the bit where the CPU has AVX2.
//
// Rows are held in the memory of the GPUs as they are stored, each GPU a part of
// them; what does not fit passes through at every search. A search scans rows by
// sums that may be off by a known bound, in the rows' own numbers or in a smaller
// copy (Options.Scan), keeps what could be among the best, and scores only that in
// the order of sums of package dots. Scores of other rows are written nowhere.
//
// It knows inner products, not distances. See docs/cuda.md.
package gpu

import (
	"log/slog"

	"searchloop/internal/device"
	"searchloop/internal/fail"
)

// Options of Open.
type Options struct {
	// Device is auto, cpu, cuda (all GPUs that the driver shows) or cuda:N. Auto is
	// the GPUs if there are any, the index is not small and fits into their memory.
	Device string
	// Scan is what rows are scanned as: stored, or a copy beside them as fp16, bf16
	// or int8. It changes speed and memory, not hits.
	Scan string
	// Memory bounds what an index takes of each GPU, in bytes; 0: what is free.
	Memory int64
	Log    *slog.Logger
}

// kind is how the numbers of a row are stored on the GPU.
type kind uint8

const (
	f32 kind = iota
	f16
	bf16
	u8
)

func (k kind) String() string { return [...]string{"f32", "f16", "bf16", "u8"}[k] }

func (k kind) bytes() int64 { return [...]int64{4, 2, 2, 1}[k] }

// pitchOf is what a row of dim numbers takes: whole pieces of 16 bytes.
func pitchOf(dim int, k kind) int64 { return (int64(dim)*k.bytes() + 15) &^ 15 }

// ordinals are the GPUs that a name means: nil for all, or for none when it is cpu.
func ordinals(name string) (which []int, auto, none bool, err error) {
	class, n, err := device.Parse(name)
	if class == "cuda" && name != class {
		which = []int{n}
	}
	return which, class == "auto", class == "cpu", err
}

// scanKind is the kind that a name of Options.Scan means for rows stored as k.
func scanKind(name string, k kind) (kind, error) {
	switch {
	case name == "" || name == "stored" || k == u8 && name == "int8":
		return k, nil
	case name == "fp16" && k <= f16:
		return f16, nil
	case name == "bf16" && k <= f16:
		return bf16, nil
	case name == "int8" && k <= f16:
		return u8, nil
	}
	return 0, fail.New(fail.Usage, "choose scan", "", "%q for rows of %v: want stored, fp16, bf16 or int8, and nothing finer than what is stored", name, k)
}

// Unable is the answer of an index that no GPU can search: an error where a GPU is
// asked for by name.
func Unable(o Options, op, path, why string) error {
	_, auto, none, err := ordinals(o.Device)
	if err != nil || none {
		return err
	}
	if auto {
		o.Log.Debug("searching on the CPU", "index", path, "because", why)
		return nil
	}
	return fail.WithHint(fail.New(fail.Usage, op, path, "no GPU searches this index: %s", why), "choose cpu or auto")
}

// Flags are the flags of a job that searches an index.
type Flags struct {
	Device    string  `default:"auto" placeholder:"NAME" help:"Where flat indices are searched: cpu, cuda (all GPUs), cuda:N, or auto: GPUs that have room for the index, else the CPU (default: auto)."`
	GPUScan   string  `name:"gpu-scan" enum:"stored,fp16,bf16,int8" default:"stored" help:"What GPUs read of a vector before they score exactly: it as stored, or a copy beside it as fp16, bf16 or int8. Hits are the same (default: stored)."`
	GPUMemory float64 `name:"gpu-memory" placeholder:"GIB" help:"At most so much of each GPU; what does not fit passes through at every search, which only cuda does (default: what is free)."`
}

// Options are those of the flags.
func (f Flags) Options(log *slog.Logger) Options {
	return Options{Device: f.Device, Scan: f.GPUScan, Memory: int64(f.GPUMemory * (1 << 30)), Log: log}
}
