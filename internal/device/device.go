// Package device reads --device: where a job computes. A name goes in (cpu, cuda,
// cuda:N, auto), the back end of the GPU comes out, or none for the CPU.
package device

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

// Parse splits a name; "" is the CPU. The class is cpu, cuda or auto.
func Parse(name string) (class string, ordinal int, err error) {
	bad := fail.New(fail.Usage, "choose device", "", "%q: want cpu, cuda, cuda:N or auto", name)
	class, number, numbered := strings.Cut(name, ":")
	switch {
	case name == "":
		return "cpu", 0, nil
	case name == "cpu", name == "auto":
		return name, 0, nil
	case class != "cuda":
		return "", 0, bad
	case numbered:
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || strconv.Itoa(n) != number {
			return "", 0, bad
		}
		ordinal = n
	}
	return class, ordinal, nil
}

// GPU is an open one, or what stands for one in a test. nil is the CPU.
type GPU struct {
	tensor.Shared
	Name string // for people
}

// Open opens the device of a name: nil is the CPU. Only for auto is a GPU looked for:
// without one it is the CPU, and the log says why.
func Open(name string, log *slog.Logger) (*GPU, error) {
	class, ordinal, err := Parse(name)
	if err != nil || class == "cpu" {
		return nil, err
	}
	be, err := cuda.New(ordinal)
	switch {
	case err != nil && class == "auto":
		log.Info("computing on the CPU", "because", err)
		return nil, nil
	case err != nil:
		return nil, err
	}
	d := be.Device()
	return &GPU{tensor.Shared{Encoding: be}, fmt.Sprintf("cuda:%d (%s, compute capability %d.%d)", ordinal, d.Name, d.Major, d.Minor)}, nil
}

// Identity is what of the device decides about a result's bits, as the parameters of a
// job name it: nothing for the CPU.
func (g *GPU) Identity() string {
	if g == nil {
		return ""
	}
	return "cuda/bfloat16"
}
