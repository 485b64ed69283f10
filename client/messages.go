package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/postdate/postdate"
)

// Status is the status of a message.
type Status string

// The statuses. Only PENDING ever changes.
const (
	Pending        Status = "PENDING"
	Delivered      Status = "DELIVERED"
	DeliveryFailed Status = "DELIVERY_FAILED"
	Cancelled      Status = "CANCELLED"

	Skipped Status = "SKIPPED" // only in a series' history
	Expired Status = "EXPIRED" // likewise: its own message has expired, and nobody knows how it ended
)

// Priority is a message's part of what goes out while more is overdue than its channel takes.
type Priority string

// The priorities. The server takes a message without one as medium.
const (
	PriorityHigh   Priority = "high"
	PriorityMedium Priority = "medium"
	PriorityLow    Priority = "low"
)

// Message is a message to schedule. Zero fields are left out of the request.
type Message struct {
	// ScheduleID is its name and idempotency key; "": the client makes one.
	ScheduleID    string            `json:"scheduleId,omitempty"`
	Channel       string            `json:"channel,omitempty"` // such as rabbitmq:orders or inbox:test
	ExecutionTime time.Time         `json:"executionTime,omitzero"`
	Delay         time.Duration     `json:"-"`                     // instead of ExecutionTime, from the arrival on
	Payload       []byte            `json:"-"`                     // the bytes that the consumer gets
	ContentType   string            `json:"contentType,omitempty"` // "": application/json
	Headers       map[string]string `json:"headers,omitempty"`
	Key           string            `json:"key,omitempty"` // Kafka's record key; "": the ScheduleID
	Priority      Priority          `json:"priority,omitempty"`
	Labels        []string          `json:"labels,omitempty"`     // to find messages by, at most eight
	Recurrence    *Recurrence       `json:"recurrence,omitempty"` // instead of a time; nil: it is sent once
	ExpiresAt     time.Time         `json:"expiresAt,omitzero"`
	Retry         *Retry            `json:"retry,omitempty"`
	// FailureChannel gets a message with the reason if this one cannot be delivered; "": the one that is set for
	// the channel does, if any.
	FailureChannel string `json:"failureChannel,omitempty"`

	// Traceparent is the W3C trace context that goes with the message. A call that has one
	// shares no request with others.
	Traceparent string `json:"-"`
	Tracestate  string `json:"-"` // what vendors add to Traceparent; it counts only with that
}

// Scheduled is the answer to a call that schedules or changes a message.
type Scheduled struct {
	ScheduleID    string    `json:"scheduleId"`
	Bucket        int       `json:"bucket"`
	ExecutionTime time.Time `json:"executionTime"` // as the first request resolved it
	Status        Status    `json:"status"`
	Ending        bool      `json:"ending"` // of a series: it was cancelled, and ends with what is on its way
	// Created is false if the message already existed. An earlier try of the same call may
	// have created it.
	Created bool `json:"created"`
}

// Record is a message with its state.
type Record struct {
	Message
	Bucket            int       `json:"bucket"`
	CreatedAt         time.Time `json:"createdAt"`
	MovedAt           time.Time `json:"movedAt"`   // when a client last changed ExecutionTime; zero: none did
	MovedFrom         time.Time `json:"movedFrom"` // the ExecutionTime before that
	Version           string    `json:"version"`   // another one after each change by a client: see IfVersion
	Status            Status    `json:"status"`
	Attempts          int       `json:"attempts"`
	NextAttemptAt     time.Time `json:"nextAttemptAt"` // while PENDING and not parked
	Parked            string    `json:"parked"`        // "": it does not wait for its channel to be up again
	DeliveredAt       time.Time `json:"deliveredAt"`
	FailedAt          time.Time `json:"failedAt"`
	CancelledAt       time.Time `json:"cancelledAt"`
	LastError         string    `json:"lastError"`
	PossibleDuplicate bool      `json:"possibleDuplicate"` // the consumer may have it already
	Series            *Series   `json:"series"`            // nil: it does not recur
	AttemptLog        []Attempt `json:"attemptLog"`        // the latest, the oldest first; List leaves it out
}

// Attempt is what came of one attempt to publish a message.
type Attempt struct {
	Time    time.Time `json:"time"` // when that was known
	Node    string    `json:"node"`
	Outcome string    `json:"outcome"` // delivered, refused, or unknown: it may have arrived
	Reason  string    `json:"reason"`  // the beginning of the broker's own words
}

// Change is what Patch changes. Zero fields leave the message's as they are.
type Change struct {
	ExecutionTime time.Time     // not of a series
	Delay         time.Duration // instead of ExecutionTime
	Payload       []byte
	ContentType   string // only together with a payload
	Channel       string
	Labels        []string // in place of all; empty and not nil: it has none from then on
	// FailureChannel, if it points to "", is removed.
	FailureChannel *string

	// Only of a series:
	Recurrence *Recurrence // replaces the whole rule: zero fields are removed
	Paused     *bool       // no occurrence begins until it is resumed
}

// IfVersion is a condition of a call: the message has this [Record.Version]. If it has another one, because
// somebody has changed it, the error is a problem of type PreconditionFailed, and nothing is done. Of several
// conditions, one is enough.
type IfVersion string

// ifMatch adds conditions to a request's header.
func ifMatch(header http.Header, conditions []IfVersion) http.Header {
	if len(conditions) == 0 {
		return header
	}
	if header == nil {
		header = http.Header{}
	}
	for _, version := range conditions {
		header.Add("If-Match", `"`+string(version)+`"`)
	}
	return header
}

// named returns m with an id, which it makes if m has none.
func (m Message) named() *Message {
	if m.ScheduleID == "" {
		m.ScheduleID = uuid.Must(uuid.NewV7()).String()
	}
	return &m
}

// messagePath returns the path of one message.
func messagePath(id string) string { return "/v1/messages/" + url.PathEscape(id) }

// checkID refuses an id that would turn the path into that of another call.
func checkID(id string, check func(string) error) error {
	if err := check(id); err != nil {
		return &Problem{Type: InvalidField, Title: "The schedule id is invalid", Status: http.StatusBadRequest,
			Detail: err.Error(), ScheduleID: id}
	}
	return nil
}

// Schedule schedules a message. A repeated ScheduleID with the same content gets the same
// answer as the first time; with other content, the error is a problem of type Exists.
// s.ScheduleID is also set if there is an error.
func (c *Client) Schedule(ctx context.Context, m Message) (s Scheduled, err error) {
	named := m.named()
	body, err := named.encode()
	if err != nil {
		return Scheduled{ScheduleID: named.ScheduleID}, err
	}
	err = c.retry(ctx, true, func() error {
		if m.Traceparent != "" {
			s, err = c.scheduleOnce(ctx, Call{Method: http.MethodPost, Path: "/v1/messages", Body: body,
				Header: named.trace()})
		} else {
			s, err = c.schedules.call(ctx, named.ScheduleID, body)
		}
		return err
	})
	s.ScheduleID = named.ScheduleID
	return s, err
}

// scheduleOnce makes one try of a call whose answer is a Scheduled.
func (c *Client) scheduleOnce(ctx context.Context, call Call) (s Scheduled, err error) {
	server := c.Server()
	a, err := c.try(ctx, call, &s)
	if err == nil && s.Status == "" {
		return s, garbled(server, true, errors.New("it has no status"))
	}
	s.Created = a.Status == http.StatusCreated
	return s, err
}

func (m *Message) trace() http.Header {
	if m.Traceparent == "" {
		return nil
	}
	h := http.Header{"Traceparent": {m.Traceparent}}
	if m.Tracestate != "" {
		h.Set("Tracestate", m.Tracestate)
	}
	return h
}

// change makes a call about a message, which is not repeatable. The message's path comes before call.Path.
func (c *Client) change(ctx context.Context, id string, call Call) (s Scheduled, err error) {
	if err := checkID(id, postdate.CheckScheduleID); err != nil {
		return s, err
	}
	call.Path = messagePath(id) + call.Path
	err = c.retry(ctx, false, func() error {
		s, err = c.scheduleOnce(ctx, call)
		return err
	})
	return s, err
}

// Put creates the message with this ScheduleID, or replaces it while it is PENDING. With a condition it only
// replaces. Where the message is what m says already, it succeeds whatever the version is; so a Put whose
// outcome is unknown can be repeated with the same condition.
func (c *Client) Put(ctx context.Context, m Message, conditions ...IfVersion) (Scheduled, error) {
	body, err := m.encode()
	if err != nil {
		return Scheduled{}, err
	}
	return c.change(ctx, m.ScheduleID, Call{Method: http.MethodPut, Body: body, Header: ifMatch(m.trace(), conditions)})
}

// Patch changes a message while it is PENDING. Success is a guarantee: the message is
// delivered as changed, not as it was.
//
// A series is changed from the next occurrence on, and keeps its counts and history. While an occurrence is on
// its way, the server waits up to a second for that; then the error is a problem of type TooLate.
func (c *Client) Patch(ctx context.Context, scheduleID string, change Change, conditions ...IfVersion) (Scheduled,
	error) {
	body, err := change.encode()
	if err != nil {
		return Scheduled{}, err
	}
	return c.change(ctx, scheduleID, Call{Method: http.MethodPatch, Body: body, Header: ifMatch(nil, conditions)})
}

// Move is Patch for another time alone. A [Change] has a Delay, too, which counts from the arrival on.
func (c *Client) Move(ctx context.Context, scheduleID string, to time.Time, conditions ...IfVersion) (Scheduled,
	error) {
	return c.Patch(ctx, scheduleID, Change{ExecutionTime: to}, conditions...)
}

// PauseSeries pauses a series. An occurrence that is on its way may still come; no other begins until the
// series is resumed.
func (c *Client) PauseSeries(ctx context.Context, scheduleID string) error {
	return c.pauseSeries(ctx, scheduleID, true)
}

// ResumeSeries lets a paused series go on with the first occurrence after now. Those that it missed are
// skipped.
func (c *Client) ResumeSeries(ctx context.Context, scheduleID string) error {
	return c.pauseSeries(ctx, scheduleID, false)
}

func (c *Client) pauseSeries(ctx context.Context, scheduleID string, paused bool) error {
	_, err := c.Patch(ctx, scheduleID, Change{Paused: &paused})
	return err
}

// Trigger begins an occurrence of a series out of turn, also while it is paused. That occurrence is a message of
// its own, whose id is in the answer. Each call begins another one: after an unknown outcome, the History of
// the series says whether it was begun.
func (c *Client) Trigger(ctx context.Context, scheduleID string, conditions ...IfVersion) (Scheduled, error) {
	return c.change(ctx, scheduleID, Call{Method: http.MethodPost, Path: "/trigger", Header: ifMatch(nil, conditions)})
}

// Cancel cancels a message. Nil is a guarantee: the message is never delivered. If delivery
// may have begun, the error is a problem of type TooLate.
//
// If the message recurs, Cancel ends the series. Nil then means that nothing of it is begun any more;
// TooLate, that an occurrence may be under way. Cancel again tells when that is over; it stays TooLate where
// an attempt at the last occurrence has an unknown outcome.
//
// The id of an occurrence of a series that is retried, or was triggered, works too, here and in Get. List shows
// it.
func (c *Client) Cancel(ctx context.Context, scheduleID string) error {
	if err := checkID(scheduleID, postdate.CheckMessageID); err != nil {
		return err
	}
	body, _ := json.Marshal(scheduleID) // a string always has a JSON form
	return c.retry(ctx, true, func() error {
		s, err := c.cancels.call(ctx, scheduleID, body)
		if err == nil && s.Status != Cancelled {
			return garbled(c.Server(), true, fmt.Errorf("it says %s of a message that was cancelled", s.Status))
		}
		return err
	})
}

// Get reads a message.
func (c *Client) Get(ctx context.Context, scheduleID string) (Record, error) {
	if err := checkID(scheduleID, postdate.CheckMessageID); err != nil {
		return Record{}, err
	}
	return get[Record](ctx, c, messagePath(scheduleID))
}

// Filter selects messages: those that pass all of its fields. A zero field matches every message.
type Filter struct {
	Status   Status
	Channel  string
	Label    string
	IDPrefix string    // how the ScheduleID begins
	From     time.Time // execution time at least this
	To       time.Time // execution time below this
	PageSize int       // messages in one answer; 0: 1,000, which is also the maximum

	// Recurring is true for those with a Recurrence, also if they have ended, and false for those without; nil: both.
	Recurring *bool
}

// List reads messages page by page, in the order of their execution times. It ends with the
// first error.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[Record, error] {
	query := url.Values{"limit": {strconv.Itoa(postdate.ListLimitMax)}}
	set := func(name, value string, given bool) {
		if given {
			query.Set(name, value)
		}
	}
	set("limit", strconv.Itoa(f.PageSize), f.PageSize != 0)
	set("status", string(f.Status), f.Status != "")
	set("channel", f.Channel, f.Channel != "")
	set("label", f.Label, f.Label != "")
	set("idPrefix", f.IDPrefix, f.IDPrefix != "")
	if f.Recurring != nil {
		query.Set("recurring", strconv.FormatBool(*f.Recurring))
	}
	set("from", f.From.Format(time.RFC3339Nano), !f.From.IsZero())
	set("to", f.To.Format(time.RFC3339Nano), !f.To.IsZero())
	type page struct {
		Messages   []Record `json:"messages"`
		NextCursor string   `json:"nextCursor"`
	}
	return func(yield func(Record, error) bool) {
		for query := maps.Clone(query); ; {
			p, err := get[page](ctx, c, "/v1/messages?"+query.Encode())
			if err != nil {
				yield(Record{}, err)
				return
			}
			for _, r := range p.Messages {
				if !yield(r, nil) {
					return
				}
			}
			if p.NextCursor == "" {
				return
			}
			query.Set("cursor", p.NextCursor)
		}
	}
}
