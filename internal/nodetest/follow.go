package nodetest

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate/client"
)

// Arrival is a message as an inbox shows it, and when the answer with it began to arrive.
type Arrival struct {
	client.InboxMessage
	ReceivedAt time.Time
}

const (
	again       = 5 * time.Millisecond // polls: a node gives no signal when it is back
	notNowLimit = time.Minute          // how long a node that runs but is not ready may take for the rest
)

// FollowInto passes every arrival in an inbox to take, in order, from its first message until
// ctx ends; then it reads once more, to take what arrived before the end of ctx. While there is
// no node, or it is not ready, it keeps asking, always after the last message that it took.
func (c *Client) FollowInto(ctx context.Context, inbox string, take func(Arrival)) error {
	var received atomic.Pointer[time.Time]
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() {
		now := time.Now()
		received.Store(&now)
	}})
	cursor := ""
	takeAll := func(page client.InboxPage) {
		for _, m := range page.Messages {
			take(Arrival{m, *received.Load()})
		}
		cursor = page.NextCursor
	}
	for ctx.Err() == nil {
		for page, err := range c.Follow(ctx, inbox, cursor) {
			switch {
			case ctx.Err() != nil:
			case NoAnswer(err) || NotNow(err):
				time.Sleep(again)
			case err != nil:
				return err
			}
			takeAll(page)
		}
	}
	for begin := time.Now(); ; {
		page, err := c.ReadInbox(context.WithoutCancel(ctx), inbox, client.InboxRead{After: cursor})
		switch {
		case NotNow(err) && time.Since(begin) < notNowLimit:
			time.Sleep(again)
		case err != nil || len(page.Messages) == 0:
			return err
		default:
			takeAll(page)
		}
	}
}

// NotNow reports whether a node answered that a call is not possible at present, or may not have
// been done.
func NotNow(err error) bool {
	switch client.TypeOf(err) {
	case client.Unavailable, client.NotReady, client.UnknownOutcome:
		return true
	}
	return false
}
