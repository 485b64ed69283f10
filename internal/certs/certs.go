// Package certs makes a client's settings of TLS from files in PEM, and says in words that name
// the flags what is wrong with the files or with the other side's certificate.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Files names files in PEM. The zero value names none.
type Files struct {
	Cert string // this side's certificate, followed by those between it and its authority
	Key  string // its key
	CA   string // the authorities that are trusted to sign the server's certificate; "": the system's
}

// CheckPair returns an error if only one of certificate and key is named; flag begins the
// names of their flags, like --kafka.
func (f Files) CheckPair(flag string) error {
	switch {
	case f.Cert != "" && f.Key == "":
		return fmt.Errorf("%s-key is missing: name the file with the key of the certificate in %s-cert", flag, flag)
	case f.Key != "" && f.Cert == "":
		return fmt.Errorf("%s-cert is missing: name the file with the certificate of the key in %s-key", flag, flag)
	}
	return nil
}

// Client returns the settings of a client; flag begins the names of its flags, like --kafka for
// --kafka-cert, --kafka-key and --kafka-ca. The certificate and its key are read again for each
// connection, so that they can be renewed.
func (f Files) Client(flag string) (*tls.Config, error) {
	if err := f.CheckPair(flag); err != nil {
		return nil, err
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("%s-ca cannot be read: %w", flag, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s-ca %s has no certificate in PEM: name the file with that of the authority",
				flag, f.CA)
		}
	}
	if f.Cert == "" {
		return c, nil
	}
	if _, err := f.pair(flag); err != nil {
		return nil, err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return f.pair(flag) }
	return c, nil
}

func (f Files) pair(flag string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("%s-cert %s and %s-key %s are no certificate in PEM with its key: %w",
			flag, f.Cert, flag, f.Key, err)
	}
	return &pair, nil
}

// Advice says what to do about an error of TLS: "" if err is none, else words that continue
// its text. ca and pair are how the user names the authority's file, and certificate and key.
func Advice(err error, ca, pair string) string {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	text := err.Error()
	switch {
	case errors.As(err, &unknown):
		return "; the authority that signed its certificate is not known here: name the file with the authority's " +
			"certificate in " + ca
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "; renew its certificate, or mend this machine's clock"
	case errors.As(err, &name):
		return "; address it by a name that its certificate has" + namesOf(name.Certificate) +
			", or give it a certificate with this name"
	case strings.Contains(text, "first record does not look like a TLS handshake"):
		return "; what listens there speaks no TLS: name the port that does"
	case IsRefusal(err):
		return refusalAdvice(text, pair)
	}
	return ""
}

// namesOf lists some of the names in a certificate, like (localhost, 127.0.0.1).
func namesOf(cert *x509.Certificate) string {
	names := slices.Clone(cert.DNSNames)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return " (this one has none in its subjectAltName)"
	}
	return " (" + strings.Join(names[:min(len(names), 4)], ", ") + ")"
}

// refusalAdvice says what to do if the other side refused the handshake, by its reason in text.
func refusalAdvice(text, pair string) string {
	switch {
	case strings.Contains(text, "certificate required"):
		return "; it asks for a certificate: give " + pair
	case strings.Contains(text, "unknown certificate authority"):
		return "; it does not know the authority of the certificate that this side shows: " +
			"give one that it trusts in " + pair
	case strings.Contains(text, "expired certificate"):
		return "; the certificate that this side shows has expired: renew the one in " + pair
	}
	return "; it refuses this side, which may have to show a certificate that it trusts: give one in " + pair
}

// FirstAdvice is Advice for a connection over TLS on which nothing was answered yet: if it just
// ends, the other side may have refused this one. In TLS 1.3 that comes after the handshake, and
// some servers do not say so, or end the connection so soon that their reason is lost.
func FirstAdvice(err error, ca, pair string) string {
	if advice := Advice(err, ca, pair); advice != "" || !cutOff.MatchString(err.Error()) {
		return advice
	}
	return "; perhaps it refuses this side, which may have to show a certificate that it trusts: give one in " + pair
}

// cutOff matches the errors of a connection that the other side has ended. Some libraries keep
// no more than the text.
var cutOff = regexp.MustCompile("EOF|connection reset|broken pipe|connection is not open")

// IsRefusal reports whether err says that the other side refused the handshake: nothing was
// taken from this side. In TLS 1.3 a server refuses a client's certificate after the client
// has ended its own handshake, so the error may come from a read. It is recognised by its text,
// because some libraries keep no more of it.
func IsRefusal(err error) bool {
	_, alert, ok := strings.Cut(err.Error(), "remote error: tls: ")
	return ok && (strings.Contains(alert, "certificate") || strings.HasPrefix(alert, "handshake failure") ||
		strings.HasPrefix(alert, "protocol version"))
}
