package main

import (
	"cmp"
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func newWhoAmI(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:     "whoami",
		Short:   "Show what your key or token is for",
		Example: "  postdate whoami\n  postdate whoami --api-key pd_...",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, "/v1/whoami")
		}
		caller, err := cl.WhoAmI(cmd.Context())
		if err != nil {
			return err
		}
		return printCaller(cmd, &caller)
	})
}

func printCaller(cmd *cobra.Command, c *client.Caller) error {
	if !c.Asked {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "this node asks nobody for a key: everybody may do everything")
		return err
	}
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "tenant\t%s\nscopes\t%s\nchannels\t%s\n", c.Tenant,
		cmp.Or(strings.Join(c.Scopes, ","), "none"), orAll(c.Channels))
	if c.Subject != "" {
		fmt.Fprintf(table, "token of\t%s\n", c.Subject)
	} else {
		fmt.Fprintf(table, "key\t%s\n", c.KeyID)
	}
	fmt.Fprintf(table, "expires\t%s\n", shownExpiry(c.ExpiresAt, time.Now()))
	return table.Flush()
}
