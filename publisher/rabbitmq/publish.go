package rabbitmq

import (
	"context"
	"errors"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// call is one Publish in progress. Its own goroutine waits for its confirms: there is no
// goroutine per message, and no call waits for another.
type call struct {
	p     *Publisher
	lane  *lane
	items []item
	bell  chan struct{}
}

// Publish implements publisher.Publisher.
func (p *Publisher) Publish(ctx context.Context, channel postdate.Channel,
	batch []postdate.Delivery) []publisher.Result {
	to, err := parseTarget(channel)
	if err != nil {
		return publisher.All(len(batch), publisher.Result{Outcome: publisher.Refused, Reason: err.Error(),
			Permanent: true})
	}
	if !p.gate.Enter() {
		return p.metrics.outcomes.Count(publisher.All(len(batch),
			publisher.Result{Outcome: publisher.Down, Reason: "the publisher is closed"}))
	}
	defer p.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	c := &call{p: p, items: make([]item, len(batch)), bell: make(chan struct{}, 1)}
	c.prepare(to, batch)
	if down := c.enqueue(to.exchange); down != "" {
		return p.metrics.outcomes.Count(publisher.All(len(batch),
			publisher.Result{Outcome: publisher.Down, Reason: publisher.WithoutPlaces(down)}))
	}
	for i := range c.items {
		if !c.wait(ctx, &c.items[i]) {
			c.giveUp(ctx)
			break
		}
	}
	results := make([]publisher.Result, len(c.items))
	for i := range c.items {
		results[i] = c.items[i].result
	}
	return p.metrics.outcomes.Count(results)
}

// prepare converts the deliveries to AMQP messages, and finishes those that cannot be.
func (c *call) prepare(to target, batch []postdate.Delivery) {
	frameBytesMax := int(c.p.frameBytesMax.Load())
	for i := range batch {
		it := &c.items[i]
		msg, err := publishing(&batch[i], frameBytesMax)
		*it = item{name: name{key: to.key, id: msg.MessageId}, msg: msg, bell: c.bell}
		if err != nil {
			it.finish(publisher.Result{Outcome: publisher.Refused, Reason: err.Error(), Permanent: true})
		}
	}
}

// enqueue queues the items, or says why nothing can be sent. Calls wait for the first
// connection, but not for a reconnection.
func (c *call) enqueue(exchange string) (down string) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if s := c.p.state; s.Phase != publisher.Connected && s.Phase != publisher.Connecting {
		return s.Reason
	}
	c.lane = c.p.lane(exchange)
	now := time.Now()
	for i := range c.items {
		if it := &c.items[i]; it.stage == queued {
			c.lane.push(it, now)
		}
	}
	c.p.wake.Broadcast()
	return ""
}

// wait returns true when the item is finished, and false when the time is over.
func (c *call) wait(ctx context.Context, it *item) bool {
	for {
		c.p.mu.Lock()
		stage, answer := it.stage, it.confirm
		c.p.mu.Unlock()
		switch stage {
		case finished:
			return true
		case written:
			select {
			case <-answer.Done():
			case <-ctx.Done():
				return false
			}
			c.p.mu.Lock()
			c.p.resolve(c.lane, it)
			c.p.mu.Unlock()
			return true
		}
		select {
		case <-c.bell:
		case <-ctx.Done():
			return false
		}
	}
}

// resolve finishes an item whose confirm is done.
func (p *Publisher) resolve(l *lane, it *item) {
	if l.open[it.name] != it {
		return // finished when its channel broke
	}
	acked := it.confirm.Acked()
	it.link.takeReturns(l.returned)
	_, cut := it.confirm.(lost)
	if !acked && (cut || it.link.IsClosed()) {
		l.broke(it.link, it.link.why(), time.Now())
	} else {
		l.answered(it, acked)
	}
	if len(l.ready) > 0 {
		p.wake.Signal()
	}
}

// giveUp finishes all open items when the time is over.
func (c *call) giveUp(ctx context.Context) {
	why := "the publish timeout of " + c.p.config.PublishTimeout.String() + " was over"
	if errors.Is(context.Cause(ctx), context.Canceled) {
		why = "the node stopped waiting"
	}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for i := range c.items {
		it := &c.items[i]
		if it.stage == written && done(it.confirm) {
			c.p.resolve(c.lane, it)
		}
		c.lane.leave(it, why)
	}
}

// sweep frees the room of messages whose callers have left, once the broker has answered them.
func (p *Publisher) sweep() {
	for _, l := range p.lanes {
		for _, it := range l.open {
			if it.left && it.confirm != nil && done(it.confirm) {
				p.resolve(l, it)
			}
		}
	}
}

func done(answer confirm) bool {
	select {
	case <-answer.Done():
		return true
	default:
		return false
	}
}
