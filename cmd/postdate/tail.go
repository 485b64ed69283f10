package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
)

// inboxPage is a page whose messages can be printed exactly as received.
type inboxPage struct {
	Messages   []json.RawMessage `json:"messages"`
	NextCursor string            `json:"nextCursor"`
}

// readInbox reads the page after the cursor, and waits for it.
func readInbox(ctx context.Context, c *client.Client, name, after string) (page inboxPage, err error) {
	query := url.Values{"limit": {strconv.Itoa(postdate.InboxLimitMax)}, "wait": {postdate.InboxWaitMax.String()}}
	if after != "" {
		query.Set("after", after)
	}
	err = get(ctx, c, "/v1/inbox/"+url.PathEscape(name)+"?"+query.Encode(), &page)
	return page, err
}

type tailCommand struct {
	clientCommand
	after string
	count int
}

func newTail(p process) *cobra.Command {
	t := &tailCommand{clientCommand: clientCommand{process: p}}
	cmd := &cobra.Command{
		Use:   "tail inbox:NAME",
		Short: "Print what an inbox gets, as it comes",
		Long: `Print what was delivered to an inbox, from the oldest message that is kept, and
then every new one as it comes, until it is interrupted. Each line is the time of
delivery, how late it was, the schedule id and the payload. It waits for a server
that is away or restarts, and goes on where it was.`,
		Example: `  postdate tail inbox:test
  postdate tail inbox:test --count 1 --json`,
		Args: cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&t.after, "after", "", "start behind this cursor (a nextCursor of the API)")
	cmd.Flags().IntVar(&t.count, "count", 0, "stop after so many messages; 0: never")
	t.withJSON(cmd, "print the messages as JSON, one a line")
	return t.bind(cmd, t.run)
}

func (t *tailCommand) run(cmd *cobra.Command, c *client.Client, args []string) error {
	name, ok := strings.CutPrefix(args[0], "inbox:")
	if !ok || name == "" {
		return usagef("%q is not an inbox: write inbox:NAME", args[0])
	}
	again := retry{say: cmd.ErrOrStderr()}
	cursor, shown := t.after, 0
	for {
		page, err := readInbox(cmd.Context(), c, name, cursor)
		if err != nil {
			if err := again.after(cmd.Context(), err); err != nil {
				return err
			}
			continue
		}
		again.worked()
		cursor = page.NextCursor
		for _, raw := range page.Messages {
			if err := t.print(cmd.OutOrStdout(), raw); err != nil {
				return err
			}
			if shown++; shown == t.count {
				return nil
			}
		}
	}
}

func (t *tailCommand) print(w io.Writer, raw json.RawMessage) error {
	if t.json {
		return printLine(w, raw)
	}
	var m client.InboxMessage
	if err := decode(raw, &m); err != nil {
		return err
	}
	mark := ""
	if m.PossibleDuplicate {
		mark = "  (possible duplicate)"
	}
	_, err := fmt.Fprintf(w, "%s  +%d ms  %s  %s%s\n", postdate.WallOf(m.DeliveredAt),
		m.DeliveredAt.Sub(m.ExecutionTime).Milliseconds(), m.ScheduleID, shownPayload(m.Payload, m.ContentType), mark)
	return err
}

// retry waits while a server does not answer, and says so once.
type retry struct {
	say   io.Writer
	pause time.Duration // before the last try; 0: the last try worked
}

const (
	retryPauseMin = 100 * time.Millisecond
	retryPauseMax = 2 * time.Second
)

// after returns nil when it is time to try again, or err if trying again cannot help.
func (r *retry) after(ctx context.Context, err error) error {
	var gone *client.NoAnswer
	var p *client.Problem
	switch {
	case errors.As(err, &gone):
	case errors.As(err, &p) && p.Status >= http.StatusInternalServerError:
	default:
		return err
	}
	if r.pause == 0 {
		fmt.Fprintf(r.say, "postdate: %v; waiting for it\n", explain(err))
	}
	r.pause = min(max(2*r.pause, retryPauseMin), retryPauseMax)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.pause):
		return nil
	}
}

func (r *retry) worked() { r.pause = 0 }
