package plainhttp

import (
	"syscall"
	"unsafe"
)

// The sockets do not block, so that the runtime need not be told of a call: it would
// give the processor away for it.

// writeSome writes as much of b, which is not empty, as the socket takes at once.
func writeSome(fd uintptr, b []byte) int {
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	if errno != 0 {
		return 0 // whoever writes the rest learns why
	}
	return int(n)
}

// readSome reads what has come into b, which is not empty.
func readSome(fd uintptr, b []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}

// silent says whether nothing has come on a socket, not even its end.
func silent(fd uintptr) bool {
	var b [1]byte
	_, _, errno := syscall.RawSyscall6(syscall.SYS_RECVFROM, fd, uintptr(unsafe.Pointer(&b[0])), 1, syscall.MSG_PEEK|syscall.MSG_DONTWAIT, 0, 0)
	return errno == syscall.EAGAIN
}
