//go:build !unix

package flat

import (
	"io"
	"os"
)

// mapFile reads the whole file where files are not mapped.
func mapFile(f *os.File, size int64) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, size))
}

func unmapFile([]byte) error { return nil }
