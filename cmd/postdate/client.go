package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/certs"
)

const serverDefault = "http://127.0.0.1:8080"

const (
	apiKeyFlag  = "api-key"
	apiKeyUsage = "the key that the server asks for (better as POSTDATE_API_KEY)"
)

// connect makes a client of one server; key is its API key, or "". For https it uses secure, or
// the system's authorities if that is nil. It does not retry: a user at a terminal wants to know
// immediately if there is no answer.
func connect(server, key string, secure *tls.Config) (*client.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = secure
	c, err := client.New(client.Config{
		Servers: []string{server}, APIKey: key, HTTP: &http.Client{Transport: transport},
		AnswerTimeout: time.Minute, RetryFor: -1,
	})
	if err != nil {
		return nil, usagef("--server: %q is not an address like %s", server, serverDefault)
	}
	return c, nil
}

// explain adds advice for the command line to an error.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if advice := certs.Advice(err, "--tls-ca", "--tls-cert and --tls-key"); advice != "" {
		return fmt.Errorf("%w%s", err, advice)
	}
	if lost, ok := err.(*client.NoAnswer); ok && lost.Server != "" && !lost.MayBeDone {
		return fmt.Errorf("no answer from %s (%w): is \"postdate serve\" running there? --server names another address",
			lost.Server, lost.Err)
	}
	if p, ok := err.(*client.Problem); ok && p.Type == client.Unauthorized {
		return fmt.Errorf("%w; a command takes the key from --%s or %s", err, apiKeyFlag, envName(apiKeyFlag))
	}
	return err
}

// get decodes the answer to a GET into v.
func get(ctx context.Context, c *client.Client, path string, v any) error {
	a, err := c.Do(ctx, client.Call{Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	return decode(a.Body, v)
}

// printRaw prints the server's answer as one line.
func printRaw(cmd *cobra.Command, c *client.Client, method, path string) error {
	a, err := c.Do(cmd.Context(), client.Call{Method: method, Path: path})
	if err != nil {
		return err
	}
	return printLine(cmd.OutOrStdout(), a.Body)
}

// decode decodes a server's answer. It ignores fields that a newer server may add.
func decode(raw []byte, v any) error {
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("the answer is not what a Postdate server says: %w", err)
	}
	return nil
}

// clientCommand is a command that talks to a server.
type clientCommand struct {
	process process
	server  string
	apiKey  string
	tls     certs.Files
	json    bool // print the server's JSON instead of text for people
}

// bind gives cmd the flags that all client commands share, and runs f with a client of the
// server that they name.
func (c *clientCommand) bind(cmd *cobra.Command, f func(*cobra.Command, *client.Client,
	[]string) error) *cobra.Command {
	cmd.Flags().StringVar(&c.server, "server", serverDefault, "address of the node to ask (or POSTDATE_SERVER)")
	cmd.Flags().StringVar(&c.apiKey, apiKeyFlag, "", apiKeyUsage)
	cmd.Flags().StringVar(&c.tls.CA, "tls-ca", "",
		"file with authorities, in PEM, for a server of https:// (or POSTDATE_TLS_CA; default: the system's)")
	cmd.Flags().StringVar(&c.tls.Cert, "tls-cert", "",
		"file with this client's certificate, in PEM (or POSTDATE_TLS_CERT)")
	cmd.Flags().StringVar(&c.tls.Key, "tls-key", "", "file with the key of --tls-cert (or POSTDATE_TLS_KEY)")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := resolve(cmd.Flags(), c.process.only("server", apiKeyFlag, "tls-ca", "tls-cert",
			"tls-key")); err != nil {
			return err
		}
		secure, err := c.tls.Client("--tls")
		if err != nil {
			return usagef("%v", err)
		}
		cl, err := connect(c.server, c.apiKey, secure)
		if err != nil {
			return err
		}
		return explain(f(cmd, cl, args))
	})
	return cmd
}

// only returns the variables of these flags. A command reads no others, because a POSTDATE_ID
// or POSTDATE_FROM may be set for another purpose.
func (p process) only(flags ...string) (environ []string) {
	env := environment(p.environ)
	for _, flag := range flags {
		environ = append(environ, envName(flag)+"="+env[envName(flag)])
	}
	return environ
}

// withJSON adds --json to cmd.
func (c *clientCommand) withJSON(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVar(&c.json, "json", false, usage)
}

// printLine writes raw JSON as one line.
func printLine(w io.Writer, raw []byte) error {
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	line.WriteByte('\n')
	_, err := w.Write(line.Bytes())
	return err
}
