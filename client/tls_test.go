package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/internal/certtest"
)

// A call surely was not done if one side refuses the other's certificate, and with the right
// ones it is done.
func TestCertificates(t *testing.T) {
	authority := certtest.NewAuthority(t)
	var served atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { served.Add(1) }))
	own, trusted := authority.Issue(t, "server"), x509.NewCertPool()
	pair, err := tls.LoadX509KeyPair(own.Cert, own.Key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(authority.File)
	if err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatal("no authority", err)
	}
	server.TLS, server.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: trusted}, log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	stranger := certtest.NewAuthority(t).Issue(t, "x")
	stranger.CA = authority.File
	for name, test := range map[string]struct {
		files certs.Files
		tls12 bool
		done  bool
	}{
		"the server's authority is unknown": {certs.Files{}, false, false},
		"no certificate":                    {certs.Files{CA: authority.File}, false, false},
		"no certificate, TLS 1.2":           {certs.Files{CA: authority.File}, true, false},
		"another one's certificate":         {stranger, false, false},
		"the right one":                     {authority.Issue(t, "client"), false, true},
	} {
		secure, err := test.files.Client("--tls")
		if err != nil {
			t.Fatal(err)
		}
		if test.tls12 {
			secure.MaxVersion = tls.VersionTLS12
		}
		c, err := client.New(client.Config{Servers: []string{server.URL}, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}, RetryFor: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(context.Background(), client.Call{Method: http.MethodPost, Path: "/v1/messages", Body: []byte("{}")})
		if (err == nil) != test.done || client.MayBeDone(err) {
			t.Errorf("%s: %v; may be done: %t", name, err, client.MayBeDone(err))
		}
		c.Close()
	}
	if n := served.Load(); n != 1 {
		t.Errorf("the server served %d calls", n)
	}
}
