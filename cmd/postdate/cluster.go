package main

import (
	"fmt"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func newCluster(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Show the nodes, and which of them owns which bucket",
		Example: "  postdate cluster",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, "/v1/cluster")
		}
		state, err := cl.Cluster(cmd.Context())
		if err != nil {
			return err
		}
		return printCluster(cmd, &state)
	})
}

func printCluster(cmd *cobra.Command, c *client.Cluster) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	owned := make(map[string]int)
	for _, b := range c.Buckets {
		owned[b.Owner]++
	}
	fmt.Fprintln(table, "NODE\tADDRESS\tSTATE\tBUCKETS\tCLOCK AHEAD\tLEASE LEFT")
	for _, m := range c.Members {
		self := ""
		if m.Node == c.Node {
			self = " (answered)"
		}
		ahead, left := "-", "-"
		if m.ClockOffsetMs != nil {
			ahead = fmt.Sprint(*m.ClockOffsetMs, " ms")
		}
		if m.Lease != nil {
			left = fmt.Sprintf("%d of %d ms", m.Lease.LeftMs, m.Lease.LastsMs)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", m.Node, m.Address, m.State+self, owned[m.Node], ahead, left)
	}
	fmt.Fprintln(table, "\nBUCKET\tOWNER\tTOKEN\tSETTLED UP TO\tCLAIMED UP TO\tLAG MS")
	for _, b := range c.Buckets {
		owner := b.Owner
		if owner == "" {
			owner = "(nobody)"
		}
		fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%s\t%d\n", b.Bucket, owner, b.Token,
			shownTime(b.Checkpoint), shownTime(b.Claimed), b.LagMs)
	}
	return table.Flush()
}
