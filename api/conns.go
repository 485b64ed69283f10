package api

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"
)

// conns are the open connections. Where there are too many, or no descriptors are left,
// those go first that have waited longest for a request, for the rest of one, or for the
// client to take an answer: clients that hold connections keep no others out. A connection
// whose request is being answered stays.
type conns struct {
	max   int
	tls   *tls.Config // nil: connections speak plain HTTP
	audit *audit
	start time.Time
	short rate.Sometimes // says that the system has no more of them

	mu  sync.Mutex
	all map[*conn]struct{}
}

// conn is one connection.
type conn struct {
	net.Conn
	of                *conns
	asked             atomic.Bool  // data has arrived
	keptBack, lingers atomic.Bool  // see expect.go
	since             atomic.Int64 // when it began to wait, in ns after the start; or one of these:
}

const (
	answering = -1 // a request is whole, and not answered
	closing   = -2
)

// secured is TLS on a connection. What it reads has been decrypted: a handshake asks
// nothing.
type secured struct {
	*tls.Conn
	plain *conn
}

// listener accepts connections into conns.
type listener struct {
	net.Listener
	conns *conns
}

// The pause after a failure to accept for want of descriptors or memory.
const (
	acceptPauseMin = 5 * time.Millisecond
	acceptPauseMax = 100 * time.Millisecond
)

// Accept is part of net.Listener. A shortage of descriptors or memory ends no server: it
// closes what waits longest, and tries again.
func (l *listener) Accept() (net.Conn, error) {
	pause := acceptPauseMin
	for {
		inner, err := l.Listener.Accept()
		switch {
		case err == nil:
			c := l.conns.add(inner)
			if c != nil && l.conns.tls != nil {
				return &secured{tls.Server(c, l.conns.tls), c}, nil
			}
			if c != nil {
				return c, nil
			}
		case !isShortage(err):
			return nil, err
		default:
			l.conns.short.Do(func() {
				l.conns.audit.log.Warn("api: no connection can be accepted: those that wait longest are closed; "+
					"allow the process more open files (ulimit -n)", "error", err)
			})
			l.conns.makeRoom()
			time.Sleep(pause)
			pause = min(2*pause, acceptPauseMax)
		}
	}
}

func isShortage(err error) bool {
	for _, of := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}

func newConns(most int, secure *tls.Config, audit *audit) *conns {
	return &conns{max: most, tls: secure, audit: audit, start: time.Now(), all: map[*conn]struct{}{},
		short: rate.Sometimes{Interval: time.Minute}}
}

// add takes a connection. It returns nil, and has ended the connection, if there are too
// many whose requests are being answered. Of TLS it then has no answer: the handshake
// would cost more than there is.
func (cs *conns) add(inner net.Conn) *conn {
	if !cs.hasRoom() {
		cs.makeRoom()
		if !cs.hasRoom() {
			if cs.tls == nil {
				_ = inner.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = inner.Write([]byte("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n" +
					requestIDHeader + ": " + string(appendRequestID(nil)) + "\r\n" +
					"Connection: close\r\nContent-Length: 0\r\n\r\n"))
			}
			_ = inner.Close()
			return nil
		}
	}
	c := &conn{Conn: inner, of: cs}
	c.wait()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.all[c] = struct{}{}
	return c
}

func (cs *conns) hasRoom() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.all) < cs.max
}

// evictedShare is the share of all connections that makeRoom closes: it looks at all of
// them, so it closes more than one.
const evictedShare = 64

// makeRoom closes the connections that have waited longest.
func (cs *conns) makeRoom() {
	type waiting struct {
		c     *conn
		since int64
	}
	var all []waiting
	cs.mu.Lock()
	for c := range cs.all {
		if since := c.since.Load(); since >= 0 {
			all = append(all, waiting{c, since})
		}
	}
	cs.mu.Unlock()
	slices.SortFunc(all, func(a, b waiting) int { return cmp.Compare(a.since, b.since) })
	for _, w := range all[:min(len(all), max(1, cs.max/evictedShare))] {
		if w.c.since.CompareAndSwap(w.since, closing) {
			_ = w.c.end()
		}
	}
}

// closeFresh closes the connections on which nothing has arrived. A client may hold such
// a spare one: Go's own does, when another becomes free while it still dials. A shutdown
// must not wait for it, and fasthttp cannot tell it from a busy one. It repeats until
// ended is closed, because some are accepted while the shutdown begins.
func (cs *conns) closeFresh(ended <-chan struct{}) {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var fresh []*conn
		cs.mu.Lock()
		for c := range cs.all {
			if !c.asked.Load() {
				fresh = append(fresh, c)
			}
		}
		cs.mu.Unlock()
		for _, c := range fresh {
			_ = c.Close()
		}
		select {
		case <-again.C:
		case <-ended:
			return
		}
	}
}

// Read is part of net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.of.tls == nil {
		c.heard(n, err)
	}
	return n, err
}

// Read is part of net.Conn.
func (s *secured) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.plain.heard(n, err)
	return n, err
}

// heard notes that data of a request has arrived, or that none will.
func (c *conn) heard(n int, err error) {
	if !c.asked.Load() && (n > 0 || err != nil) {
		c.asked.Store(true)
	}
}

// Write is part of net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	if c.of.tls == nil && bytes.HasSuffix(b, goOn) {
		return c.write(c.Conn, b)
	}
	return c.Conn.Write(b)
}

// Write is part of net.Conn.
func (s *secured) Write(b []byte) (int, error) { return s.plain.write(s.Conn, b) }

// Close is part of net.Conn.
func (c *conn) Close() error {
	if c.lingers.Load() {
		c.linger()
	}
	return c.end()
}

// end closes c at once.
func (c *conn) end() error {
	c.of.mu.Lock()
	delete(c.of.all, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// wait says that c waits from now on, unless it is being closed.
func (c *conn) wait() {
	if since := c.since.Load(); since != closing {
		c.since.CompareAndSwap(since, int64(time.Since(c.of.start)))
	}
}

// answer says that c's request is whole. It reports whether the request may be answered:
// if not, c is being closed, and nothing may be done.
func (c *conn) answer() bool {
	since := c.since.Load()
	return since == answering || since >= 0 && c.since.CompareAndSwap(since, answering)
}

// connOf returns the connection that Accept made, with TLS or not; nil: none.
func connOf(c net.Conn) *conn {
	switch c := c.(type) {
	case *conn:
		return c
	case *secured:
		return c.plain
	}
	return nil
}
