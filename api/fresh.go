package api

import (
	"net"
	"sync"
	"time"
)

// A client may hold a spare connection on which it has sent nothing. Go's own client
// does so when another connection becomes free while it still dials. Shutdown must not
// wait for such a connection, and fasthttp cannot tell it from a busy one: it counts a
// connection as active from the moment it begins to read.

// freshListener accepts connections and keeps each in fresh until data arrives on it.
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
	asked bool // used by the reader alone
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

// closeFresh closes the connections on which nothing has arrived. It repeats until
// ended is closed, because some are accepted while the shutdown begins.
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
