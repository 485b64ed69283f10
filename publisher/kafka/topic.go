package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate/publisher"
)

const (
	backoffFirst = 50 * time.Millisecond // between tries; doubled each time
	backoffLast  = time.Second

	refusalTime = time.Second            // how long the answer that a topic is missing counts
	doubtTime   = 250 * time.Millisecond // a broker that has started a moment ago may not know its topics: ask twice
	freshTime   = time.Minute            // after which a topic's partitions are asked for again
)

// topic is a topic's partitions, and the items that wait until they are known.
type topic struct {
	name    string
	lanes   []*lane // by partition; one that has sent something is never dropped
	count   int     // of partitions at present; 0: not known
	waiting []*item

	asking  bool      // a request for the partitions is under way, or about to be
	asked   time.Time // when the last good answer came
	doubted bool      // the last answer was that the topic is missing

	refusal      publisher.Result
	refusedUntil time.Time
}

func (p *Publisher) topic(name string) *topic {
	t := p.topics[name]
	if t == nil {
		t = &topic{name: name}
		p.topics[name] = t
	}
	return t
}

// hash is the Java client's, so that a key has the same partition whichever client writes it.
var hash = kgo.StickyKeyPartitioner(nil).ForTopic("")

// route puts items into the lanes of their partitions.
func (p *Publisher) route(t *topic, items []*item) {
	if time.Now().Before(t.refusedUntil) {
		finishAll(items, t.refusal)
		return
	}
	if t.count == 0 {
		t.waiting = append(t.waiting, items...)
		p.ask(t, 0)
		return
	}
	var stirred []*lane
	for _, it := range items {
		l := t.lanes[hash.Partition(&kgo.Record{Key: it.record.Key}, t.count)]
		if len(l.queue) == 0 {
			stirred = append(stirred, l)
		}
		l.queue = append(l.queue, it)
	}
	for _, l := range stirred { // after all are queued, so that they travel together
		p.stir(l)
	}
	if time.Since(t.asked) > freshTime {
		p.ask(t, 0)
	}
}

// ask asks for the topic's partitions after a delay, unless a request is under way.
func (p *Publisher) ask(t *topic, after time.Duration) {
	if t.asking {
		return
	}
	t.asking = true
	time.AfterFunc(after, func() {
		req := kmsg.NewPtrMetadataRequest()
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = &t.name
		req.Topics, req.AllowAutoTopicCreation = append(req.Topics, rt), false
		ctx, cancel := context.WithTimeout(p.life, p.config.PublishTimeout)
		defer cancel()
		resp, err := req.RequestWith(ctx, p.client)
		if err == nil && len(resp.Topics) != 1 {
			err = errors.New("the broker's answer does not name the topic")
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		t.asking = false
		p.reached(err)
		if err != nil {
			// Lanes whose batches get through do not need the answer.
			p.giveBack(t, func(l *lane) bool { return !l.failing.IsZero() }, publisher.Result{Outcome: publisher.Down,
				Reason: "Kafka cannot be asked for topic " + t.name + ": " + err.Error()})
			p.forget(t)
			return
		}
		p.learn(t, &resp.Topics[0])
	})
}

// learn applies what a broker says about a topic.
func (p *Publisher) learn(t *topic, said *kmsg.MetadataResponseTopic) {
	err := kerr.ErrorForCode(said.ErrorCode)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition) && !t.doubted:
		t.doubted = true
		p.ask(t, doubtTime)
		return
	case errors.Is(err, kerr.LeaderNotAvailable) || err == nil && len(said.Partitions) == 0:
		if !p.stuck(t) {
			p.ask(t, backoffFirst)
		}
		return
	case err != nil:
		t.doubted, t.count = false, 0
		t.refusal = publisher.Result{Outcome: publisher.Refused, Reason: err.Error()}
		t.refusedUntil = time.Now().Add(refusalTime)
		p.giveBack(t, func(*lane) bool { return true }, t.refusal)
		time.AfterFunc(2*refusalTime, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.forget(t)
		})
		return
	}
	t.doubted, t.asked, t.refusedUntil, t.count = false, time.Now(), time.Time{}, len(said.Partitions)
	for partition := len(t.lanes); partition < t.count; partition++ {
		t.lanes = append(t.lanes, &lane{topic: t, partition: int32(partition), leader: -1, bytesMax: batchBytesMax})
	}
	for _, sp := range said.Partitions {
		if int(sp.Partition) >= t.count {
			continue
		}
		l := t.lanes[sp.Partition]
		l.leader = sp.Leader
		if kerr.ErrorForCode(sp.ErrorCode) != nil {
			l.leader = -1
		}
		p.stir(l)
	}
	for _, l := range t.lanes[t.count:] { // partitions that no longer exist
		rest := l.queue
		l.queue = nil
		t.waiting = append(t.waiting, rest...)
	}
	waiting := t.waiting
	t.waiting = nil
	p.route(t, waiting)
}

// stuck reports whether nothing waits for a topic that has no partitions yet; the next Publish
// then asks again.
func (p *Publisher) stuck(t *topic) bool {
	t.waiting = slices.DeleteFunc(t.waiting, func(it *item) bool { return it.stage == finished })
	p.forget(t)
	return len(t.waiting) == 0
}

// giveBack finishes what waits for the topic, and what some lanes have not sent.
func (p *Publisher) giveBack(t *topic, some func(*lane) bool, r publisher.Result) {
	finishAll(t.waiting, r)
	t.waiting = nil
	for _, l := range t.lanes {
		if !some(l) {
			continue
		}
		finishAll(l.queue, r)
		l.queue = nil
		if l.batch != nil && !l.flying && !l.batch.maybe {
			finishAll(l.batch.items, r)
			l.drop()
		}
	}
}

// forget drops a topic that nothing was ever sent to. Others must stay: a partition's sequence
// numbers must never start again under the same producer id.
func (p *Publisher) forget(t *topic) {
	if p.topics[t.name] == t && len(t.lanes) == 0 && len(t.waiting) == 0 && !t.asking &&
		!time.Now().Before(t.refusedUntil) {
		delete(p.topics, t.name)
	}
}
