package membership

import (
	"context"
	"log"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/postdate/postdate"
)

// transport is the library's own transport, with connections that tests can cut.
type transport struct {
	*memberlist.NetTransport
	cut     atomic.Pointer[func(address string) bool]
	packets chan *memberlist.Packet
	done    chan struct{}
}

// listen opens the port for TCP and UDP. If port is 0, the port picked for one may be
// taken for the other, so listen tries again.
func listen(ctx context.Context, bind string, logger *log.Logger) (*transport, error) {
	host, port, err := split("--gossip", bind)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = "0.0.0.0"
	}
	ip, err := pick(ctx, "--gossip", host)
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		inner, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{ip}, BindPort: port,
			Logger: logger})
		if err == nil {
			t := &transport{NetTransport: inner, packets: make(chan *memberlist.Packet), done: make(chan struct{})}
			go t.pump()
			return t, nil
		}
		if port != 0 || try == 10 || !strings.Contains(err.Error(), "address already in use") {
			return nil, postdate.E(postdate.KindUnavailable,
				"--gossip %s: %w (is another node running here? TCP and UDP are both needed)", bind, err)
		}
	}
}

// pump forwards arriving packets, except those from an address that is cut.
func (t *transport) pump() {
	for {
		select {
		case <-t.done:
			return
		case p := <-t.NetTransport.PacketCh():
			if t.isCut(p.From.String()) {
				continue
			}
			select {
			case t.packets <- p:
			case <-t.done:
				return
			}
		}
	}
}

func (t *transport) isCut(address string) bool {
	f := t.cut.Load()
	return f != nil && (*f)(address)
}

// PacketCh is part of memberlist.Transport.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// WriteTo is part of memberlist.Transport.
func (t *transport) WriteTo(b []byte, address string) (time.Time, error) {
	return t.WriteToAddress(b, memberlist.Address{Addr: address})
}

// WriteToAddress silently drops a packet to an address that is cut, as a network does.
func (t *transport) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if t.isCut(to.Addr) {
		return time.Now(), nil
	}
	return t.NetTransport.WriteToAddress(b, to)
}

// DialTimeout is part of memberlist.Transport.
func (t *transport) DialTimeout(address string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: address}, timeout)
}

// DialAddressTimeout fails if the address is cut.
func (t *transport) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if t.isCut(to.Addr) {
		return nil, postdate.E(postdate.KindUnavailable, "the connection to %s is cut", to.Addr)
	}
	return t.NetTransport.DialAddressTimeout(to, timeout)
}

// Shutdown closes the port.
func (t *transport) Shutdown() error {
	select {
	case <-t.done:
		return nil
	default:
	}
	close(t.done)
	// The listeners end only if someone receives what they still hold.
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-t.NetTransport.PacketCh():
			case c := <-t.NetTransport.StreamCh():
				c.Close()
			case <-ended:
				return
			}
		}
	}()
	return t.NetTransport.Shutdown()
}

// Cut is for tests. It drops packets to and from each address for which f is true, and
// makes new connections to it fail. Incoming connections are not cut, because their
// address is unknown: a full partition takes a Cut on both sides. A nil f heals.
func (m *Membership) Cut(f func(address string) bool) {
	if f == nil {
		m.transport.cut.Store(nil)
		return
	}
	m.transport.cut.Store(&f)
}

// loopback says whether only this machine can reach the port.
func (t *transport) loopback() bool {
	ip, _, err := t.FinalAdvertiseAddr("", 0)
	return err == nil && ip.IsLoopback()
}
