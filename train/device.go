package train

import (
	"fmt"
	"log/slog"

	"searchloop/internal/device"
	"searchloop/internal/tensor"
	"searchloop/internal/tensor/cuda"
)

// Device is where a job's passes and updates are computed, as --device names it:
// cpu (the default), cuda, cuda:N, or auto.
type Device struct {
	class   string // cpu or cuda
	ordinal int
	be      tensor.Trainer // nil until open
	gpu     *cuda.Backend  // of class cuda
	memory  func() (free, total int64)
}

// NewDevice reads a name. Only for auto is a GPU looked for: without one it is the
// CPU, and the log says why.
func NewDevice(name string, log *slog.Logger) (*Device, error) {
	class, ordinal, err := device.Parse(name)
	if err != nil {
		return nil, err
	}
	d := &Device{class: class, ordinal: ordinal}
	if class == "auto" {
		d.class = "cuda"
		if err := d.open(); err != nil {
			log.Info("training on the CPU", "because", err)
			d.class = "cpu"
		}
	}
	return d, nil
}

// open makes the device ready. The error says what is missing.
func (d *Device) open() error {
	if d.be != nil {
		return nil
	}
	if d.class != "cuda" {
		d.be = tensor.CPU
		return nil
	}
	be, err := cuda.New(d.ordinal)
	if err != nil {
		return err
	}
	d.be, d.gpu, d.memory = be, be, be.Device().Memory
	return nil
}

// onHost says whether weights are the process's own memory.
func (d *Device) onHost() bool { return d == nil || d.class == "cpu" }

// identity is what of the device decides about a result's bits, as the parameters
// of a job name it: nothing for the CPU.
func (d *Device) identity() string {
	if d.onHost() {
		return ""
	}
	return d.class + "/" + d.dtype()
}

// place is what metrics and manifests say of the device.
func (d *Device) place() (class, dtype string) {
	if d.onHost() {
		return "cpu", d.dtype()
	}
	return d.class, d.dtype()
}

// dtype is how weights and activations are held.
func (d *Device) dtype() string {
	if d.onHost() {
		return "float32"
	}
	return "bfloat16"
}

// String is the device with the GPU's name.
func (d *Device) String() string {
	if d.onHost() {
		return "cpu"
	}
	if d.gpu == nil {
		return fmt.Sprintf("cuda:%d", d.ordinal)
	}
	g := d.gpu.Device()
	return fmt.Sprintf("cuda:%d (%s, compute capability %d.%d)", d.ordinal, g.Name, g.Major, g.Minor)
}

// free is the device's free and total memory in bytes; 0 where it is the host's.
func (d *Device) free() (free, total int64) {
	if d == nil || d.memory == nil {
		return 0, 0
	}
	return d.memory()
}
