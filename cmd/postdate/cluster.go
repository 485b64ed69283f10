package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// cluster is the answer of GET /v1/cluster.
type cluster struct {
	Node    string `json:"node"`
	Members []struct {
		Node    string `json:"node"`
		Address string `json:"address"`
		State   string `json:"state"`
	} `json:"members"`
	Buckets []struct {
		Bucket     int             `json:"bucket"`
		Owner      string          `json:"owner"`
		Token      uint64          `json:"token"`
		Checkpoint string          `json:"checkpoint"`
		Claimed    string          `json:"claimed"`
		Lag        json.RawMessage `json:"lag"`
	} `json:"buckets"`
}

func newCluster(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:     "cluster",
		Short:   "Show the nodes, and which of them owns which bucket",
		Example: "  postdate cluster",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client, _ []string) error {
		var state cluster
		raw, err := cl.get(cmd.Context(), "/v1/cluster", &state)
		switch {
		case err != nil:
			return err
		case c.json:
			return printLine(cmd.OutOrStdout(), raw)
		}
		return state.print(cmd)
	})
}

func (c *cluster) print(cmd *cobra.Command) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	owned := make(map[string]int)
	for _, b := range c.Buckets {
		owned[b.Owner]++
	}
	fmt.Fprintln(table, "NODE\tADDRESS\tSTATE\tBUCKETS")
	for _, m := range c.Members {
		self := ""
		if m.Node == c.Node {
			self = " (answered)"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\n", m.Node, m.Address, m.State+self, owned[m.Node])
	}
	fmt.Fprintln(table, "\nBUCKET\tOWNER\tTOKEN\tSETTLED UP TO\tCLAIMED UP TO\tLAG")
	for _, b := range c.Buckets {
		owner := b.Owner
		if owner == "" {
			owner = "(nobody)"
		}
		fmt.Fprintf(table, "%d\t%s\t%d\t%s\t%s\t%s\n", b.Bucket, owner, b.Token,
			b.Checkpoint, b.Claimed, strings.Trim(string(b.Lag), `"`))
	}
	return table.Flush()
}
