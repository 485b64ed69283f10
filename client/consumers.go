package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/postdate/postdate"
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
func (m *ReceivedMessage) UnmarshalJSON(b []byte) error {
	var delivery struct {
		Receipt    string
		Deliveries int
	}
	if err := json.Unmarshal(b, &delivery); err != nil {
		return err
	}
	m.Receipt, m.Deliveries = delivery.Receipt, delivery.Deliveries
	return json.Unmarshal(b, &m.InboxMessage)
}

// Receive receives messages from inbox:name for a consumer, for which the server keeps how far it has
// come. Those that receive for the same consumer share its messages. What is not acknowledged comes again
// after its visibility; so does what came with an answer that was lost.
func (c *Client) Receive(ctx context.Context, name, consumer string, receive InboxReceive) ([]ReceivedMessage, error) {
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
	_, err := c.do(ctx, Call{Method: http.MethodPost, Path: consumerPath(name, consumer) + "/receive", Body: text,
		Repeatable: true, Wait: receive.Wait}, &answer)
	return answer.Messages, err
}

// AckResult is what became of one receipt.
type AckResult struct {
	Receipt string   `json:"receipt"`
	Problem *Problem `json:"error"` // nil: the consumer does not receive the message again
}

// Err returns the problem as an error, or nil if there is none. One of type ReceiptOutdated says that the
// message was received again.
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

// Consume receives messages from inbox:name for a consumer, one batch after the other, and handles each with
// handle. It acknowledges those of a batch for which handle returned nil, at the end of the batch; the others
// come again after their visibility, here or at another worker. The context of handle ends with the
// visibility, and what is not begun by then is left. Consume ends with the first error of a call, at the
// latest when ctx ends; what was handled is acknowledged then, too. Wait is always 30 s.
func (c *Client) Consume(ctx context.Context, name, consumer string, receive InboxReceive,
	handle func(context.Context, ReceivedMessage) error) error {
	receive.Wait = postdate.InboxWaitMax
	if receive.Limit == 0 {
		receive.Limit = consumeLimit
	}
	if receive.Visibility == 0 {
		receive.Visibility = visibilityDefault
	}
	for {
		messages, err := c.Receive(ctx, name, consumer, receive)
		if err != nil {
			return err
		}
		if err := c.handleAll(ctx, name, consumer, receive.Visibility, messages, handle); err != nil {
			return err
		}
	}
}

// visibilityDefault is that of the server.
const visibilityDefault = 30 * time.Second

// handleAll handles one batch and acknowledges it.
func (c *Client) handleAll(ctx context.Context, name, consumer string, visibility time.Duration,
	messages []ReceivedMessage, handle func(context.Context, ReceivedMessage) error) error {
	limited, cancel := context.WithTimeout(ctx, visibility)
	defer cancel()
	var handled []string
	for _, m := range messages {
		if limited.Err() != nil {
			break
		}
		if handle(limited, m) == nil {
			handled = append(handled, m.Receipt)
		}
	}
	if len(handled) == 0 {
		return nil
	}
	_, err := c.Ack(context.WithoutCancel(ctx), name, consumer, handled) // that of an old receipt came again
	return err
}

func consumerPath(name, consumer string) string {
	return "/v1/inbox/" + url.PathEscape(name) + "/consumers/" + url.PathEscape(consumer)
}
