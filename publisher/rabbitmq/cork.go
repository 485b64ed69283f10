package rabbitmq

import (
	"net"
	"slices"
	"sync"
	"time"
)

// corkBytesMax is how much a corked connection holds back before it writes.
const corkBytesMax = 64 << 10

// corked is a connection that can hold writes back, so that a burst of messages needs one
// system call instead of one each: amqp091 flushes after every message. A write that the other
// side does not accept in time fails, and closes the connection: nothing hangs on a peer that
// has stopped reading.
type corked struct {
	net.Conn
	timeout time.Duration

	mu       sync.Mutex
	buffered []byte
	hold     int   // writes are held back up to that many bytes; 0: not at all
	err      error // of an earlier flush
}

// Write implements net.Conn.
func (c *corked) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.buffered = append(c.buffered, b...)
	if len(c.buffered) < c.hold {
		return len(b), nil
	}
	if err := c.flush(); err != nil {
		return 0, err
	}
	return len(b), nil
}

// cork holds writes back until there are that many bytes. With 0, the next write also sends
// what was held back.
func (c *corked) cork(bytes int) {
	c.mu.Lock()
	c.hold = bytes
	c.mu.Unlock()
}

// uncork writes what was held back. On an error it closes the connection.
func (c *corked) uncork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold = 0
	if c.err == nil {
		_ = c.flush() // the reader will find the connection closed
	}
}

// flush writes what is held back in pieces, and gives each the whole timeout.
func (c *corked) flush() error {
	for piece := range slices.Chunk(c.buffered, corkBytesMax) {
		if c.err = c.Conn.SetWriteDeadline(time.Now().Add(c.timeout)); c.err == nil {
			_, c.err = c.Conn.Write(piece)
		}
		if c.err != nil {
			c.Conn.Close()
			break
		}
	}
	if c.buffered = c.buffered[:0]; cap(c.buffered) > 4*corkBytesMax {
		c.buffered = nil // it grew for one large message
	}
	return c.err
}
