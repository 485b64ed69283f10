//go:build linux

package cluster

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Gate is a node's way to one kind of server: it listens in the node's namespace
// at the servers' own addresses. Its faults hold for connections that are there
// already too.
type Gate struct {
	mu        sync.Mutex
	closed    bool
	shut      chan struct{} // nil: open; else closed when the way is open again
	delay     time.Duration
	reset     bool
	conns     map[net.Conn]struct{}
	listeners []net.Listener
}

// openGate listens in a namespace at addresses and passes connections on to the
// same addresses outside.
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

// Cut holds everything back, in both directions, without a word to either side.
// What was held goes on at [Gate.Heal], as packets do that are sent again.
func (g *Gate) Cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

// Delay makes everything take so much longer, in each direction.
func (g *Gate) Delay(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.delay = d
}

// ResetAfterSend passes on what the node sends, and resets each connection when its
// next answer comes, of which the node sees nothing.
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

// keep remembers a connection, or says that it is too late for one.
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

// pass joins a node's connection with one to the server.
func (g *Gate) pass(inner net.Conn, server string) {
	defer g.drop(inner)
	if !g.keep(inner) {
		return
	}
	g.wait()
	outer, err := net.Dial("tcp", server)
	if err != nil {
		_ = inner.(*net.TCPConn).SetLinger(0) // refused there, reset here
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

// wait returns when the way is open.
func (g *Gate) wait() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
	}
}

// parcel is what was read at once, and when it may go on.
type parcel struct {
	bytes []byte
	at    time.Time
}

// carry brings what comes from one side to the other until either ends, and then
// ends both.
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
				return // also at an orderly end: neither protocol goes on in one direction
			}
		}
	}()
	for p := range parcels {
		if wait := time.Until(p.at); wait > 0 {
			time.Sleep(wait)
		}
		g.wait()
		if !asks && g.resets() { // the server has begun to answer: it was done
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
