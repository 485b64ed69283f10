package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// newTLSRig is newRig with TLS, and the configuration of a client.
func newTLSRig(t *testing.T, changes ...func(*Config)) (r *rig, address string, secure *tls.Config) {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler()) // lends its certificate
	t.Cleanup(lender.Close)
	r = newRig(t, append(changes, func(c *Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: lender.TLS.Certificates}
	})...)
	secure = lender.Client().Transport.(*http.Transport).TLSClientConfig
	return r, strings.TrimPrefix(r.url, "http://"), secure
}

// A connection on which there was a handshake, or half of one, and no request, does not
// delay a shutdown; a request does.
func TestShutdownWithTLS(t *testing.T) {
	r, address, secure := newTLSRig(t)
	silent, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := silent.Write([]byte{22, 3, 1}); err != nil { // the first bytes of a handshake
		t.Fatal(err)
	}
	spare, err := tls.Dial("tcp", address, secure)
	if err != nil {
		t.Fatal(err)
	}
	defer spare.Close()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	res, err := client.Get("https://" + address + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Errorf("the answer is %s", res.Status)
	}
	client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Errorf("the stop waited for a connection on which nothing was asked: %v", err)
	}
}

// A client that never completes its handshake is cut by the read time-out.
func TestHalfAHandshake(t *testing.T) {
	_, address, _ := newTLSRig(t, func(c *Config) { c.ReadTimeout = 200 * time.Millisecond })
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{22, 3, 1}); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.Copy(io.Discard, c); isTimeout(err) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

// A client that speaks plain HTTP to a port of TLS reads what is wrong.
func TestPlainHTTPToTLS(t *testing.T) {
	r, _, _ := newTLSRig(t)
	conn := r.dial()
	conn.write("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")
	conn.read().problem(400, BadRequest, "write https://")
	if !conn.ended() {
		t.Error("the connection goes on")
	}
}
