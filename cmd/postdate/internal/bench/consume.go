package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/publisher"
)

// consumer gets the messages that arrive on the channel.
type consumer interface {
	// consume passes receipts on until ctx ends, and then returns nil.
	consume(ctx context.Context, receive func(receipt)) error
	close()
}

func openConsumer(ctx context.Context, c Config, load *loader) (consumer, error) {
	broker, target, _ := strings.Cut(c.Channel, ":")
	if broker == "inbox" {
		return openInbox(ctx, load, target)
	}
	return openQueue(c.RabbitMQ, target)
}

// inbox reads an inbox by long polling.
type inbox struct {
	load   *loader
	path   string
	cursor string
}

const (
	inboxLimit = "1000"
	// inboxWait is short, because a reader notices the end only after it.
	inboxWait = time.Second
)

// openInbox skips what the inbox already holds.
func openInbox(ctx context.Context, load *loader, name string) (*inbox, error) {
	in := &inbox{load: load, path: "/v1/inbox/" + url.PathEscape(name)}
	for {
		page, err := in.read(ctx, 0)
		if err != nil || len(page.Messages) == 0 {
			return in, err
		}
	}
}

type inboxPage struct {
	Messages []struct {
		ScheduleID        string `json:"scheduleId"`
		PossibleDuplicate bool   `json:"possibleDuplicate"`
	} `json:"messages"`
	NextCursor string    `json:"nextCursor"`
	at         time.Time // when it was received, before it was decoded
}

// read reads the next page and advances the cursor.
func (in *inbox) read(ctx context.Context, wait time.Duration) (page inboxPage, err error) {
	query := url.Values{"limit": {inboxLimit}}
	if wait > 0 {
		query.Set("wait", wait.String())
	}
	if in.cursor != "" {
		query.Set("after", in.cursor)
	}
	err = in.load.do(ctx, http.MethodGet, in.path+"?"+query.Encode(), nil, func(body []byte) error {
		page.at = time.Now()
		return json.Unmarshal(body, &page)
	})
	if err == nil && page.NextCursor != "" {
		in.cursor = page.NextCursor
	}
	return page, err
}

func (in *inbox) consume(ctx context.Context, receive func(receipt)) error {
	for ctx.Err() == nil {
		page, err := in.read(ctx, inboxWait)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			receive(receipt{id: m.ScheduleID, at: page.at, possibleDuplicate: m.PossibleDuplicate})
		}
	}
	return nil
}

func (in *inbox) close() {}

// queue consumes a queue in RabbitMQ.
type queue struct {
	conn       *amqp.Connection
	name       string
	ours       bool // created here: deleted at the end
	channels   []*amqp.Channel
	deliveries []<-chan amqp.Delivery
}

const (
	queueConsumers = 4
	queuePrefetch  = 250
	// queueAckEvery is well below the prefetch, so that a consumer never waits for its own
	// acknowledgement.
	queueAckEvery = 50
)

// openQueue declares the queue, if there is none, and consumes it.
func openQueue(address, name string) (*queue, error) {
	conn, err := amqp.Dial(address)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to RabbitMQ: %w", err)
	}
	q := &queue{conn: conn, name: name}
	err = q.declare()
	for range queueConsumers {
		if err == nil {
			err = q.addConsumer()
		}
	}
	if err != nil {
		q.close()
		return nil, fmt.Errorf("cannot use the queue %s: %w", name, err)
	}
	return q, nil
}

func (q *queue) declare() error {
	ch, err := q.conn.Channel()
	if err != nil {
		return err
	}
	const durable, autoDelete, exclusive, noWait = true, false, false, false
	_, err = ch.QueueDeclarePassive(q.name, durable, autoDelete, exclusive, noWait, nil)
	if err == nil {
		return ch.Close()
	}
	// Asking for a missing queue closes the channel.
	if ch, err = q.conn.Channel(); err != nil {
		return err
	}
	if _, err = ch.QueueDeclare(q.name, durable, autoDelete, exclusive, noWait, nil); err != nil {
		return err
	}
	q.ours = true
	return ch.Close()
}

func (q *queue) addConsumer() error {
	ch, err := q.conn.Channel()
	if err != nil {
		return err
	}
	if err := ch.Qos(queuePrefetch, 0, false); err != nil {
		return err
	}
	const autoAck, exclusive, noLocal, noWait = false, false, false, false
	deliveries, err := ch.Consume(q.name, "", autoAck, exclusive, noLocal, noWait, nil)
	if err != nil {
		return err
	}
	q.channels = append(q.channels, ch)
	q.deliveries = append(q.deliveries, deliveries)
	return nil
}

func (q *queue) consume(ctx context.Context, receive func(receipt)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var consumers sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for _, deliveries := range q.deliveries {
		consumers.Go(func() {
			if err := consumeOne(ctx, deliveries, receive); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
				stop(err)
			}
		})
	}
	consumers.Wait()
	return failed
}

func consumeOne(ctx context.Context, deliveries <-chan amqp.Delivery, receive func(receipt)) error {
	const multiple = true
	var open int
	var last amqp.Delivery
	for {
		select {
		case <-ctx.Done():
			if open > 0 {
				return last.Ack(multiple)
			}
			return nil
		case d, ok := <-deliveries:
			if !ok {
				return errors.New("the connection to RabbitMQ was closed")
			}
			_, marked := d.Headers[publisher.HeaderPossibleDuplicate]
			receive(receipt{id: d.MessageId, at: time.Now(), possibleDuplicate: marked})
			last = d
			if open++; open == queueAckEvery {
				open = 0
				if err := d.Ack(multiple); err != nil {
					return err
				}
			}
		}
	}
}

// close deletes the queue if it was created here. An error does not affect what was measured.
func (q *queue) close() {
	if ch, err := q.conn.Channel(); err == nil && q.ours {
		const ifUnused, ifEmpty, noWait = false, false, false
		_, _ = ch.QueueDelete(q.name, ifUnused, ifEmpty, noWait)
	}
	_ = q.conn.Close()
}
