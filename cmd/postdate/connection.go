package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/certs"
)

const serverDefault = "http://127.0.0.1:8080"

// connection is how a command reaches a server.
type connection struct {
	server string
	apiKey string
	tenant string
	tls    certs.Files
}

const apiKeyFlag = "api-key"

// connectionFlags are the flags of a connection. Their variables are for all commands.
var connectionFlags = []string{"server", apiKeyFlag, "as-tenant", "tls-ca", "tls-cert", "tls-key"}

// register defines the connectionFlags.
func (c *connection) register(f *pflag.FlagSet, server, usage string) {
	f.StringVar(&c.server, "server", server, usage)
	f.StringVar(&c.apiKey, apiKeyFlag, "", "the key that the server asks for (better as POSTDATE_API_KEY)")
	f.Var((*tenantName)(&c.tenant), "as-tenant",
		"with an administrator's key: act for this tenant (or POSTDATE_AS_TENANT)")
	f.StringVar(&c.tls.CA, "tls-ca", "",
		"file with authorities, in PEM, for a server of https:// (or POSTDATE_TLS_CA; default: the system's)")
	f.StringVar(&c.tls.Cert, "tls-cert", "", "file with this client's certificate, in PEM (or POSTDATE_TLS_CERT)")
	f.StringVar(&c.tls.Key, "tls-key", "", "file with the key of --tls-cert (or POSTDATE_TLS_KEY)")
}

// client makes a client of the server, and returns how it speaks TLS.
func (c *connection) client() (*client.Client, *tls.Config, error) {
	secure, err := c.tls.Client("--tls")
	if err != nil {
		return nil, nil, usagef("%v", err)
	}
	if c.apiKey != "" {
		if err := auth.CheckKey(c.apiKey); err != nil {
			return nil, nil, usagef("--%s (or %s): %v", apiKeyFlag, envName(apiKeyFlag), err)
		}
	}
	cl, err := connect(c.server, c.apiKey, c.tenant, secure)
	if err != nil {
		return nil, nil, err
	}
	if c.tls != (certs.Files{}) && strings.HasPrefix(cl.Server(), "http://") {
		return nil, nil, usagef("--server: with --tls-ca, --tls-cert or --tls-key write https://, "+
			"because to %s all would go in the clear, the key too", cl.Server())
	}
	return cl, secure, nil
}

// connect makes a client of one server; key is its API key, or "". For https it uses secure, or
// the system's authorities if that is nil. It does not retry: a user at a terminal wants to know
// immediately if there is no answer.
func connect(server, key, tenant string, secure *tls.Config) (*client.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secure
	header := http.Header{} // a header without a value is left out, whatever the client finds in the environment
	if key == "" {
		header["Authorization"] = nil
	}
	if tenant == "" {
		header["Postdate-Tenant"] = nil
	}
	c, err := client.New(client.Config{
		Servers: []string{server}, APIKey: key, Tenant: tenant, Header: header,
		HTTP: &http.Client{Transport: transport}, AnswerTimeout: time.Minute, RetryFor: -1,
	})
	if err != nil {
		return nil, usagef("--server: %v", err)
	}
	return c, nil
}

// explain adds advice for the command line to an error.
func explain(err error) error {
	if lost, ok := err.(*client.NoAnswer); ok {
		return explainNoAnswer(lost)
	}
	if p, ok := err.(*client.Problem); ok && p.Type == client.Unauthorized {
		return fmt.Errorf("%w; a command takes the key from --%s or %s", err, apiKeyFlag, envName(apiKeyFlag))
	}
	return err
}

func explainNoAnswer(lost *client.NoAnswer) error {
	advice := tlsAdvice(lost.Server, lost.Err)
	switch {
	case lost.MayBeDone:
		return fmt.Errorf("%w%s", lost, advice)
	case advice != "":
		return fmt.Errorf("no answer from %s (%w): nothing was done%s", lost.Server, lost.Err, advice)
	case lost.Server != "":
		return fmt.Errorf("no answer from %s (%w): is \"postdate serve\" running there? --server names another address",
			lost.Server, lost.Err)
	}
	return lost
}

// notHTTP matches the errors of a connection on which the other side spoke no HTTP: perhaps it
// waited for TLS.
var notHTTP = regexp.MustCompile("EOF|malformed HTTP|connection reset")

// tlsAdvice says what to do about an error of a connection to a server if TLS may be the reason;
// "": it is not.
func tlsAdvice(server string, err error) string {
	if strings.HasPrefix(server, "https://") {
		return certs.FirstAdvice(err, "--tls-ca", "--tls-cert and --tls-key")
	}
	if notHTTP.MatchString(err.Error()) {
		return "; if the node speaks TLS, write https://"
	}
	return ""
}
