//go:build !linux

package plainhttp

import "syscall"

// writeSome writes as much of b, which is not empty, as the socket takes at once.
func writeSome(fd uintptr, b []byte) int {
	n, err := syscall.Write(int(fd), b)
	if err != nil {
		return 0 // whoever writes the rest learns why
	}
	return n
}

// readSome reads what has come into b, which is not empty.
func readSome(fd uintptr, b []byte) (int, error) {
	for {
		if n, err := syscall.Read(int(fd), b); err != syscall.EINTR {
			return n, err
		}
	}
}

// silent says whether nothing has come on a socket, not even its end.
func silent(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN
}
