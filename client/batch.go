package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/postdate/postdate"
)

// Result is the outcome of one item of many.
type Result struct {
	Scheduled
	Problem *Problem `json:"error"` // nil: success
}

// Err returns the problem as an error, or nil if there is none.
func (r *Result) Err() error {
	if r.Problem != nil {
		return r.Problem
	}
	return nil
}

// many is a call that takes many items.
type many struct {
	path, open, end string // the items' JSON goes between open and end
	itemsMax        int
	status          Status // of each item that succeeds; "": any
	once            bool   // not tried again once it may have been done
}

var (
	scheduleMany = many{path: "/v1/messages/batch", open: "[", end: "]", itemsMax: postdate.BatchItemsMax}
	cancelMany   = many{path: "/v1/messages/cancel", open: `{"scheduleIds":[`,
		end: "]}", itemsMax: postdate.CancelItemsMax, status: Cancelled}
	redriveMany = many{path: "/v1/messages/redrive", open: `{"scheduleIds":[`,
		end: "]}", itemsMax: postdate.CancelItemsMax, status: Pending}
	purgeMany = many{path: "/v1/messages/purge", open: `{"scheduleIds":[`,
		end: "]}", itemsMax: postdate.CancelItemsMax, status: DeliveryFailed, once: true}
)

// try makes the call once.
func (k *many) try(ctx context.Context, c *Client, items [][]byte) ([]Result, error) {
	body := append([]byte(k.open), bytes.Join(items, []byte(","))...)
	var answer struct {
		Results []Result `json:"results"`
	}
	server := c.Server()
	if _, err := c.try(ctx, Call{Method: http.MethodPost, Path: k.path, Body: append(body, k.end...)},
		&answer); err != nil {
		return nil, err
	}
	if len(answer.Results) != len(items) {
		return nil, garbled(server, true, fmt.Errorf("it has %d results for %d items", len(answer.Results), len(items)))
	}
	for n, r := range answer.Results {
		if r.Problem == nil && (r.Status == "" || k.status != "" && r.Status != k.status) {
			return nil, garbled(server, true, fmt.Errorf("result %d has neither a status that is possible nor an error",
				n))
		}
	}
	return answer.Results, nil
}

// ScheduleAll schedules up to 10,000 messages in one request. Each succeeds or fails alone
// and has its own result, in order. An error concerns all of them; the results then only have each ScheduleID.
func (c *Client) ScheduleAll(ctx context.Context, messages []Message) ([]Result, error) {
	items, ids := make([][]byte, len(messages)), make([]Result, len(messages))
	for n, m := range messages {
		named := m.named()
		item, err := named.encode()
		if err != nil {
			return nil, fmt.Errorf("message %d of %d: %w", n+1, len(messages), err)
		}
		items[n], ids[n].ScheduleID = item, named.ScheduleID
	}
	results, err := c.all(ctx, scheduleMany, items)
	if err != nil {
		return ids, err
	}
	return results, nil
}

// CancelAll cancels up to 10,000 messages in one request. A result without a problem gives
// the same guarantee as Cancel. An error concerns all of them.
func (c *Client) CancelAll(ctx context.Context, scheduleIDs []string) ([]Result, error) {
	return c.all(ctx, cancelMany, itemsOf(scheduleIDs))
}

// Redrive tries up to 10,000 messages again that failed. Each is PENDING then, due now and without attempts, or its
// result has a problem. One that is PENDING already stays as it is. An error concerns all of them.
func (c *Client) Redrive(ctx context.Context, scheduleIDs ...string) ([]Result, error) {
	return c.all(ctx, redriveMany, itemsOf(scheduleIDs))
}

// Purge deletes up to 10,000 messages that failed. Each is gone then, or its result has a problem. An error
// concerns all of them. If MayBeDone says so of it, a second call finds what is left.
func (c *Client) Purge(ctx context.Context, scheduleIDs ...string) ([]Result, error) {
	return c.all(ctx, purgeMany, itemsOf(scheduleIDs))
}

func itemsOf(scheduleIDs []string) [][]byte {
	items := make([][]byte, len(scheduleIDs))
	for n, id := range scheduleIDs {
		items[n], _ = json.Marshal(id) // a string always has a JSON form
	}
	return items
}

func (c *Client) all(ctx context.Context, k many, items [][]byte) (results []Result, err error) {
	err = c.retry(ctx, !k.once, func() error {
		results, err = k.try(ctx, c, items)
		return err
	})
	return results, err
}
