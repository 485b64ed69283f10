package publisher_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/postdate/postdate/publisher"
)

// Whoever schedules learns what is wrong, and nothing about the network of the node.
func TestWithoutPlaces(t *testing.T) {
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 9092} }
	reset := errors.New("connection reset by peer")
	unknown := &net.DNSError{Err: "no such host", Name: "kafka1.internal", Server: "10.0.0.2:53"}
	for want, err := range map[string]error{
		"dial: connection reset by peer":                           &net.OpError{Op: "dial", Net: "tcp", Addr: at("10.0.0.5"), Err: reset},
		"write: connection reset by peer":                          &net.OpError{Op: "write", Net: "tcp6", Addr: at("fd00::1"), Err: reset},
		"read: connection reset by peer":                           &net.OpError{Op: "read", Net: "tcp", Source: at("10.0.0.9"), Addr: at("10.0.0.5"), Err: reset},
		"dial: lookup: no such host":                               &net.OpError{Op: "dial", Net: "tcp", Err: unknown},
		"lookup: no such host":                                     &net.DNSError{Err: "no such host", Name: "kafka1.internal"},
		"TLS with: the certificate is for another name":            fmt.Errorf("TLS with kafka1:9093: %w", x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"kafka2.internal"}}, Host: "kafka1.internal"}),
		"404 NOT_FOUND - home a node of durable queue 'q' is down": errors.New("404 NOT_FOUND - home node 'rabbit@host1' of durable queue 'q' is down"),
		"404 NOT_FOUND: no exchange 'x'":                           errors.New("404 NOT_FOUND: no exchange 'x'"),
	} {
		if got := publisher.WithoutPlaces("it failed: " + err.Error()); got != "it failed: "+want {
			t.Errorf("%v became %q, want %q", err, got, want)
		}
	}
}
