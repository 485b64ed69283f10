package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// call is one Publish in progress.
type call struct {
	open int           // unfinished items
	done chan struct{} // closed when none is left
}

// stage says how far an item has got.
type stage uint8

const (
	queued   stage = iota // waits; a caller that leaves takes it back
	taken                 // in a batch
	finished              // has a result
)

// item is one message of a call. The publisher's lock guards it.
type item struct {
	call   *call
	topic  string
	bucket int
	record kmsg.Record
	size   int
	stage  stage
	batch  *batch // while taken
	result publisher.Result
}

func (it *item) finish(r publisher.Result) {
	if it.stage == finished {
		return
	}
	r.Reason = publisher.WithoutPlaces(r.Reason)
	it.stage, it.result, it.batch = finished, r, nil
	if it.call.open--; it.call.open == 0 {
		close(it.call.done)
	}
}

func finishAll(items []*item, r publisher.Result) {
	for _, it := range items {
		it.finish(r)
	}
}

// Publish implements publisher.Publisher.
func (p *Publisher) Publish(ctx context.Context, channel postdate.Channel,
	batch []postdate.Delivery) []publisher.Result {
	if err := check(channel); err != nil {
		return publisher.All(len(batch), publisher.Result{Outcome: publisher.Refused, Reason: err.Error(),
			Permanent: true})
	}
	if len(batch) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return p.metrics.outcomes.Count(publisher.All(len(batch),
			publisher.Result{Outcome: publisher.Down, Reason: "the node stopped waiting before the message was sent"}))
	}
	if !p.gate.Enter() {
		return p.metrics.outcomes.Count(publisher.All(len(batch),
			publisher.Result{Outcome: publisher.Down, Reason: "the publisher is closed"}))
	}
	defer p.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, p.config.PublishTimeout)
	defer cancel()
	c := &call{open: len(batch), done: make(chan struct{})}
	items := make([]*item, len(batch))
	for i := range batch {
		it := &item{call: c, topic: channel.Target(), bucket: batch[i].Message.Bucket, record: record(&batch[i])}
		it.size = sizeOf(&it.record)
		items[i] = it
	}
	p.enqueue(channel.Target(), items)
	select {
	case <-c.done:
	case <-ctx.Done():
		p.giveUp(ctx, items)
	}
	results := make([]publisher.Result, len(items))
	for i, it := range items {
		results[i] = it.result
	}
	return p.metrics.outcomes.Count(results)
}

func (p *Publisher) enqueue(name string, items []*item) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.config.Fenced {
		p.routeFenced(items)
	} else {
		p.route(p.topic(name), items)
	}
}

// giveUp finishes all open items when the caller's time is over. Once a caller is told that the
// outcome is unknown, the batch is not sent again.
func (p *Publisher) giveUp(ctx context.Context, items []*item) {
	why := "the publish timeout of " + p.config.PublishTimeout.String() + " was over"
	if errors.Is(context.Cause(ctx), context.Canceled) {
		why = "the node stopped waiting"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range items {
		b := it.batch
		switch {
		case it.stage == queued || it.stage == taken && !b.maybe && !b.written:
			it.finish(publisher.Result{Outcome: publisher.Down, Reason: why + " before the message was sent" +
				p.lastWords(b)})
		case it.stage == taken:
			it.finish(publisher.Result{Outcome: publisher.Unknown, Reason: why + " before Kafka confirmed it" +
				p.lastWords(b)})
		}
		if b != nil && !b.left {
			b.left = true
			if b.lane != nil && !b.lane.flying {
				p.abandon(b.lane)
			}
		}
	}
}

// lastWords says what went wrong with a batch, or with the cluster.
func (p *Publisher) lastWords(b *batch) string {
	switch {
	case b != nil && b.reason != "":
		return ": " + b.reason
	case p.state.Phase != publisher.Connected:
		return ": " + p.state.Reason
	}
	return ""
}
