//go:build unix

package kafka

import (
	"errors"
	"net"
	"syscall"
)

// hungUp reports whether the other side has closed the connection. It peeks at the receive
// buffer, without waiting.
func hungUp(c net.Conn) (gone bool) {
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		again := errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR)
		gone = err == nil && n == 0 || err != nil && !again
	})
	return gone || err != nil
}
