package certs_test

import (
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/internal/certtest"
)

// Each fault of the files is said with the flag that names the file.
func TestFilesThatCannotBeUsed(t *testing.T) {
	authority := certtest.NewAuthority(t)
	good, other := authority.Issue(t, "a"), authority.Issue(t, "b")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, files := range map[string]certs.Files{
		"--kafka-key is missing":         {Cert: good.Cert},
		"--kafka-cert is missing":        {Key: good.Key},
		"open /nowhere/x":                {Cert: "/nowhere/x", Key: good.Key},
		"--kafka-cert " + good.Cert:      {Cert: good.Cert, Key: other.Key},
		"--kafka-key " + empty:           {Cert: good.Cert, Key: empty},
		"--kafka-ca cannot be read":      {CA: "/nowhere/x"},
		empty + " has no certificate in": {CA: empty},
	} {
		if _, err := files.Client("--kafka"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", files, err, want)
		}
	}
}

// ends are the two ends of a connection.
func ends(t *testing.T) (one, two net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if one, err = net.Dial("tcp", l.Addr().String()); err == nil {
		two, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return one, two
}

// shake shakes hands, and returns the client's error, and whose certificate the server saw.
func shake(t *testing.T, server, client *tls.Config) (seen string, err error) {
	t.Helper()
	one, two := ends(t)
	defer one.Close()
	done := make(chan string, 1)
	go func() {
		defer two.Close()
		conn, name := tls.Server(two, server), ""
		if conn.Handshake() == nil {
			conn.Write([]byte("."))
			for _, c := range conn.ConnectionState().PeerCertificates {
				name = c.Subject.CommonName
			}
		}
		done <- name
	}()
	conn := tls.Client(one, client)
	if err = conn.Handshake(); err == nil {
		_, err = conn.Read(make([]byte, 1)) // a refusal of the client's certificate comes here
	}
	one.Close()
	return <-done, err
}

func client(t *testing.T, f certs.Files) *tls.Config {
	t.Helper()
	c, err := f.Client("--kafka")
	if err != nil {
		t.Fatal(err)
	}
	c.ServerName = "127.0.0.1"
	return c
}

// server returns the settings of a server that asks for a certificate if ca is not "".
func server(t *testing.T, f certs.Files, ca string) *tls.Config {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if ca != "" {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, client(t, certs.Files{CA: ca}).RootCAs
	}
	return c
}

// A renewed certificate is shown on the next connection.
func TestRenewedCertificate(t *testing.T) {
	authority := certtest.NewAuthority(t)
	first, second := authority.Issue(t, "first"), authority.Issue(t, "second")
	c, s := client(t, first), server(t, authority.Issue(t, "server"), authority.File)
	if seen, err := shake(t, s, c); err != nil || seen != "first" {
		t.Errorf("the server saw %q: %v", seen, err)
	}
	for from, to := range map[string]string{second.Cert: first.Cert, second.Key: first.Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if seen, err := shake(t, s, c); err != nil || seen != "second" {
		t.Errorf("the server saw %q: %v", seen, err)
	}
}

// What is wrong with the other side is said with what to do.
func TestAdvice(t *testing.T) {
	authority, stranger := certtest.NewAuthority(t), certtest.NewAuthority(t)
	files := authority.Issue(t, "server")
	for name, test := range map[string]struct {
		change func(*tls.Config)
		ca     string
		want   string
	}{
		"unknown":    {func(c *tls.Config) { c.RootCAs = client(t, certs.Files{CA: stranger.File}).RootCAs }, "", "name the file with the authority's certificate in --kafka-ca"},
		"expired":    {func(c *tls.Config) { c.Time = func() time.Time { return time.Now().Add(48 * time.Hour) } }, "", "renew its certificate, or mend this machine's clock"},
		"other name": {func(c *tls.Config) { c.ServerName = "elsewhere" }, "", "address it by a name that its certificate has (localhost, 127.0.0.1)"},
		"no client":  {func(c *tls.Config) {}, authority.File, "it asks for a certificate: give --kafka-cert"},
		"TLS 1.2":    {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, authority.File, "give one in --kafka-cert"},
		"TLS 1.1":    {func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }, "", "refuses"},
		"good":       {func(c *tls.Config) {}, "", ""},
	} {
		c := client(t, certs.Files{CA: authority.File})
		test.change(c)
		_, err := shake(t, server(t, files, test.ca), c)
		switch {
		case (err == nil) != (test.want == ""):
			t.Errorf("%s: %v", name, err)
		case err != nil && !strings.Contains(certs.Advice(err, "--kafka-ca", "--kafka-cert"), test.want):
			t.Errorf("%s: %v: %q, want %q", name, err, certs.Advice(err, "--kafka-ca", "--kafka-cert"), test.want)
		}
	}
	one, two := ends(t)
	defer one.Close()
	defer two.Close()
	if _, err := two.Write([]byte("HTTP/1.1 400 Bad Request")); err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(one, client(t, certs.Files{CA: authority.File})).Handshake(); err == nil || !strings.Contains(certs.Advice(err, "", ""), "speaks no TLS") {
		t.Errorf("no TLS: %v", err)
	}
	if got := certs.FirstAdvice(os.ErrNotExist, "", ""); got != "" {
		t.Errorf("no error of TLS: %q", got)
	}
}
