package api

import (
	"net"
	"sync"
	"time"
)

// A client may hold a spare connection on which it has asked for nothing: Go's own does
// so, when a call finds another connection free while it still dials. A stop must not
// wait for it. The HTTP server cannot tell: a connection is active to it from the
// moment in which it begins to read.

// freshListener hands out connections that stand in fresh until something comes on them.
type freshListener struct {
	net.Listener
	fresh *sync.Map
}

// Accept is part of net.Listener.
func (l *freshListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &freshConn{Conn: conn, fresh: l.fresh}
	l.fresh.Store(c, nil)
	return c, nil
}

// freshConn is a connection with one reader.
type freshConn struct {
	net.Conn
	fresh *sync.Map
	asked bool // only the reader looks at it
}

// Read is part of net.Conn.
func (c *freshConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.asked && (n > 0 || err != nil) {
		c.asked = true
		c.fresh.Delete(c)
	}
	return n, err
}

// closeFresh closes the connections on which nothing has come, until ended: some are
// accepted in the moment in which the stop begins.
func (s *Server) closeFresh(ended <-chan struct{}) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		s.fresh.Range(func(conn, _ any) bool {
			conn.(net.Conn).Close()
			return true
		})
		select {
		case <-again.C:
		case <-ended:
			return
		}
	}
}
