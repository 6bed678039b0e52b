//go:build !linux

package atomicfile

import "os"

// StartWriting does nothing: only Linux can be asked.
func StartWriting(*os.File, int64, int64) {}
