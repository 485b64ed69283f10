package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"
)

const idleTime = 60 * time.Second // how long an unused connection is kept

// forbidden is the error of a connection to an address that webhooks may not reach. It does
// not tell the address: whoever schedules would learn what the names of this network stand for.
type forbidden struct{ host string }

func (f *forbidden) Error() string {
	return fmt.Sprintf("the host %s has an address that is not public: %s", f.host, remedy)
}

// dial connects. It checks each address after the name is resolved and before the first packet
// is sent, so changing a name's address does not get around the check.
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
				return &forbidden{host}
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

// conn is a connection that counts the bytes written to it.
type conn struct {
	net.Conn
	written atomic.Int64
}

// Write counts before it writes, so that bytes that may have been written are counted too.
func (c *conn) Write(b []byte) (int, error) {
	c.written.Add(int64(len(b)))
	return c.Conn.Write(b)
}

// writtenTo returns the bytes written to a connection, TLS or not; -1 if dial did not make it.
func writtenTo(c net.Conn) int64 {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if ours, ok := c.(*conn); ok {
		return ours.written.Load()
	}
	return -1
}
