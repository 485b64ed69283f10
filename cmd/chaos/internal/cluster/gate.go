//go:build linux

package cluster

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Gate is a node's way to one kind of server: it listens in the node's namespace at the
// servers' own addresses. Its faults also affect existing connections.
type Gate struct {
	mu        sync.Mutex
	closed    bool
	shut      chan struct{} // nil: open; otherwise closed when the way opens again
	delay     time.Duration
	reset     bool
	conns     map[net.Conn]struct{}
	listeners []net.Listener
}

// openGate listens in a namespace at addresses and forwards connections to the same addresses
// outside.
func openGate(n *namespace, addresses []string) (*Gate, error) {
	g := &Gate{conns: map[net.Conn]struct{}{}}
	for _, a := range addresses {
		var l net.Listener
		err := n.within(func() (err error) {
			l, err = net.Listen("tcp", a)
			return err
		})
		if err != nil {
			g.close()
			return nil, err
		}
		g.listeners = append(g.listeners, l)
		go g.accept(l, a)
	}
	return g, nil
}

// Cut holds everything back, in both directions, without telling either side. [Gate.Heal] lets
// it pass, like packets that are sent again.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// Delay delays everything by d, in each direction.
func (g *Gate) Delay(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

// ResetAfterSend passes on what the node sends, and resets each connection at its next answer,
// before the node sees any of it.
func (g *Gate) ResetAfterSend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reset = true
}

// Heal ends all faults.
func (g *Gate) Heal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay, g.reset = 0, false
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *Gate) close() {
	g.Heal()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, l := range g.listeners {
		l.Close()
	}
	for c := range g.conns {
		c.Close()
	}
}

// keep registers a connection, and reports whether the gate is still open for one.
func (g *Gate) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = struct{}{}
	return !g.closed
}

func (g *Gate) drop(c net.Conn) {
	c.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, c)
}

func (g *Gate) accept(l net.Listener, server string) {
	for {
		inner, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		go g.pass(inner, server)
	}
}

// pass connects a node's connection to the server.
func (g *Gate) pass(inner net.Conn, server string) {
	defer g.drop(inner)
	if !g.keep(inner) {
		return
	}
	g.wait()
	outer, err := net.Dial("tcp", server)
	if err != nil {
		_ = inner.(*net.TCPConn).SetLinger(0) // the server refused it, so reset it
		return
	}
	defer g.drop(outer)
	if !g.keep(outer) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { g.carry(outer, inner, true) })
	both.Go(func() { g.carry(inner, outer, false) })
	both.Wait()
}

// wait waits until the way is open.
func (g *Gate) wait() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

// parcel is the result of one read, and when it may be passed on.
type parcel struct {
	bytes []byte
	at    time.Time
}

// carry copies from one side to the other until either ends, and then closes both.
func (g *Gate) carry(to, from net.Conn, asks bool) {
	defer to.Close()
	defer from.Close()
	parcels, gone := make(chan parcel, 64), make(chan struct{})
	defer close(gone)
	go func() {
		defer close(parcels)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				g.mu.Lock()
				at := time.Now().Add(g.delay)
				g.mu.Unlock()
				select {
				case parcels <- parcel{b[:n], at}:
				case <-gone:
					return
				}
			}
			if err != nil {
				return // even at an orderly end: neither protocol uses half-closed connections
			}
		}
	}()
	for p := range parcels {
		if wait := time.Until(p.at); wait > 0 {
			time.Sleep(wait)
		}
		g.wait()
		if !asks && g.resets() { // the server has begun to answer, so the request was carried out
			_ = to.(*net.TCPConn).SetLinger(0)
			return
		}
		if _, err := to.Write(p.bytes); err != nil {
			return
		}
	}
}

func (g *Gate) resets() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reset
}
