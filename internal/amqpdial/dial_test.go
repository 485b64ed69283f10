package amqpdial_test

import (
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/internal/amqpdial"
	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/internal/certtest"
)

// lateWriter is a connection whose writes count, and wait for its end after some of them.
type lateWriter struct {
	net.Conn
	writes, free atomic.Int64
	once         sync.Once
	closed       chan struct{}
}

func (c *lateWriter) Write(b []byte) (int, error) {
	if n := c.writes.Add(1); c.free.Load() > 0 && n > c.free.Load() {
		<-c.closed
	}
	return c.Conn.Write(b)
}

func (c *lateWriter) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// refusing is the address of a server that refuses whoever shows no certificate.
func refusing(t *testing.T, files certs.Files) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			server := tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
			_ = server.Handshake()
			_, _ = conn.Read(make([]byte, 1)) // the client hangs up
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

// A broker refuses this side while the first write is under way, or after it: the error says so.
func TestARefusalIsSaid(t *testing.T) {
	authority := certtest.NewAuthority(t)
	address := refusing(t, authority.Issue(t, "broker"))
	secure, err := certs.Files{CA: authority.File}.Client("--rabbitmq")
	if err != nil {
		t.Fatal(err)
	}
	dial := func() *lateWriter {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return &lateWriter{Conn: conn, closed: make(chan struct{})}
	}
	counting := dial()
	named := secure.Clone()
	named.ServerName = "127.0.0.1"
	if err := tls.Client(counting, named).Handshake(); err != nil {
		t.Fatalf("the server refuses within the handshake: %v", err)
	}
	counting.Close()
	for name, free := range map[string]int64{"during the first write": counting.writes.Load(), "after it": 0} {
		t.Run(name, func(t *testing.T) {
			_, err := amqpdial.Dial("amqps://"+address+"/", amqp091.Config{TLSClientConfig: secure, Dial: func(string, string) (net.Conn, error) {
				conn := dial()
				conn.free.Store(free)
				return conn, nil
			}})
			if err == nil || !strings.Contains(err.Error(), "certificate required") {
				t.Errorf("it says %v", err)
			}
		})
	}
}
