package node

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/postdate/postdate"
)

// TLS names the files, in PEM, with which the API speaks TLS. They are read again when
// they change.
type TLS struct {
	Cert, Key string // the node's certificate, and others up to its authority's; its key; "": no TLS
	ClientCA  string // authorities: a client needs a certificate of one; "": none is asked for
}

// validate says what is wrong with t.
func (t TLS) validate() error {
	switch {
	case t.Cert != "" && t.Key == "":
		return invalid("--tls-key is missing: with --tls-cert, name the file with its key")
	case t.Key != "" && t.Cert == "":
		return invalid("--tls-cert is missing: with --tls-key, name the file with its certificate")
	case t.ClientCA != "" && t.Cert == "":
		return invalid("--tls-cert and --tls-key are missing: only a node that speaks TLS can ask for " +
			"the certificates of --tls-client-ca")
	}
	return nil
}

// certificatesEvery is how often the files are read again, at most.
const certificatesEvery = time.Second

// certificates are what the API's TLS goes by.
type certificates struct {
	files TLS
	log   *slog.Logger

	mu      sync.Mutex
	checked time.Time
	content string      // of all files when they were last read, or why they could not be
	config  *tls.Config // of the last files that were right
}

// server returns the configuration of a TLS server that follows the files; nil: the API
// speaks plain HTTP.
func (t TLS) server(log *slog.Logger) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	c := &certificates{files: t, log: log, checked: time.Now()}
	if err := c.read(); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.current(), nil }}, nil
}

// current returns the configuration for a new connection. If new files are wrong, the last
// ones that were right stay in force.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificatesEvery {
		c.checked = now
		if err := c.read(); err != nil {
			c.log.Error("the new TLS files are not used: new connections get the former certificate", "error", err)
		}
	}
	return c.config
}

// read takes over the files if they have changed. It returns an error only once for the
// same content.
func (c *certificates) read() error {
	var contents [3]string
	var failed error
	for i, file := range []string{c.files.Cert, c.files.Key, c.files.ClientCA} {
		if file == "" {
			continue
		}
		content, err := os.ReadFile(file)
		contents[i], failed = string(content), errors.Join(failed, err)
	}
	all := strings.Join(contents[:], "\x00") + fmt.Sprint(failed)
	if all == c.content {
		return nil
	}
	c.content = all
	if failed != nil {
		return postdate.E(postdate.KindInvalid, "cannot read what --tls-cert, --tls-key and --tls-client-ca name: %w",
			failed)
	}
	pair, err := tls.X509KeyPair([]byte(contents[0]), []byte(contents[1]))
	if err != nil {
		return postdate.E(postdate.KindInvalid, "--tls-cert %s and --tls-key %s are no certificate and its key, "+
			"in PEM: %w", c.files.Cert, c.files.Key, err)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if c.files.ClientCA != "" {
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM([]byte(contents[2])) {
			return invalid("--tls-client-ca %s has no certificate in PEM", c.files.ClientCA)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.SessionTicketsDisabled = true // a resumed session would not show its certificate to a new authority
	}
	c.warn(pair.Leaf, time.Now())
	if c.config != nil {
		c.log.Info("new TLS files are used from now on", "expires", shownExpiry(pair.Leaf))
	}
	c.config = config
	return nil
}

func shownExpiry(cert *x509.Certificate) string { return cert.NotAfter.UTC().Format(time.RFC3339) }

// warn says in the log why clients will refuse a certificate.
func (c *certificates) warn(cert *x509.Certificate, now time.Time) {
	if now.After(cert.NotAfter) {
		c.log.Warn("the certificate in --tls-cert has expired, and clients refuse it: renew it",
			"expired", shownExpiry(cert))
	}
	if now.Before(cert.NotBefore) {
		c.log.Warn("the certificate in --tls-cert is not valid yet, and clients refuse it until then: "+
			"look whether this machine's clock is right", "valid", cert.NotBefore.UTC().Format(time.RFC3339))
	}
	if len(cert.DNSNames) == 0 && len(cert.IPAddresses) == 0 {
		c.log.Warn("the certificate in --tls-cert has no name in its subjectAltName, and clients refuse it: " +
			"have it issued with the names and addresses under which they reach this node")
	}
}
