package webhook

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

const idleTime = 60 * time.Second // for which an unused connection is kept

// forbidden is the error of a connection to an address that may not be reached.
type forbidden struct{ host, address string }

func (f *forbidden) Error() string {
	return fmt.Sprintf("the host %s has the address %s, which is not public: %s", f.host, f.address, remedy)
}

// dial connects. Each address is looked at after the name was resolved and before
// the first packet goes there, so a name that changes its address changes nothing.
func (p *Publisher) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{
		Timeout: p.config.Timeout, Resolver: p.config.Resolver,
		Control: func(_, resolved string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(resolved)
			if err != nil || !p.guard.permits(host, to.Addr()) {
				return &forbidden{host, resolved}
			}
			return nil
		},
	}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// conn is a connection that knows how much was written.
type conn struct {
	net.Conn
	written atomic.Int64
}

// Write counts before it writes: what may have been written counts.
func (c *conn) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// writtenTo is how much was written to a connection that dial has made, TLS or not.
func writtenTo(c net.Conn) int64 {
	for {
		switch t := c.(type) {
		case *conn:
			return t.written.Load()
		case interface{ NetConn() net.Conn }:
			c = t.NetConn()
		default:
			return -1
		}
	}
}
