package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// channelList is the answer of GET /v1/channels.
type channelList struct {
	Channels []struct {
		Channel      string  `json:"channel"`
		State        string  `json:"state"`
		MaxPerSecond float64 `json:"maxPerSecond"`
		MaxInFlight  int     `json:"maxInFlight"`
		InHand       int     `json:"inHand"`
		InFlight     int     `json:"inFlight"`
		Parked       bool    `json:"parked"`
		LastError    string  `json:"lastError"`
	} `json:"channels"`
}

func newChannels(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:   "channels",
		Short: "Show the channels of which a node knows something",
		Long: `Show the channels that have messages in a node's memory, or messages that wait for
them in the store, or of which something is set. Another node may know others.`,
		Example: "  postdate channels",
		Args:    cobra.NoArgs,
	}
	c.withJSON(cmd, "print the server's answer as it is")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client, _ []string) error {
		var list channelList
		raw, err := cl.get(cmd.Context(), "/v1/channels", &list)
		switch {
		case err != nil:
			return err
		case c.json:
			return printLine(cmd.OutOrStdout(), raw)
		}
		return list.print(cmd)
	})
}

func (l *channelList) print(cmd *cobra.Command) error {
	table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CHANNEL\tSTATE\tIN HAND\tIN FLIGHT\tPARKED\tMAX/S\tMAX IN FLIGHT\tLAST ERROR")
	for _, c := range l.Channels {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%t\t%s\t%s\t%s\n", c.Channel, c.State, c.InHand, c.InFlight, c.Parked,
			orDash(c.MaxPerSecond), orDash(float64(c.MaxInFlight)), c.LastError)
	}
	return table.Flush()
}

func orDash(n float64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}

func newPause(p process) *cobra.Command {
	return newSwitch(p, true, &cobra.Command{
		Use:   "pause CHANNEL...",
		Short: "Let the messages of a channel wait, on all nodes",
		Long: `Let the messages of a channel wait in the store, on all nodes of the cluster, until
it is resumed. They can be cancelled meanwhile. What is at the broker already is
not called back.`,
		Example: "  postdate pause rabbitmq:orders",
	})
}

func newResume(p process) *cobra.Command {
	return newSwitch(p, false, &cobra.Command{
		Use:     "resume CHANNEL...",
		Short:   "Let the messages of a paused channel go out",
		Example: "  postdate resume rabbitmq:orders",
	})
}

// newSwitch makes cmd pause or resume the channels that it is given.
func newSwitch(p process, paused bool, cmd *cobra.Command) *cobra.Command {
	c := &clientCommand{process: p}
	cmd.Args = cobra.MinimumNArgs(1)
	done := "resumed"
	if paused {
		done = "paused"
	}
	return c.bind(cmd, func(cmd *cobra.Command, cl *client, channels []string) error {
		return each(channels, func(channel string) error {
			body, err := json.Marshal(map[string]any{"channel": channel, "paused": paused})
			if err != nil {
				return err
			}
			if _, _, err := cl.do(cmd.Context(), http.MethodPatch, "/v1/channels", body); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done, channel)
			return err
		})
	})
}
