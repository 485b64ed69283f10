package api

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// newTLSRig is newRig with TLS, and the configuration of a client.
func newTLSRig(t *testing.T, changes ...func(*Config)) (r *rig, address string, secure *tls.Config) {
	t.Helper()
	lender := httptest.NewTLSServer(http.NotFoundHandler()) // lends its certificate
	t.Cleanup(lender.Close)
	own := func(c *Config) {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: lender.TLS.Certificates}
	}
	r = newRig(t, append([]func(*Config){own}, changes...)...)
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

// Who is refused for want of a certificate, who refuses the node's, and who speaks no TLS at all
// leave a line each; who just goes away leaves none.
func TestRefusedHandshakesAreLogged(t *testing.T) {
	r, address, secure := newTLSRig(t, func(c *Config) { c.TLS.ClientAuth = tls.RequireAnyClientCert })
	gone, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	secure.ServerName = "127.0.0.1"
	for reason, client := range map[string]*tls.Config{
		"client didn't provide a certificate": secure,
		"remote error: tls: bad certificate":  {ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12},
		"unsupported versions":                {InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
	} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = tls.Client(c, client).Handshake()
		r.awaitLog("a TLS handshake was refused", reason, "remote="+c.LocalAddr().String())
	}
	plain := r.dial()
	plain.write("GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer hunter2\r\n\r\n")
	plain.read()
	r.awaitLog("first record does not look like a TLS handshake")
	if log := r.log.String(); strings.Count(log, "handshake was refused") != 4 || strings.Contains(log, "hunter2") {
		t.Errorf("the log is\n%s", log)
	}
}

// awaitLog waits until one line of the log has all these words.
func (r *rig) awaitLog(words ...string) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		for line := range strings.Lines(r.log.String()) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return
			}
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no line has %q:\n%s", words, r.log)
		}
	}
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
