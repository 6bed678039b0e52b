//go:build unix

package flat

import (
	"os"
	"syscall"
)

// mapFile maps size bytes of f for reading. size is never 0: a header is there.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

func unmapFile(b []byte) error {
	if b == nil {
		return nil
	}
	return syscall.Munmap(b)
}
