package api

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Handshake tells a client that speaks plain HTTP what is wrong. After a failure it drops for
// a moment what the client sends: if the connection ended with that unread, the client might
// never read why.
func (s *secured) Handshake() error {
	err := s.Conn.Handshake()
	var late net.Error
	if err == nil || errors.As(err, &late) && late.Timeout() {
		return err
	}
	s.plain.of.audit.noHandshake(s.RemoteAddr(), err, time.Now())
	var other tls.RecordHeaderError
	if errors.As(err, &other) && other.Conn != nil {
		p := Problem{Type: BadRequest, Detail: "this port speaks TLS: write https:// in the address"}
		body := p.appendJSON(nil)
		fmt.Fprintf(other.Conn, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\n"+
			"Connection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	if s.plain.SetReadDeadline(time.Now().Add(drainTime)) == nil {
		_, _ = io.Copy(io.Discard, s.plain)
	}
	return err
}
