package mongotest

import (
	"net"
	"sync"
	"testing"
)

// Relay stands between clients and a server, for tests that watch or disturb what passes. It
// listens on the loopback interface until the test ends.
type Relay struct {
	listener net.Listener
	server   string
	carry    func(client, server net.Conn)

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// NewRelay has carry serve each connection of a client, with one to the server beside it. Both
// are closed when it returns.
func NewRelay(t testing.TB, server string, carry func(client, server net.Conn)) *Relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{listener: listener, server: server, carry: carry, conns: map[net.Conn]struct{}{}}
	t.Cleanup(r.Close)
	go r.accept()
	return r
}

// Address is host:port, for clients.
func (r *Relay) Address() string { return r.listener.Addr().String() }

// Close ends all connections, and takes no more.
func (r *Relay) Close() {
	r.listener.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
}

func (r *Relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer r.drop(client)
			server, err := net.Dial("tcp", r.server)
			if err != nil {
				return
			}
			defer r.drop(server)
			if r.keep(client) && r.keep(server) {
				r.carry(client, server)
			}
		}()
	}
}

// keep remembers a connection, or says that it is too late for one.
func (r *Relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[c] = struct{}{}
	return !r.closed
}

func (r *Relay) drop(c net.Conn) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}
