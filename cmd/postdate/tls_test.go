package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/internal/certtest"
)

// A node speaks TLS with clients that have a certificate, and refuses all others. New files
// serve new connections, while old ones go on.
func TestServeTLS(t *testing.T) {
	t.Parallel()
	authority, clients := certtest.NewAuthority(t), certtest.NewAuthority(t)
	first := authority.Issue(t, "first")
	s := startServe(t, nil, "--tls-cert", first.Cert, "--tls-key", first.Key, "--tls-client-ca", clients.File)
	server := "https://" + s.ready.HTTP
	client := clients.Issue(t, "client")
	env := []string{"POSTDATE_SERVER=" + server, "POSTDATE_TLS_CA=" + authority.File,
		"POSTDATE_TLS_CERT=" + client.Cert, "POSTDATE_TLS_KEY=" + client.Key}
	send := []string{"send", "--in", "1h", "--channel", "inbox:x", "--data", "x", "--id", "one"}
	if r := call(env, "", send...); r.code != 0 {
		t.Fatalf("%d: %s", r.code, r.stderr)
	}
	if r := call(env, "", "get", "one"); r.code != 0 || !strings.Contains(r.stdout, "PENDING") {
		t.Errorf("%d: %s%s", r.code, r.stdout, r.stderr)
	}
	stranger := authority.Issue(t, "stranger")
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no certificate":    {[]string{"--server", server, "--tls-ca", authority.File}, "it asks for a certificate: give --tls-cert and --tls-key"},
		"another authority": {[]string{"--server", server, "--tls-ca", clients.File}, "name the file with the authority's certificate in --tls-ca"},
		"a stranger": {[]string{"--server", server, "--tls-ca", authority.File,
			"--tls-cert", stranger.Cert, "--tls-key", stranger.Key}, "does not know the authority of the certificate that this side shows"},
		"no own certificate, and nothing done": {[]string{"--server", server, "--tls-ca", authority.File}, "nothing was done"},
		"plain HTTP":                           {[]string{"--server", "http://" + s.ready.HTTP}, "write https://"},
	} {
		r := call(nil, "", append([]string{"get", "one"}, test.args...)...)
		if r.code == 0 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: %d, want %q:\n%s", name, r.code, test.want, r.stderr)
		}
	}

	secure, err := certs.Files{CA: authority.File, Cert: client.Cert, Key: client.Key}.Client("--tls")
	if err != nil {
		t.Fatal(err)
	}
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	if got := certificateOf(t, old, server); got != "first" {
		t.Errorf("the certificate is %q", got)
	}
	second := authority.Issue(t, "second")
	move(t, second.Key, first.Key)
	move(t, second.Cert, first.Cert)
	for deadline := time.Now().Add(time.Minute); ; {
		fresh := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
		if certificateOf(t, fresh, server) == "second" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not used")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if got := certificateOf(t, old, server); got != "first" {
		t.Errorf("the old connection did not go on: it has the certificate %q", got)
	}
	if err := s.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &s.stderr)
	}
}

// certificateOf returns the name in the certificate of the connection on which a request was
// answered.
func certificateOf(t *testing.T, c *http.Client, server string) string {
	t.Helper()
	answer, err := c.Get(server + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.TLS.PeerCertificates[0].Subject.CommonName
}

func move(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// Clients' certificates let a node serve other machines.
func TestClientCertificatesAreEnoughForOthers(t *testing.T) {
	authority := certtest.NewAuthority(t)
	node := authority.Issue(t, "node")
	c, err := settle(t, []string{"--http", "0.0.0.0:0", "--tls-cert", node.Cert, "--tls-key", node.Key, "--tls-client-ca", authority.File}, nil)
	if err != nil || c.Validate() != nil {
		t.Errorf("%v, %v", err, c.Validate())
	}
	c.TLS.ClientCA = ""
	if c.Validate() == nil {
		t.Error("TLS alone asks nobody who they are")
	}
}

// Every form of a loopback address is this machine alone.
func TestLoopback(t *testing.T) {
	for address, own := range map[string]bool{
		"LOCALHOST:0": true, "localhost:0": true, "127.8.9.1:0": true, "[::1]:0": true, "[::ffff:127.0.0.1]:0": true,
		"[::]:0": false, "0.0.0.0:0": false, ":0": false, "10.0.0.1:0": false, "localhost.example:0": false,
	} {
		if c, err := settle(t, []string{"--http", address}, nil); err != nil || (c.Validate() == nil) != own {
			t.Errorf("%s: %v, %v", address, err, c.Validate())
		}
	}
}
