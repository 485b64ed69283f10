package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func newChannels(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:   "channels",
		Short: "Show the channels of the cluster, and which of them are down",
		Long: `Show the channels that have messages in the memory of a node, that delivered
something in the last minute, of which something is set, or for which messages are
pending. IN HAND and IN FLIGHT are sums over all nodes. A channel is down if it is
down on any node. RATE is how many messages a second were delivered in the last
minute. PENDING counts messages that are stored and not settled, and DUE those of
them whose time has come; ~ marks an estimate, and ? what is not known.`,
		Example: "  postdate channels",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, _ []string) error {
		if c.json {
			return printRaw(cmd, cl, http.MethodGet, "/v1/channels")
		}
		list, err := cl.Channels(cmd.Context())
		if err != nil {
			return err
		}
		return printChannels(cmd, &list)
	})
}

func printChannels(cmd *cobra.Command, list *client.ChannelList) error {
	out := cmd.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHANNEL\tSTATE\tRATE\tDUE\tPENDING\tIN HAND\tIN FLIGHT\tPARKED\tMAX/S\tMAX IN FLIGHT\t"+
		"ON FAILURE\tLAST ERROR")
	for _, c := range list.Channels {
		lastError := c.LastError
		if lastError != "" {
			lastError = fmt.Sprintf("%s (%s, %s)", c.LastError, c.LastErrorNode, shownTime(c.LastErrorAt))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%t\t%s\t%s\t%s\t%s\n", c.Channel, c.State,
			shownRate(c.DeliveredPerSecond), shownCount(c.Due, c.Exact), shownCount(c.Pending, c.Exact), c.InHand,
			c.InFlight, c.Parked, orDash(c.MaxPerSecond), orDash(float64(c.MaxInFlight)), cmp.Or(c.FailureChannel, "-"),
			lastError)
	}
	if err := table.Flush(); err != nil || len(list.Missing) == 0 {
		return err
	}
	_, err := fmt.Fprintf(out, "no answer from %s: what they have in hand is missing\n",
		strings.Join(list.Missing, ", "))
	return err
}

func shownRate(perSecond *float64) string {
	if perSecond == nil {
		return "?"
	}
	return strconv.FormatFloat(*perSecond, 'f', -1, 64) + "/s"
}

func shownCount(n *int64, exact bool) string {
	switch {
	case n == nil:
		return "?"
	case exact:
		return strconv.FormatInt(*n, 10)
	}
	return "~" + strconv.FormatInt(*n, 10)
}

func orDash(n float64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

func newPause(p process) *cobra.Command {
	return newSwitch(p, "paused", (*client.Client).Pause, &cobra.Command{
		Use:   "pause CHANNEL...",
		Short: "Let the messages of a channel wait, on all nodes",
		Long: `Let the messages of a channel wait in the store, on all nodes of the cluster, until
it is resumed. They can be cancelled meanwhile. What is at the broker already is
not called back.`,
		Example: "  postdate pause rabbitmq:orders",
	})
}

func newResume(p process) *cobra.Command {
	return newSwitch(p, "resumed", (*client.Client).Resume, &cobra.Command{
		Use:     "resume CHANNEL...",
		Short:   "Let the messages of a paused channel go out",
		Example: "  postdate resume rabbitmq:orders",
	})
}

// newSwitch makes cmd pause or resume the channels in its arguments; turn does it.
func newSwitch(p process, done string, turn func(*client.Client, context.Context, string) error,
	cmd *cobra.Command) *cobra.Command {
	c := &clientCommand{process: p}
	cmd.Args = cobra.MinimumNArgs(1)
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, channels []string) error {
		return each(channels, func(channel string) error {
			if err := turn(cl, cmd.Context(), channel); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done, channel)
			return err
		})
	})
}
