package nodetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// Arrival is a message as an inbox shows it, and when it was received.
type Arrival struct {
	ScheduleID        string            `json:"scheduleId"`
	ExecutionTime     time.Time         `json:"executionTime"`
	DeliveredAt       time.Time         `json:"deliveredAt"`
	Attempt           int               `json:"attempt"`
	PossibleDuplicate bool              `json:"possibleDuplicate"`
	ContentType       string            `json:"contentType"`
	PayloadEncoding   string            `json:"payloadEncoding"`
	Payload           json.RawMessage   `json:"payload"`
	Headers           map[string]string `json:"headers"`
	ReceivedAt        time.Time         `json:"-"`
}

// Follower reads one inbox from cursor to cursor, even across restarts of the node. It is not
// safe for concurrent use.
type Follower struct {
	client *Client
	inbox  string
	cursor string
}

// Follow makes a follower that starts at the inbox's first message.
func (c *Client) Follow(inbox string) *Follower { return &Follower{client: c, inbox: inbox} }

// Next reads the next messages. It waits for them at most for wait, and may return none. After
// an error the cursor is unchanged.
func (f *Follower) Next(wait time.Duration) ([]Arrival, error) {
	query := url.Values{"limit": {"1000"}, "after": {f.cursor}, "wait": {wait.String()}}
	a, err := f.client.Do(http.MethodGet, "/v1/inbox/"+f.inbox+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	if a.Code == http.StatusServiceUnavailable || a.Code == http.StatusGatewayTimeout {
		return nil, fmt.Errorf("%w: %s", errNotNow, a)
	}
	received := time.Now()
	var page struct {
		Messages   []Arrival
		NextCursor string
	}
	if err := json.Unmarshal(a.Body, &page); err != nil || a.Code != http.StatusOK {
		return nil, &BadAnswer{a}
	}
	for i := range page.Messages {
		page.Messages[i].ReceivedAt = received
	}
	f.cursor = page.NextCursor
	return page.Messages, nil
}

// errNotNow means that the same cursor may be asked for again, as if there were no answer.
var errNotNow = errors.New("the inbox cannot be read at present")

// BadAnswer is an answer after which a follower cannot go on.
type BadAnswer struct{ Answer Answer }

func (e *BadAnswer) Error() string { return fmt.Sprintf("the inbox was answered with %s", e.Answer) }

// Run passes every arrival to take, in order, until ctx ends; then it reads once more, to take
// what arrived before the end of ctx. While there is no node, or it is not ready, it keeps
// asking.
func (f *Follower) Run(ctx context.Context, take func(Arrival)) error {
	const longPoll = time.Second
	for ctx.Err() == nil {
		arrivals, err := f.Next(longPoll)
		if _, bad := err.(*BadAnswer); bad {
			return err
		}
		if err != nil {
			time.Sleep(again)
			continue
		}
		for _, a := range arrivals {
			take(a)
		}
	}
	return f.Rest(take)
}

const (
	again       = 5 * time.Millisecond // polls: a node gives no signal when it is back
	notNowLimit = time.Minute          // how long Rest waits for a node that runs but is not ready
)

// Rest takes what is left in the inbox.
func (f *Follower) Rest(take func(Arrival)) error {
	for begin := time.Now(); ; {
		arrivals, err := f.Next(0)
		if errors.Is(err, errNotNow) && time.Since(begin) < notNowLimit {
			time.Sleep(again)
			continue
		}
		if err != nil || len(arrivals) == 0 {
			return err
		}
		for _, a := range arrivals {
			take(a)
		}
	}
}
