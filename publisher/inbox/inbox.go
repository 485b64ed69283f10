// Package inbox publishes to the built-in inbox, which is kept in the node's own store, and
// lets readers and consumers wait for messages.
//
// A confirmed message is as durable as the store makes it. A store that can ([store.Deliverer]) also
// settles it in the same step. A reader that goes on from cursor to cursor sees every message, in the
// order in which they were appended. A consumer receives each message until it acknowledges it.
package inbox

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// PollInterval is how long a waiting reader may miss what another node appended. What this node
// appends wakes it immediately.
const PollInterval = 250 * time.Millisecond

// Box is the part of a store that keeps inboxes and their consumers.
type Box interface {
	store.Inbox
	store.Consumers
}

// Publisher appends to inboxes. It implements publisher.Publisher, and is safe
// for concurrent use.
type Publisher struct {
	box       Box
	deliverer store.Deliverer // delivers and settles in one step; nil: the store cannot
	now       func() postdate.Time
	log       *slog.Logger
	failed    rate.Sometimes // says what the store's trouble is

	gate *publisher.Gate // for Publish and its appends; readers return when it is closed

	mu    sync.Mutex
	bells map[name]*bell
	turns map[store.ConsumerName]*turn
}

var _ publisher.Publisher = (*Publisher)(nil)

type name struct{ tenant, inbox string }

// bell wakes the readers of one inbox. It exists only while there are any.
type bell struct {
	rung    chan struct{} // closed and replaced when something is appended
	readers int
}

// failedEvery is how often the log says that the store fails.
const failedEvery = time.Minute

// New makes a publisher that appends to box. The time of delivery is that of now. Deliver needs deliverer, which
// may be nil.
func New(box Box, deliverer store.Deliverer, now func() postdate.Time, log *slog.Logger) *Publisher {
	return &Publisher{box: box, deliverer: deliverer, now: now, log: log, failed: rate.Sometimes{Interval: failedEvery},
		gate: publisher.NewGate(), bells: map[name]*bell{}, turns: map[store.ConsumerName]*turn{}}
}

// Check implements publisher.Publisher.
func (p *Publisher) Check(channel postdate.Channel) error {
	if channel.Broker() != "inbox" {
		return postdate.E(postdate.KindInvalid, "channel %q is not an inbox: write inbox:name", channel)
	}
	_, err := postdate.ParseChannel(string(channel))
	return err
}

// Publish implements publisher.Publisher. If the store does not answer before ctx ends, the
// outcome is Unknown.
func (p *Publisher) Publish(ctx context.Context, channel postdate.Channel,
	batch []postdate.Delivery) []publisher.Result {
	return p.within(ctx, channel, len(batch), func() []publisher.Result {
		return p.publish(ctx, channel.Target(), batch)
	})
}

// Deliver is Publish and the settlement of what is confirmed, one per message, in one atomic step for each.
// Confirmed ones are Settled. A message that its settlement does not change, because it is settled or replaced, is
// not appended, and counts as confirmed.
func (p *Publisher) Deliver(ctx context.Context, channel postdate.Channel, batch []postdate.Delivery,
	settlements []store.Settlement) []publisher.Result {
	return p.within(ctx, channel, len(batch), func() []publisher.Result {
		return p.deliver(ctx, channel.Target(), batch, settlements)
	})
}

// within runs do for n messages, until it ends or ctx does: the store may hang on its disk, where ctx does not
// reach it.
func (p *Publisher) within(ctx context.Context, channel postdate.Channel, n int,
	do func() []publisher.Result) []publisher.Result {
	if err := p.Check(channel); err != nil {
		return publisher.All(n, publisher.Result{Outcome: publisher.Refused, Reason: err.Error(), Permanent: true})
	}
	if n == 0 {
		return nil
	}
	if !p.gate.Enter() {
		return publisher.All(n, publisher.Result{Outcome: publisher.Down, Reason: "the inbox is closed"})
	}
	if ctx.Err() != nil {
		p.gate.Leave()
		return publisher.All(n, publisher.Result{Outcome: publisher.Down,
			Reason: "the node stopped waiting before the message was appended"})
	}
	answer := make(chan []publisher.Result, 1)
	go func() {
		defer p.gate.Leave()
		answer <- do()
	}()
	select {
	case results := <-answer:
		return results
	case <-ctx.Done():
		return publisher.All(n, publisher.Result{Outcome: publisher.Unknown,
			Reason: "the store did not answer in time"})
	}
}

// deliver appends the messages and settles them.
func (p *Publisher) deliver(ctx context.Context, inbox string, batch []postdate.Delivery,
	settlements []store.Settlement) []publisher.Result {
	at := p.now()
	deliveries := make([]store.InboxDelivery, len(batch))
	for i := range batch {
		deliveries[i] = store.InboxDelivery{Message: inboxMessage(inbox, &batch[i], at), Settlement: settlements[i]}
	}
	results := make([]publisher.Result, len(batch))
	var rung name
	for i, err := range p.deliverer.Deliver(ctx, deliveries) {
		results[i] = resultOf(err)
		results[i].Settled = err == nil
		if n := (name{batch[i].Message.Tenant, inbox}); n != rung && mayBeThere(results[i]) {
			p.ring(n)
			rung = n
		}
		p.warn(results[i], err)
	}
	return results
}

// publish appends the messages of each tenant in one write.
func (p *Publisher) publish(ctx context.Context, inbox string, batch []postdate.Delivery) []publisher.Result {
	results := make([]publisher.Result, len(batch))
	places := make([]int, len(batch))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int {
		return strings.Compare(batch[a].Message.Tenant, batch[b].Message.Tenant)
	})
	at := p.now()
	for len(places) > 0 {
		tenant := batch[places[0]].Message.Tenant
		n := slices.IndexFunc(places, func(i int) bool { return batch[i].Message.Tenant != tenant })
		if n < 0 {
			n = len(places)
		}
		messages := make([]store.InboxMessage, n)
		for i, place := range places[:n] {
			messages[i] = inboxMessage(inbox, &batch[place], at)
		}
		for i, r := range p.append(ctx, messages) {
			results[places[i]] = r
		}
		places = places[n:]
	}
	return results
}

// append appends one tenant's messages to one inbox. They succeed or fail together, but a
// message that the store refuses fails alone.
func (p *Publisher) append(ctx context.Context, messages []store.InboxMessage) []publisher.Result {
	err := p.box.AppendInbox(ctx, messages)
	r := resultOf(err)
	if r.Outcome == publisher.Refused && len(messages) > 1 {
		results := make([]publisher.Result, 0, len(messages))
		for i := range messages {
			results = append(results, p.append(ctx, messages[i:i+1])...)
		}
		return results
	}
	if mayBeThere(r) {
		p.ring(name{messages[0].Tenant, messages[0].Inbox})
	}
	p.warn(r, err)
	return publisher.All(len(messages), r)
}

// mayBeThere reports whether a message may be in its inbox.
func mayBeThere(r publisher.Result) bool {
	return r.Outcome == publisher.Confirmed || r.Outcome == publisher.Unknown
}

// warn logs that the store fails.
func (p *Publisher) warn(r publisher.Result, err error) {
	if r.Outcome == publisher.Down || r.Outcome == publisher.Unknown {
		p.failed.Do(func() { p.log.Warn("the store fails to append to an inbox; trying again", "error", err) })
	}
}

// resultOf turns an append's error into a result. The outcome is unknown unless the error says
// that nothing was done. The reason has the store's words only where they are about the message:
// the others may tell a tenant the store's addresses.
func resultOf(err error) publisher.Result {
	if err == nil {
		return publisher.Result{Outcome: publisher.Confirmed}
	}
	switch postdate.KindOf(err) {
	case postdate.KindUnavailable, postdate.KindFull:
		return publisher.Result{Outcome: publisher.Down, Reason: "the store takes nothing at present"}
	case postdate.KindInvalid, postdate.KindTooLarge:
		return publisher.Result{Outcome: publisher.Refused, Reason: err.Error(), Permanent: true}
	}
	return publisher.Result{Outcome: publisher.Unknown, Reason: "the store does not say whether it has the message"}
}

func inboxMessage(inbox string, d *postdate.Delivery, at postdate.Time) store.InboxMessage {
	m := d.Message
	headers := slices.Collect(publisher.ClientHeaders(m))
	if m.Traceparent != "" {
		for name, value := range publisher.TraceHeaders(m) {
			headers = append(headers, postdate.Header{Name: name, Value: value})
		}
		postdate.SortHeaders(headers)
	}
	return store.InboxMessage{
		Tenant: m.Tenant, Inbox: inbox, ScheduleID: m.SeriesID(),
		ExecutionTime: m.ExecutionTime, DeliveredAt: at,
		Attempt: d.Attempt, PossibleDuplicate: d.PossibleDuplicate,
		ContentType: m.ContentType, Encoding: m.Encoding, Payload: m.Payload, Headers: headers,
	}
}

// Close implements publisher.Publisher. Waiting readers return empty.
func (p *Publisher) Close(ctx context.Context) error { return p.gate.Close(ctx, "the inbox") }
