package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/postdate/postdate"
)

// InboxMessage is a message that was delivered to an inbox.
type InboxMessage struct {
	ScheduleID        string            `json:"scheduleId"`
	ExecutionTime     time.Time         `json:"executionTime"`
	DeliveredAt       time.Time         `json:"deliveredAt"`
	Attempt           int               `json:"attempt"`
	PossibleDuplicate bool              `json:"possibleDuplicate"` // the inbox may already have the message
	ContentType       string            `json:"contentType"`
	Payload           []byte            `json:"-"`
	Headers           map[string]string `json:"headers"`
}

// InboxRead says what to read from an inbox.
type InboxRead struct {
	After string        // the NextCursor of an earlier page; "": from the oldest message that is kept
	Limit int           // at most so many messages; 0: 1,000, which is also the maximum. Large ones end a page before
	Wait  time.Duration // how long to wait for a message if there is none; at most 30 s
}

// InboxPage is the result of one read.
type InboxPage struct {
	Messages   []InboxMessage `json:"messages"`
	NextCursor string         `json:"nextCursor"` // continues after them
}

// ReadInbox reads messages from inbox:name. It removes none: a reader acknowledges messages
// by keeping the page's NextCursor, and continues from there.
func (c *Client) ReadInbox(ctx context.Context, name string, read InboxRead) (page InboxPage, err error) {
	limit := read.Limit
	if limit == 0 {
		limit = postdate.InboxLimitMax
	}
	query := url.Values{"limit": {strconv.Itoa(limit)}, "wait": {read.Wait.String()}}
	if read.After != "" {
		query.Set("after", read.After)
	}
	path := "/v1/inbox/" + url.PathEscape(name) + "?" + query.Encode()
	_, err = c.do(ctx, Call{Method: http.MethodGet, Path: path, Wait: read.Wait}, &page)
	return page, err
}

// Follow reads inbox:name page by page, beginning after the given cursor, and waits for new
// messages. No page is empty. It ends with the first error, at the latest when ctx ends.
func (c *Client) Follow(ctx context.Context, name, after string) iter.Seq2[InboxPage, error] {
	return func(yield func(InboxPage, error) bool) {
		for cursor := after; ; {
			page, err := c.ReadInbox(ctx, name, InboxRead{After: cursor, Wait: postdate.InboxWaitMax})
			if err != nil {
				yield(InboxPage{NextCursor: cursor}, err)
				return
			}
			if cursor = page.NextCursor; len(page.Messages) > 0 && !yield(page, nil) {
				return
			}
		}
	}
}
