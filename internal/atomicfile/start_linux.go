package atomicfile

import (
	"os"

	"golang.org/x/sys/unix"
)

// StartWriting asks the system to write a part of a file to the disk now, and does
// not wait for it. It makes nothing durable; file systems that cannot do it write
// later.
func StartWriting(f *os.File, from, n int64) {
	unix.SyncFileRange(int(f.Fd()), from, n, unix.SYNC_FILE_RANGE_WRITE)
}
