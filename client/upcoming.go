package client

import (
	"context"
	"net/url"
	"time"
)

// UpcomingRange is the time in which messages are due. A zero field has the server's default: from now on, for an
// hour, in about sixty slots.
type UpcomingRange struct {
	From, To time.Time
	Step     time.Duration // how long a slot is, at least a second; there are at most 500
	Channel  string        // only its messages
}

// UpcomingSlot says how many messages are due from From until the next slot begins; the last one ends with the range.
type UpcomingSlot struct {
	From  time.Time `json:"from"`
	Count int64     `json:"count"`
	Exact bool      `json:"exact"` // false: Count is an estimate

	// Channels are those of the ten with most in the whole range that have something in this slot, in the same order
	// in every slot. There are none if the range names a channel.
	Channels []UpcomingChannel `json:"channels"`
}

// UpcomingChannel is a part of an UpcomingSlot.
type UpcomingChannel struct {
	Channel string `json:"channel"`
	Count   int64  `json:"count"`
}

// Upcoming says how many messages are due when: at their next attempt, and of a series at its next occurrence. What is
// parked, and series that are paused, do not count.
func (c *Client) Upcoming(ctx context.Context, r UpcomingRange) ([]UpcomingSlot, error) {
	query := url.Values{}
	if !r.From.IsZero() {
		query.Set("from", r.From.Format(time.RFC3339Nano))
	}
	if !r.To.IsZero() {
		query.Set("to", r.To.Format(time.RFC3339Nano))
	}
	if r.Step != 0 {
		query.Set("step", r.Step.String())
	}
	if r.Channel != "" {
		query.Set("channel", r.Channel)
	}
	type upcoming struct {
		Slots []UpcomingSlot `json:"slots"`
	}
	u, err := get[upcoming](ctx, c, "/v1/upcoming?"+query.Encode())
	return u.Slots, err
}
