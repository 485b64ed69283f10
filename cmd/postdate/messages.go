package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// messagePath is the path of one message.
func messagePath(id string) string { return "/v1/messages/" + url.PathEscape(id) }

func newGet(p process) *cobra.Command {
	c := &clientCommand{process: p}
	cmd := &cobra.Command{
		Use:     "get ID...",
		Short:   "Show messages with their status",
		Example: "  postdate get order-42",
		Args:    cobra.MinimumNArgs(1),
	}
	c.withJSON(cmd, "print the server's answers, one a line")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, ids []string) error {
		return each(ids, func(id string) error {
			if c.json {
				return printRaw(cmd, cl, http.MethodGet, messagePath(id))
			}
			m, err := cl.Get(cmd.Context(), id)
			if err != nil {
				return err
			}
			return printMessage(cmd.OutOrStdout(), &m)
		})
	})
}

// printMessage prints a message, one field per line, without empty fields.
func printMessage(w io.Writer, m *client.Record) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, value)
		}
	}
	line("scheduleId", m.ScheduleID)
	line("status", string(m.Status))
	line("channel", m.Channel)
	line("failureChannel", m.FailureChannel)
	line("priority", string(m.Priority))
	line("labels", strings.Join(m.Labels, " "))
	line("executionTime", shownTime(m.ExecutionTime))
	line("movedAt", shownTime(m.MovedAt))
	line("movedFrom", shownTime(m.MovedFrom))
	line("expiresAt", shownTime(m.ExpiresAt))
	if m.Recurrence != nil && m.Series != nil {
		line("recurs", shownRule(m.Recurrence))
		line("next", shownNext(m.Series))
		line("last", shownTime(m.Series.Last))
		line("so far", shownCounts(m.Series))
	}
	line("attempts", strconv.Itoa(m.Attempts))
	line("version", m.Version)
	line("nextAttemptAt", shownTime(m.NextAttemptAt))
	line("parked", m.Parked)
	line("deliveredAt", shownTime(m.DeliveredAt))
	line("failedAt", shownTime(m.FailedAt))
	line("cancelledAt", shownTime(m.CancelledAt))
	line("lastError", m.LastError)
	if m.PossibleDuplicate {
		line("possibleDuplicate", "true")
	}
	for _, a := range m.AttemptLog {
		line("attempt", strings.TrimSpace(shownTime(a.Time)+" "+a.Node+" "+a.Outcome+" "+a.Reason))
	}
	line("contentType", m.ContentType)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		line("header "+name, m.Headers[name])
	}
	line("payload", shownPayload(m.Payload, m.ContentType))
	return t.Flush()
}

// shownRule says when a message recurs.
func shownRule(r *client.Recurrence) string {
	shown := "every " + r.Every.String()
	if r.Cron != "" {
		shown = fmt.Sprintf("%q in %s", r.Cron, r.Timezone)
	}
	part := func(name, value string, given bool) {
		if given {
			shown += ", " + name + " " + value
		}
	}
	part("anchor", shownTime(r.Anchor), !r.Anchor.IsZero())
	part("start", shownTime(r.Start), !r.Start.IsZero())
	part("end", shownTime(r.End), !r.End.IsZero())
	part("max-runs", strconv.Itoa(r.MaxRuns), r.MaxRuns != 0)
	part("jitter", r.Jitter.String(), r.Jitter != 0)
	part("misfire", r.Misfire, r.Misfire != "")
	part("misfire-after", r.MisfireAfter.String(), r.MisfireAfter != 0)
	part("gap", r.Gap, r.Gap != "")
	part("overlap", r.Overlap, r.Overlap != "")
	return shown
}

// shownNext says when a series goes on; "": it does not.
func shownNext(s *client.Series) string {
	if s.Paused {
		return "paused"
	}
	return shownTime(s.Next)
}

// shownCounts says what became of a series' occurrences.
func shownCounts(s *client.Series) string {
	shown := fmt.Sprintf("%d fired, %d failed, %d skipped", s.Fired, s.Failed, s.Skipped)
	if s.Ending {
		shown += "; cancelled, and ends with an occurrence that may be on its way"
	}
	return shown
}

// shownTime formats a time like the API; "" for the zero time.
func shownTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return postdate.WallOf(t).String()
}

// shownPayload formats a payload in one of the API's forms: JSON, text in quotes, or base64, which
// it says.
func shownPayload(payload []byte, contentType string) string {
	switch {
	case contentType == "" || postdate.IsJSON(contentType):
		return string(payload)
	case utf8.Valid(payload):
		return string(quote(string(payload)))
	}
	return "base64 " + string(quote(base64.StdEncoding.EncodeToString(payload)))
}

func newCancel(p process) *cobra.Command {
	c, where := &clientCommand{process: p}, &jobFlags{}
	cmd := &cobra.Command{
		Use:   "cancel {ID... | --label LABEL | --channel CHANNEL | ...}",
		Short: "Cancel messages that are not delivered yet",
		Long: `Cancel messages. "cancelled" is a guarantee: that message is never delivered.
Where delivery may have begun, the command says so and exits with 1. A message
that recurs ends with its cancel.

With a filter in place of ids, the server cancels what it selects in a job, which
goes on if this command is ended.`,
		Example: `  postdate cancel order-42
  postdate cancel --label run-7 --channel rabbitmq:orders`,
	}
	where.register(cmd.Flags())
	c.withJSON(cmd, "print the server's answers, one a line; with a filter, how the job ended")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, ids []string) error {
		switch {
		case where.any() == (len(ids) > 0):
			return usagef("give ids or a filter, such as --label: one of the two")
		case where.any():
			return where.run(cmd, cl, c.json, (*client.Client).CancelWhere)
		}
		return each(ids, func(id string) error {
			if c.json {
				return printRaw(cmd, cl, http.MethodDelete, messagePath(id))
			}
			if err := cl.Cancel(cmd.Context(), id); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "cancelled %s\n", id)
			return err
		})
	})
}

// newFailed makes a command for messages that failed. call names a message to the server, and start a filter; done is
// what became of a message.
func newFailed(p process, cmd *cobra.Command, done string,
	call func(cl *client.Client, ctx context.Context, ids ...string) ([]client.Result, error),
	start func(*client.Client, context.Context, client.JobFilter) (string, error)) *cobra.Command {
	c, where, all := &clientCommand{process: p}, &jobFlags{}, false
	cmd.Long += `

With a filter in place of ids, the server does that in a job, which goes on if this
command is ended.`
	where.register(cmd.Flags())
	cmd.Flags().StringVar(&where.lastError, "last-error", "", "those whose last error is exactly this")
	cmd.Flags().BoolVar(&all, "all", false, "all that failed, in place of ids or a filter")
	c.withJSON(cmd, "print the server's answers, one a line; with a filter, how the job ended")
	return c.bind(cmd, func(cmd *cobra.Command, cl *client.Client, ids []string) error {
		switch filtered := where.any() || all; {
		case filtered == (len(ids) > 0) || all && where.any():
			return usagef("give ids, a filter such as --label, or --all: one of the three")
		case all:
			where.from = postdate.EarliestTime.String()
			fallthrough
		case filtered:
			return where.run(cmd, cl, c.json, start)
		}
		return each(ids, func(id string) error {
			if c.json {
				return printResult(cmd, cl, "/v1/messages/"+cmd.Name(), id)
			}
			results, err := call(cl, cmd.Context(), id)
			if err == nil {
				err = results[0].Err()
			}
			if err == nil {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s\n", done, id)
			}
			return err
		})
	})
}

// printResult makes a call that takes many ids with one, and prints its result.
func printResult(cmd *cobra.Command, cl *client.Client, path, id string) error {
	body, err := json.Marshal(map[string][]string{"scheduleIds": {id}})
	if err != nil {
		return err
	}
	a, err := cl.Do(cmd.Context(), client.Call{Method: http.MethodPost, Path: path, Body: body, Repeatable: true})
	if err != nil {
		return err
	}
	var answer struct {
		Results []json.RawMessage `json:"results"`
	}
	var result client.Result
	if err := decode(a.Body, &answer); err != nil {
		return err
	}
	if n := len(answer.Results); n != 1 {
		return fmt.Errorf("the answer is not what a Postdate server says: it has %d results for one id", n)
	}
	if err := decode(answer.Results[0], &result); err != nil {
		return err
	}
	if err := result.Err(); err != nil {
		return err
	}
	return printLine(cmd.OutOrStdout(), answer.Results[0])
}

func newRedrive(p process) *cobra.Command {
	return newFailed(p, &cobra.Command{
		Use:   "redrive {ID... | --label LABEL | --channel CHANNEL | ... | --all}",
		Short: "Try messages again that failed",
		Long: `Try messages again whose delivery failed: each is due now, and its attempts begin
anew. If an earlier attempt may have arrived, the consumer is told so.`,
		Example: `  postdate redrive order-42
  postdate redrive --channel rabbitmq:orders
  postdate redrive --last-error "the server is shutting down"`,
	}, "redriven", (*client.Client).Redrive, (*client.Client).RedriveWhere)
}

func newPurge(p process) *cobra.Command {
	return newFailed(p, &cobra.Command{
		Use:   "purge {ID... | --label LABEL | --channel CHANNEL | ... | --all}",
		Short: "Delete messages that failed",
		Long:  `Delete messages whose delivery failed. Nothing brings them back.`,
		Example: `  postdate purge order-42
  postdate purge --to 2027-01-01T00:00:00Z`,
	}, "purged", (*client.Client).Purge, (*client.Client).PurgeWhere)
}

// each calls f for every id, even after one has failed. If there are several ids, each error
// names its id.
func each(ids []string, f func(id string) error) error {
	if len(ids) == 1 {
		return f(ids[0])
	}
	var failed []error
	for _, id := range ids {
		if err := explain(f(id)); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", id, err))
		}
	}
	return errors.Join(failed...)
}

type listCommand struct {
	clientCommand
	status, channel, label, idPrefix, from, to string
	recurring                                  bool
	limit                                      int
}

func newList(p process) *cobra.Command {
	l := &listCommand{clientCommand: clientCommand{process: p}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages by execution time",
		Long: `List messages by execution time. A series has that of its first occurrence, wherever
it is now.`,
		Example: `  postdate list --status PENDING --channel rabbitmq:reminders
  postdate list --from 2027-01-31T00:00:00Z --to 2027-02-01T00:00:00Z --limit 0 --json`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&l.status, "status", "", "only PENDING, DELIVERED, DELIVERY_FAILED or CANCELLED ones")
	f.StringVar(&l.channel, "channel", "", "only those of this channel")
	f.StringVar(&l.label, "label", "", "only those with this label")
	f.StringVar(&l.idPrefix, "id-prefix", "", "only those whose schedule id begins so")
	f.BoolVar(&l.recurring, "recurring", false, "only those that recur; --recurring=false: only the others")
	f.StringVar(&l.from, "from", "", "only those whose execution time is this RFC 3339 time or later")
	f.StringVar(&l.to, "to", "", "only those whose execution time is before this RFC 3339 time")
	f.IntVar(&l.limit, "limit", 100, "at most so many; 0: all")
	l.withJSON(cmd, "print the messages as JSON, one a line")
	return l.bind(cmd, l.run)
}

func (l *listCommand) run(cmd *cobra.Command, c *client.Client, _ []string) error {
	if l.limit < 0 {
		return usagef("--limit is %d: it is 0 or more", l.limit)
	}
	out := cmd.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if !l.json {
		fmt.Fprintln(table, "SCHEDULE ID\tDUE\tSTATUS\tATTEMPTS\tPRIORITY\tCHANNEL")
	}
	shown, cursor := 0, ""
	for {
		page, err := l.page(cmd, c, cursor, shown)
		if err != nil {
			return err
		}
		for _, raw := range page.Messages {
			if l.json {
				if err := printLine(out, raw); err != nil {
					return err
				}
				continue
			}
			var m client.Record
			if err := decode(raw, &m); err != nil {
				return err
			}
			printRow(table, &m)
		}
		shown, cursor = shown+len(page.Messages), page.NextCursor
		if cursor == "" || (l.limit > 0 && shown >= l.limit) {
			break
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if cursor != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "There are more than these %d: --limit 0 shows all.\n", shown)
	}
	return nil
}

// printRow prints one message of a list: a series with the occurrence that follows.
func printRow(table io.Writer, m *client.Record) {
	due, channel := shownTime(m.ExecutionTime), m.Channel
	if m.Recurrence != nil && m.Series != nil {
		channel += " (" + shownRule(m.Recurrence) + ": " + shownCounts(m.Series) + ")"
		if next := shownNext(m.Series); next != "" {
			due = next
		}
	}
	fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", m.ScheduleID, due, m.Status, m.Attempts, m.Priority,
		channel)
}

type listPage struct {
	Messages   []json.RawMessage `json:"messages"`
	NextCursor string            `json:"nextCursor"`
}

// page reads the page after cursor; shown messages have been printed.
func (l *listCommand) page(cmd *cobra.Command, c *client.Client, cursor string, shown int) (listPage, error) {
	limit := postdate.ListLimitMax
	if l.limit > 0 {
		limit = min(limit, l.limit-shown)
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}}
	for name, value := range map[string]string{
		"status": l.status, "channel": l.channel, "label": l.label, "idPrefix": l.idPrefix, "from": l.from, "to": l.to,
		"cursor": cursor,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if cmd.Flags().Changed("recurring") {
		query.Set("recurring", strconv.FormatBool(l.recurring))
	}
	var page listPage
	err := get(cmd.Context(), c, "/v1/messages?"+query.Encode(), &page)
	return page, err
}
