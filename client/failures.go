package client

import (
	"context"
	"net/url"
	"time"
)

// FailureFilter selects messages that failed. A zero field matches every message.
type FailureFilter struct {
	Channel string
	From    time.Time // execution time at least this
	To      time.Time // execution time below this
}

// Failures are messages that failed, in groups.
type Failures struct {
	Groups []FailureGroup `json:"groups"` // the largest first, and at most 200
	Exact  bool           `json:"exact"`  // false: more messages have failed, or there are more groups
}

// FailureGroup are messages that failed on a channel with the same error.
type FailureGroup struct {
	Channel       string    `json:"channel"`
	LastError     string    `json:"lastError"`
	Count         int64     `json:"count"`
	Exact         bool      `json:"exact"` // false: there may be more
	FirstFailedAt time.Time `json:"firstFailedAt"`
	LastFailedAt  time.Time `json:"lastFailedAt"`
	Example       string    `json:"example"` // the ScheduleID of the one that failed last
}

// Failures groups messages that failed by their channels and errors. The server looks at 10,000 of those between From
// and To at most, in the order of their execution times.
func (c *Client) Failures(ctx context.Context, f FailureFilter) (Failures, error) {
	query := url.Values{}
	if f.Channel != "" {
		query.Set("channel", f.Channel)
	}
	if !f.From.IsZero() {
		query.Set("from", f.From.Format(time.RFC3339Nano))
	}
	if !f.To.IsZero() {
		query.Set("to", f.To.Format(time.RFC3339Nano))
	}
	return get[Failures](ctx, c, "/v1/failures?"+query.Encode())
}
