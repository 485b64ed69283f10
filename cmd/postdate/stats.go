package main

import (
	"fmt"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func newStats(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Show what the cluster did in the last minute, and what is late",
		Long: `Show how many messages all nodes scheduled, delivered, failed and cancelled, how
late they were (the median and the 99th percentile, estimated from a histogram),
and what is pending. An administrator's key, and one of the tenant default, sees
the figures of all tenants, and what is overdue, in hand and down. Any other key
sees those of its own tenant.`,
		Example: "  postdate stats\n  watch postdate stats",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is: it has the last ten minutes")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, "/v1/stats")
		}
		s, err := cl.Stats(cmd.Context())
		if err != nil {
			return err
		}
		return printStats(cmd, &s)
	})
}

func printStats(cmd *cobra.Command, s *client.Stats) error {
	out := cmd.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	total, last, rate := s.Total, s.LastMinute.Figures, s.PerSecond
	fmt.Fprintln(table, "MESSAGES\tPER SECOND\tLAST MINUTE\tSINCE THE START")
	for _, row := range []struct {
		what        string
		rate        float64
		last, total int64
	}{
		{"scheduled", rate.Scheduled, last.Scheduled, total.Scheduled},
		{"delivered", rate.Delivered, last.Delivered, total.Delivered},
		{"failed", rate.Failed, last.Failed, total.Failed},
		{"cancelled", rate.Cancelled, last.Cancelled, total.Cancelled},
	} {
		fmt.Fprintf(table, "%s\t%.1f\t%d\t%d\n", row.what, row.rate, row.last, row.total)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if l := s.LastMinute.LatenessMs; l != nil {
		fmt.Fprintf(out, "lateness in the last minute: median about %.1f ms, 99th percentile about %.1f ms\n",
			l.P50, l.P99)
	}
	if s.Pending != nil {
		fmt.Fprintf(out, "pending: %d messages, %d bytes\n", s.Pending.Messages, s.Pending.Bytes)
	}
	if s.Tenant != "" {
		fmt.Fprintf(out, "these are the figures of the tenant %s\n", s.Tenant)
	} else {
		fmt.Fprintf(out, "overdue: for %d ms; in hand: %d messages; channels down: %d\n",
			s.OverdueMs, s.InHand, s.ChannelsDown)
		for _, d := range s.Down {
			fmt.Fprintf(out, "  down: %s of tenant %s: %q\n", d.Channel, d.Tenant, d.Reason)
		}
	}
	if !s.OwnSeries {
		fmt.Fprintln(out, "on some node this tenant has no metric series of its own: what that node counted is missing")
	}
	if len(s.Missing) > 0 {
		fmt.Fprintf(out, "no answer from %s: what they counted is missing\n", strings.Join(s.Missing, ", "))
	}
	return nil
}
