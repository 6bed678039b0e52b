//go:build unix

package job

import (
	"os"
	"syscall"
)

// mapPlaces gives the first size bytes of a file as memory; nil where the file system
// has no such thing.
func mapPlaces(f *os.File, size int) []byte {
	b, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return b
}

func unmapPlaces(b []byte) {
	if b != nil {
		_ = syscall.Munmap(b)
	}
}
