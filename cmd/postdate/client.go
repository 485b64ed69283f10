package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

// get decodes the answer to a GET into v.
func get(ctx context.Context, c *client.Client, path string, v any) error {
	a, err := c.Do(ctx, client.Call{Method: http.MethodGet, Path: path})
	if err != nil {
		return err
	}
	return decode(a.Body, v)
}

// printRaw prints the server's answer to a call without a body as one line.
func printRaw(cmd *cobra.Command, c *client.Client, method, path string) error {
	return printAnswer(cmd, c, client.Call{Method: method, Path: path})
}

// printAnswer prints the server's answer as one line.
func printAnswer(cmd *cobra.Command, c *client.Client, call client.Call) error {
	a, err := c.Do(cmd.Context(), call)
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
	to      connection
	json    bool // print the server's JSON instead of text for people
}

// bind gives cmd the flags that all client commands share, and runs f with a client of the
// server that they name.
func (c *clientCommand) bind(cmd *cobra.Command, f func(*cobra.Command, *client.Client,
	[]string) error) *cobra.Command {
	c.to.register(cmd.Flags(), serverDefault, "address of the node to ask (or POSTDATE_SERVER)")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := resolve(cmd.Flags(), c.process.only(connectionFlags...)); err != nil {
			return err
		}
		cl, _, err := c.to.client()
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
