package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// InboxReceive says what to receive for a consumer of an inbox.
type InboxReceive struct {
	Limit int           // how many messages at most; 0: 100; at most 1,000
	Wait  time.Duration // how long to wait for a message if there is none; at most 30 s
	// Visibility is how long nobody else receives the messages: longer than it takes to handle all of
	// them. Between 1 s and 12 h; 0: 30 s.
	Visibility time.Duration
}

// ReceivedMessage is a message as a consumer receives it. From its second delivery on it is a
// PossibleDuplicate.
type ReceivedMessage struct {
	InboxMessage
	Receipt    string `json:"receipt"`    // for Ack
	Deliveries int    `json:"deliveries"` // how often the consumer received it, this time included
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *ReceivedMessage) UnmarshalJSON(b []byte) (err error) {
	type fields InboxMessage // without its method
	wire := struct {
		*fields
		payloadWire
		Receipt    *string `json:"receipt"`
		Deliveries *int    `json:"deliveries"`
	}{fields: (*fields)(&m.InboxMessage), Receipt: &m.Receipt, Deliveries: &m.Deliveries}
	if err := json.Unmarshal(b, &wire); err != nil {
		return err
	}
	m.Payload, err = wire.bytes(m.ContentType)
	return err
}

// Receive receives messages from inbox:name for a consumer, for which the server keeps how far it has
// come. Those that receive for the same consumer share its messages. What is not acknowledged comes again
// after its visibility; so does what came with an answer that was lost, or that came after ctx ended.
func (c *Client) Receive(ctx context.Context, name, consumer string, receive InboxReceive) ([]ReceivedMessage, error) {
	messages, _, err := c.receive(ctx, name, consumer, receive)
	return messages, err
}

// receive also returns when it asked for what it received: the messages are hidden from then on, or from later on.
func (c *Client) receive(ctx context.Context, name, consumer string,
	receive InboxReceive) ([]ReceivedMessage, time.Time, error) {
	body := map[string]any{"wait": receive.Wait.String()}
	if receive.Limit != 0 {
		body["limit"] = receive.Limit
	}
	if receive.Visibility != 0 {
		body["visibility"] = receive.Visibility.String()
	}
	text, _ := json.Marshal(body) // strings and a number always have a JSON form
	var answer struct {
		Messages []ReceivedMessage `json:"messages"`
	}
	a, err := c.do(ctx, Call{Method: http.MethodPost, Path: consumerPath(name, consumer) + "/receive", Body: text,
		Repeatable: true, Wait: receive.Wait}, &answer)
	return answer.Messages, a.asked, err
}

// AckResult is what became of one receipt.
type AckResult struct {
	Receipt string   `json:"receipt"`
	Problem *Problem `json:"error"` // nil: the consumer does not receive the message again
}

// Err returns the problem as an error, or nil if there is none. One of type ReceiptOutdated says that the
// message was received again since, or that the consumer was forgotten.
func (r *AckResult) Err() error {
	if r.Problem != nil {
		return r.Problem
	}
	return nil
}

// Ack acknowledges up to 1,000 messages that a consumer has handled. Each receipt succeeds or fails alone and
// has its own result, in order. An error concerns all of them. Acknowledging twice is fine.
func (c *Client) Ack(ctx context.Context, name, consumer string, receipts []string) ([]AckResult, error) {
	if receipts == nil {
		receipts = []string{}
	}
	text, _ := json.Marshal(map[string][]string{"receipts": receipts}) // strings always have a JSON form
	var answer struct {
		Results []AckResult `json:"results"`
	}
	server := c.Server()
	_, err := c.do(ctx, Call{Method: http.MethodPost, Path: consumerPath(name, consumer) + "/ack", Body: text,
		Repeatable: true}, &answer)
	if err == nil && len(answer.Results) != len(receipts) {
		err = garbled(server, true, fmt.Errorf("it has %d results for %d receipts", len(answer.Results), len(receipts)))
	}
	return answer.Results, err
}

// consumeLimit is how many messages Consume receives at a time if it is not told: few, because one that
// waits behind slow ones is hidden from other workers.
const consumeLimit = 10

const (
	// consumeWait is how long Consume lets a receive wait: what an answer brings that nobody gets any more,
	// as the worker has ended, comes late, so it waits less than it might.
	consumeWait = 5 * time.Second
	// ackAfter is how long the acknowledgement of what was handled may wait for the rest of a batch.
	ackAfter = time.Second
	// visibilityDefault is that of the server.
	visibilityDefault = 30 * time.Second
)

// Consume receives messages from inbox:name for a consumer, one batch after the other, and handles each with
// handle. It acknowledges those for which handle returned nil, at the end of the batch and after each message
// that takes more than a second; the others come again after their visibility, here or at another worker. The
// context of handle ends after three quarters of the visibility, so that there is time to acknowledge; what is
// not begun by then is left. Consume ends when ctx ends, and what was handled is acknowledged then, too. While
// no server answers, or the answer is that of a fault (5xx), it goes on trying; it ends with any other problem.
// What comes again or fails, and why, is in Config.Log. Wait is not used: Consume waits for 5 s at a time, or for a
// quarter of the visibility if that is shorter.
func (c *Client) Consume(ctx context.Context, name, consumer string, receive InboxReceive,
	handle func(context.Context, ReceivedMessage) error) error {
	if receive.Limit == 0 {
		receive.Limit = consumeLimit
	}
	if receive.Visibility == 0 {
		receive.Visibility = visibilityDefault
	}
	receive.Wait = min(consumeWait, receive.Visibility/4)
	w := worker{Client: c, log: c.config.Log.With("inbox", name, "consumer", consumer), name: name,
		consumer: consumer, handle: handle}
	for {
		messages, asked, err := c.receive(ctx, name, consumer, receive)
		if err == nil {
			err = w.handleAll(ctx, messages, asked.Add(receive.Visibility*3/4))
		}
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil || !mayPass(err):
			return err
		}
		w.log.Warn("nothing can be received or acknowledged now: it is tried again", "error", err)
		select {
		case <-time.After(max(pauseMax, retryAfter(err))):
		case <-ctx.Done():
		}
	}
}

// mayPass says whether what ails the servers may be over some day, without a change here.
func mayPass(err error) bool {
	var lost *NoAnswer
	var p *Problem
	return passing(err) || errors.As(err, &lost) || errors.As(err, &p) && p.Status >= http.StatusInternalServerError
}

// worker is one call of Consume.
type worker struct {
	*Client
	log            *slog.Logger
	name, consumer string
	handle         func(context.Context, ReceivedMessage) error
}

// handleAll handles one batch until a time, and acknowledges it.
func (w *worker) handleAll(ctx context.Context, messages []ReceivedMessage, until time.Time) error {
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var handled []ReceivedMessage
	acked := time.Now()
	for i, m := range messages {
		if limited.Err() != nil {
			w.log.Warn("messages come again: there was no time to handle them; choose a longer visibility or a "+
				"smaller limit", "messages", len(messages)-i)
			break
		}
		if err := w.handle(limited, m); err != nil {
			w.comesAgain(&m, err)
		} else {
			handled = append(handled, m)
		}
		if time.Since(acked) > ackAfter {
			if err := w.ack(ctx, handled); err != nil {
				return err
			}
			handled, acked = nil, time.Now()
		}
	}
	return w.ack(ctx, handled)
}

// ack acknowledges messages, although ctx may have ended.
func (w *worker) ack(ctx context.Context, handled []ReceivedMessage) error {
	if len(handled) == 0 {
		return nil
	}
	receipts := make([]string, len(handled))
	for i := range handled {
		receipts[i] = handled[i].Receipt
	}
	results, err := w.Ack(context.WithoutCancel(ctx), w.name, w.consumer, receipts)
	if err != nil {
		return err
	}
	for i := range results {
		if err := results[i].Err(); err != nil {
			w.comesAgain(&handled[i], fmt.Errorf("it was handled, but not acknowledged: %w", err))
		}
	}
	return nil
}

func (w *worker) comesAgain(m *ReceivedMessage, err error) {
	w.log.Warn("a message comes again", "scheduleId", m.ScheduleID, "deliveries", m.Deliveries, "error", err)
}

func consumerPath(name, consumer string) string {
	return "/v1/inbox/" + url.PathEscape(name) + "/consumers/" + url.PathEscape(consumer)
}
