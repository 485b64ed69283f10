package main

import (
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func newFailures(p process) *cobra.Command {
	c := &clientCommand{process: p}
	var channel, from, to string
	cmd := &cobra.Command{
		Use:   "failures",
		Short: "Show what failed, grouped by channel and error",
		Long: `Show the messages whose delivery failed, grouped by channel and error, the largest
group first. The server looks at the first 10,000 of them, by execution time.`,
		Example: `  postdate failures --channel rabbitmq:orders
  postdate failures --from 2027-01-31T00:00:00Z --json`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&channel, "channel", "", "only those of this channel")
	f.StringVar(&from, "from", "", "only those whose execution time is this RFC 3339 time or later")
	f.StringVar(&to, "to", "", "only those whose execution time is before this RFC 3339 time")
	c.withJSON(cmd, "print the server's answer")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		query := url.Values{}
		for name, value := range map[string]string{"channel": channel, "from": from, "to": to} {
			if value != "" {
				query.Set(name, value)
			}
		}
		path := "/v1/failures?" + query.Encode()
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, path)
		}
		var failures client.Failures
		if err := get(cmd.Context(), cl, path, &failures); err != nil {
			return err
		}
		return printFailures(cmd, &failures)
	})
}

func printFailures(cmd *cobra.Command, f *client.Failures) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "COUNT\tCHANNEL\tLAST FAILED\tEXAMPLE\tERROR")
	looked := true // at all that failed
	for i := range f.Groups {
		g := &f.Groups[i]
		looked = looked && g.Exact
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%q\n",
			g.Count, g.Channel, shownTime(g.LastFailedAt), g.Example, g.LastError)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case !f.Exact && looked && len(f.Groups) > 0:
		fmt.Fprintf(cmd.ErrOrStderr(), "There are more groups than these %d: narrow them down with --channel, --from "+
			"and --to.\n", len(f.Groups))
	case !f.Exact:
		fmt.Fprintln(cmd.ErrOrStderr(), "More have failed than were looked at: narrow them down with --from and --to.")
	}
	return nil
}
