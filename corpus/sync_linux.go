package corpus

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncFileSystem writes everything of dir's file system to the disk.
func syncFileSystem(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
