// Package amqpdial connects to a RabbitMQ, for publisher and ingest, so that its refusal is heard.
package amqpdial

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"sync/atomic"

	"github.com/rabbitmq/amqp091-go"
)

// Dial is amqp091.DialConfig with a Dial of the caller's in c, but if a broker over TLS refuses
// this side, the error says so. In TLS 1.3 a client has shaken hands before the broker looks at its
// certificate. The refusal comes with the first read, while amqp091 writes for the first time. When
// amqp091 reads it, it closes the connection, and that write fails with no more to say than that the
// connection is closed: this is what DialConfig then returns. So TLS is spoken here, where the first
// error of a read can be kept.
func Dial(address string, c amqp091.Config) (*amqp091.Connection, error) {
	uri, err := amqp091.ParseURI(address)
	if err != nil || uri.Scheme != "amqps" {
		return amqp091.DialConfig(address, c)
	}
	plain, err := url.Parse(address)
	if err != nil {
		return nil, err // not reached: ParseURI has parsed it
	}
	plain.Scheme, plain.Host = "amqp", net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	if c.Vhost == "" {
		c.Vhost = uri.Vhost // a URL without a host has it in another place of its path
	}
	dial, secure := c.Dial, c.TLSClientConfig
	var conn *heard
	c.TLSClientConfig = nil
	c.Dial = func(network, address string) (net.Conn, error) {
		settings, err := settingsOf(uri, secure)
		if err != nil {
			return nil, err
		}
		socket, err := dial(network, address)
		if err != nil {
			return nil, err
		}
		conn = &heard{Conn: tls.Client(socket, settings)}
		if err := conn.Handshake(); err != nil {
			socket.Close()
			return nil, err
		}
		return conn, nil
	}
	opened, err := amqp091.DialConfig(plain.String(), c)
	if err != nil && conn != nil {
		err = conn.reasonOf(err)
	}
	return opened, err
}

// settingsOf returns the settings of TLS that are given, or those that a URL's query asks for.
func settingsOf(uri amqp091.URI, given *tls.Config) (*tls.Config, error) {
	c := given.Clone()
	if c == nil {
		c = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: uri.ServerName}
		if uri.CACertFile != "" {
			text, err := os.ReadFile(uri.CACertFile)
			if err != nil {
				return nil, fmt.Errorf("the cacertfile of the URL cannot be read: %w", err)
			}
			c.RootCAs = x509.NewCertPool()
			c.RootCAs.AppendCertsFromPEM(text)
		}
		if uri.CertFile != "" && uri.KeyFile != "" {
			pair, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("certfile and keyfile of the URL cannot be used: %w", err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
	}
	if c.ServerName == "" {
		c.ServerName = uri.Host
	}
	return c, nil
}

// heard is a connection over TLS that keeps the first error of a read.
type heard struct {
	*tls.Conn
	failed atomic.Pointer[error]
}

// Read implements net.Conn. The error is kept before the reader can act on it.
func (h *heard) Read(b []byte) (int, error) {
	n, err := h.Conn.Read(b)
	if err != nil {
		h.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// reasonOf returns why opening the connection failed: err, unless it only follows from the error
// of a read. It does if the other side sent an alert, which ends the connection, and if err says no
// more than that the connection is closed.
func (h *heard) reasonOf(err error) error {
	read := h.failed.Load()
	if read == nil {
		return err
	}
	var alert *net.OpError
	if errors.As(*read, &alert) && alert.Op == "remote error" {
		return *read
	}
	if errors.Is(err, net.ErrClosed) || errors.Is(err, amqp091.ErrClosed) {
		return *read
	}
	return err
}
