package node

import (
	"bytes"
	"crypto/x509"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certtest"
)

// New files that are wrong change nothing, and are logged once; new ones that are right are
// taken over, the clients' authority too.
func TestCertificatesFollowTheFiles(t *testing.T) {
	authority := certtest.NewAuthority(t)
	node := authority.Issue(t, "node")
	cert, key := node.Cert, node.Key
	var log bytes.Buffer
	c := &certificates{files: TLS{Cert: cert, Key: key, ClientCA: authority.File}, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := c.read(); err != nil {
		t.Fatal(err)
	}
	look := func() { c.checked = time.Time{}; c.current() }
	first := c.config
	right, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	other := authority.Issue(t, "other")
	for _, wrong := range []string{authority.Issue(t, "stranger").Key, authority.File, "/nowhere/x"} {
		log.Reset()
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(wrong, key); err != nil {
			t.Fatal(err)
		}
		look()
		look()
		if c.config != first || strings.Count(log.String(), "level=ERROR") != 1 || !strings.Contains(log.String(), "--tls-key") {
			t.Errorf("%s: changed %v, log:\n%s", wrong, c.config != first, &log)
		}
	}
	log.Reset()
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, right, 0o600); err != nil {
		t.Fatal(err)
	}
	look()
	if err := os.Rename(certtest.NewAuthority(t).File, authority.File); err != nil {
		t.Fatal(err)
	}
	before := c.config
	look()
	if c.config == before || c.config.ClientCAs.Equal(first.ClientCAs) {
		t.Error("the new authority is not used")
	}
	if err := os.Rename(other.Cert, cert); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other.Key, key); err != nil {
		t.Fatal(err)
	}
	look()
	leaf := c.config.Certificates[0].Leaf
	if news := "new TLS files are used"; leaf.Subject.CommonName != "other" || strings.Count(log.String(), "level=INFO") != 3 ||
		strings.Count(log.String(), news) != 3 || !strings.Contains(log.String(), "expires="+leaf.NotAfter.UTC().Format(time.RFC3339)) {
		t.Errorf("the certificate is of %s until %v; log:\n%s", leaf.Subject.CommonName, leaf.NotAfter, &log)
	}
	if _, err := (TLS{Cert: cert, Key: key, ClientCA: key}).server(c.log); postdate.KindOf(err) != postdate.KindInvalid ||
		!strings.Contains(err.Error(), "--tls-client-ca") {
		t.Errorf("a key as authority: %v", err)
	}
}

// A certificate that clients will refuse is loaded, for its turn may come, but the log warns.
func TestCertificatesThatClientsRefuse(t *testing.T) {
	authority := certtest.NewAuthority(t)
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		want   string // "": nothing is wrong
	}{
		"good":    {func(*x509.Certificate) {}, ""},
		"expired": {func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "the certificate in --tls-cert has expired, and clients refuse it: renew it"},
		"future":  {func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "the certificate in --tls-cert is not valid yet, and clients refuse it until then"},
		"no name": {func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = nil, nil }, "the certificate in --tls-cert has no name in its subjectAltName, and clients refuse it"},
	} {
		var log bytes.Buffer
		files := authority.IssueWith(t, "node", test.change)
		if _, err := (TLS{Cert: files.Cert, Key: files.Key}).server(slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Error(err)
		}
		if (log.Len() == 0) != (test.want == "") || !strings.Contains(log.String(), test.want) || test.want != "" && !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%s: the log is\n%s", name, &log)
		}
	}
}
