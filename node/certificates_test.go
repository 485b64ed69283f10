package node

import (
	"bytes"
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
	if leaf := c.config.Certificates[0].Leaf; leaf.Subject.CommonName != "other" || log.Len() != 0 {
		t.Errorf("the certificate is of %s; log:\n%s", leaf.Subject.CommonName, &log)
	}
	if _, err := (TLS{Cert: cert, Key: key, ClientCA: key}).server(c.log); postdate.KindOf(err) != postdate.KindInvalid ||
		!strings.Contains(err.Error(), "--tls-client-ca") {
		t.Errorf("a key as authority: %v", err)
	}
}
