package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate/publisher"
)

// produce is a produce request that leaves out batches whose callers have gone before the
// request is written.
type produce struct {
	*kmsg.ProduceRequest
	p       *Publisher
	batches []*batch
	formed  bool // the client has asked for its bytes, to write them
	over    bool // its outcome is decided: it must not be written
}

// AppendTo implements kmsg.Request. The client calls it right before it writes: what is left
// out here is surely not sent.
func (r *produce) AppendTo(b []byte) []byte {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	r.Topics = nil
	topics := map[*topic]int{}
	for _, b := range r.batches {
		if b.left || r.over {
			continue
		}
		b.written = true
		at, ok := topics[b.lane.topic]
		if !ok {
			at = len(r.Topics)
			topics[b.lane.topic] = at
			t := kmsg.NewProduceRequestTopic()
			t.Topic = b.lane.topic.name
			r.Topics = append(r.Topics, t)
		}
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = b.lane.partition, b.bytes
		r.Topics[at].Partitions = append(r.Topics[at].Partitions, part)
	}
	r.formed = true
	return r.ProduceRequest.AppendTo(b)
}

// allAcks makes the leader answer when all in-sync replicas have the records.
const allAcks = -1

// send sends batches, one for each partition, to the partitions' leader and handles its
// answers.
func (p *Publisher) send(to *leader, batches []*batch) {
	for _, b := range batches {
		b.encode()
	}
	req := &produce{ProduceRequest: kmsg.NewPtrProduceRequest(), p: p, batches: batches}
	req.Acks, req.TimeoutMillis = allAcks, int32(p.config.PublishTimeout/2/time.Millisecond)
	ctx, cancel := context.WithTimeout(p.life, p.config.PublishTimeout+answerTime)
	defer cancel()
	resp, err := p.client.Broker(int(to.id)).Request(ctx, req)

	p.mu.Lock()
	defer p.mu.Unlock()
	to.busy, req.over = false, true
	if err == nil { // an error may be this broker's alone: the metadata tell whether it is the cluster's
		p.reached(nil)
	}
	answers := answersOf(resp)
	for _, b := range batches {
		a, ok := answers[place{b.lane.topic.name, b.lane.partition}]
		switch {
		case err != nil:
			a = answer{reason: err.Error(), verdict: again, appended: req.formed && !errors.Is(err, errNotSent)}
		case !ok:
			a = answer{reason: "Kafka's answer does not name the partition", verdict: again, appended: true}
		}
		if b.left && !b.written { // left out
			a = answer{reason: "the caller left before the message was sent", verdict: again}
		}
		b.written, b.lane.flying = false, false
		p.answered(b.lane, a)
		p.stir(b.lane)
	}
	p.dispatch(to)
}

type place struct {
	topic     string
	partition int32
}

func answersOf(resp kmsg.Response) map[place]answer {
	answers := map[place]answer{}
	if r, ok := resp.(*kmsg.ProduceResponse); ok {
		for _, t := range r.Topics {
			for _, sp := range t.Partitions {
				answers[place{t.Topic, sp.Partition}] = judge(&sp)
			}
		}
	}
	return answers
}

// answered handles the answer to a lane's batch.
func (p *Publisher) answered(l *lane, a answer) {
	b := l.batch
	if a.verdict == confirmed {
		finishAll(b.items, publisher.Result{Outcome: publisher.Confirmed})
		p.advance(l)
		return
	}
	b.maybe = b.maybe || a.appended
	if b.left && b.reason != "" {
		a.reason = b.reason // it was left out: the earlier failure is what matters
	}
	b.reason = a.reason
	if a.verdict != again && a.verdict != anew {
		l.failing, l.tries = time.Time{}, 0
	}
	switch {
	case b.maybe && (b.left || a.verdict != again):
		p.doubt(l, a.reason)
	case b.left:
		p.dissolve(l)
	case a.verdict == again:
		p.rest(l, publisher.Result{Outcome: publisher.Down, Reason: a.reason})
	case a.verdict == anew:
		p.dissolve(l)
		p.rest(l, publisher.Result{Outcome: publisher.Down, Reason: a.reason})
	case a.verdict == smaller && len(b.items) > 1:
		l.bytesMax = max(1, len(b.bytes)/2)
		p.dissolve(l)
	default:
		outcome := publisher.Refused
		if a.verdict == down {
			outcome = publisher.Down
		}
		finishAll(b.items, publisher.Result{Outcome: outcome, Reason: a.reason, Permanent: a.verdict == smaller})
		l.drop()
	}
}

// ids hands out producer ids.
type ids struct {
	latest *producer
	asking bool
	wait   []*lane
}

// identify gives the lane an identity that it has not used yet, or asks for one. Sequence
// numbers start at 0 under each identity, so a lane must never get the same one twice.
func (p *Publisher) identify(l *lane) bool {
	if p.ids.latest != nil && p.ids.latest != l.spoilt {
		l.producer, l.sequence = p.ids.latest, 0
		return true
	}
	p.ids.wait = append(p.ids.wait, l)
	l.resting = true
	if !p.ids.asking {
		p.ids.asking = true
		go p.askID()
	}
	return false
}

func (p *Publisher) askID() {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionTimeoutMillis = int32(p.config.PublishTimeout / time.Millisecond)
	ctx, cancel := context.WithTimeout(p.life, p.config.PublishTimeout)
	defer cancel()
	resp, err := req.RequestWith(ctx, p.client)
	if err == nil {
		err = words(resp.ErrorCode, nil)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids.asking = false
	if err == nil {
		p.ids.latest = &producer{id: resp.ProducerID, epoch: resp.ProducerEpoch}
	}
	wait := p.ids.wait
	p.ids.wait = nil
	for _, l := range wait {
		l.resting = false
		if err != nil {
			p.rest(l, publisher.Result{Outcome: publisher.Down, Reason: "Kafka gives no producer id: " + err.Error()})
		} else {
			p.stir(l)
		}
	}
}

var _ kmsg.Request = (*produce)(nil)
var _ kgo.Hook = (*metrics)(nil)
