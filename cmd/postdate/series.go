package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate/client"
)

func newPauseSeries(p process) *cobra.Command {
	return onSeries(p, client.Call{Method: http.MethodPatch, Body: []byte(`{"paused":true}`)},
		func(ctx context.Context, cl *client.Client, id string) (string, error) {
			return "paused " + id, cl.PauseSeries(ctx, id)
		}, &cobra.Command{
			Use:   "pause-series ID...",
			Short: "Pause series until they are resumed",
			Long: `Pause series, which are messages that recur, until they are resumed. An
occurrence whose time has come may still be sent; no other begins. For channels
there is pause.`,
			Example: "  postdate pause-series report",
		})
}

func newResumeSeries(p process) *cobra.Command {
	return onSeries(p, client.Call{Method: http.MethodPatch, Body: []byte(`{"paused":false}`)},
		func(ctx context.Context, cl *client.Client, id string) (string, error) {
			return "resumed " + id, cl.ResumeSeries(ctx, id)
		}, &cobra.Command{
			Use:   "resume-series ID...",
			Short: "Resume paused series",
			Long: `Resume paused series with the first occurrence after now. Those that they
missed are skipped. For channels there is resume.`,
			Example: "  postdate resume-series report",
		})
}

func newTrigger(p process) *cobra.Command {
	return onSeries(p, client.Call{Method: http.MethodPost, Path: "/trigger"},
		func(ctx context.Context, cl *client.Client, id string) (string, error) {
			extra, err := cl.Trigger(ctx, id)
			return "triggered " + extra.ScheduleID, err
		}, &cobra.Command{
			Use:   "trigger ID...",
			Short: "Send an extra occurrence of series now",
			Long: `Send an extra occurrence of series now, also where they are paused. It is a
message of its own, whose id is printed.`,
			Example: "  postdate trigger report",
		})
}

// onSeries makes cmd act on the series in its arguments. do acts, and returns what is printed then. The call is
// the same at the level of HTTP; its path follows the series'.
func onSeries(p process, call client.Call, do func(context.Context, *client.Client, string) (string, error),
	cmd *cobra.Command) *cobra.Command {
	c := &clientCommand{process: p}
	cmd.Args = cobra.MinimumNArgs(1)
	c.withJSON(cmd, "print the server's answers, one a line")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, ids []string) error {
		return each(ids, func(id string) error {
			if c.json {
				call := call
				call.Path = messagePath(id) + call.Path
				return printAnswer(cmd, cl, call)
			}
			done, err := do(cmd.Context(), cl, id)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
			}
			return err
		})
	})
}
