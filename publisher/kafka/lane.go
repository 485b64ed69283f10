package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate/publisher"
)

const (
	batchBytesMax   = 900_000 // brokers accept 1 MiB by default
	requestBytesMax = 8 << 20

	// patience is how long messages wait for a partition that has no leader, or whose leader
	// cannot be reached, before the channel is reported as down.
	patience = 2 * time.Second
)

// lane is the way to one partition. It sends one batch at a time, so the broker recognises a
// batch that is sent again, whatever happened in between, and the order is kept. What arrives
// meanwhile forms the next batch.
type lane struct {
	topic     *topic
	partition int32
	leader    int32 // -1: not known
	listed    bool  // it is in its leader's list

	queue  []*item
	batch  *batch
	flying bool // the batch is in a request that has no answer yet

	producer *producer // the identity of its batches; nil: none yet
	sequence int32     // of the next record under it
	spoilt   *producer // must not be used in this lane again

	bytesMax int
	failing  time.Time // since when no try has succeeded; zero: the last one did
	tries    int       // since then
	resting  bool      // it waits for the next try
}

// batch is a group of messages that travels together. Its bytes are the same at every try.
type batch struct {
	lane    *lane // nil in a transaction
	items   []*item
	bytes   []byte
	written bool   // in this try, the request was handed to the connection
	maybe   bool   // the broker may have accepted an earlier try
	left    bool   // a caller has left: it is not tried again
	reason  string // why the last try failed; "": this is the first
}

// leader is a broker that leads partitions. One request is in flight at a time, with a batch
// for each partition that has one: a broker serves the requests of a connection one by one
// anyway.
type leader struct {
	id    int32
	busy  bool
	ready []*lane
}

// stir starts a lane that has something to send and is idle.
func (p *Publisher) stir(l *lane) {
	if l.flying || l.listed || l.resting || l.batch == nil && len(l.queue) == 0 {
		return
	}
	if l.leader < 0 {
		p.rest(l, publisher.Result{Outcome: publisher.Down, Reason: "LEADER_NOT_AVAILABLE: a partition of topic " +
			l.topic.name + " has no leader"})
		return
	}
	to := p.leaders[l.leader]
	if to == nil {
		to = &leader{id: l.leader}
		p.leaders[l.leader] = to
	}
	l.listed = true
	to.ready = append(to.ready, l)
	p.dispatch(to)
}

// dispatch sends the batches that are ready for a broker.
func (p *Publisher) dispatch(to *leader) {
	if to.busy {
		return
	}
	var batches []*batch
	for bytes := 0; len(to.ready) > 0 && bytes < requestBytesMax; {
		l := to.ready[0]
		to.ready[0] = nil
		to.ready, l.listed = to.ready[1:], false
		if l.leader != to.id {
			p.stir(l)
			continue
		}
		if !p.load(l) {
			continue
		}
		l.flying = true
		batches = append(batches, l.batch)
		bytes += l.bytesMax
	}
	if len(batches) > 0 {
		to.busy = true
		go p.send(to, batches)
	}
}

// load makes the lane's next batch, if it has none. It reports whether there is one.
func (p *Publisher) load(l *lane) bool {
	if l.batch != nil {
		return true
	}
	if l.producer == nil && !p.identify(l) {
		return false
	}
	b, bytes, n := &batch{lane: l}, 0, 0
	for _, it := range l.queue {
		if it.stage == queued {
			if len(b.items) > 0 && bytes+it.size > l.bytesMax {
				break
			}
			bytes += it.size
			it.stage, it.batch = taken, b
			b.items = append(b.items, it)
		}
		n++
	}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	if len(b.items) == 0 {
		return false
	}
	l.batch = b
	return true
}

// encode makes the batch's bytes, once. It needs no lock: nothing that it reads changes while
// the batch is in flight.
func (b *batch) encode() {
	if b.bytes != nil {
		return
	}
	records := make([]*kmsg.Record, len(b.items))
	for i, it := range b.items {
		records[i] = &it.record
	}
	b.bytes = encode(records, *b.lane.producer, b.lane.sequence, 0, time.Now().UnixMilli())
}

// rest asks who leads the lane's partition and puts off the next try. After too long a time of
// failure it gives back what was surely not sent; the channel's probes then find out when the
// trouble is over.
func (p *Publisher) rest(l *lane, r publisher.Result) {
	now := time.Now()
	if l.failing.IsZero() {
		l.failing = now
	}
	if now.Sub(l.failing) >= patience {
		if b := l.batch; b != nil && !b.maybe {
			finishAll(b.items, r)
			l.drop()
		}
		finishAll(l.queue, r)
		l.queue = nil
	}
	p.ask(l.topic, 0)
	if l.batch == nil && len(l.queue) == 0 {
		return
	}
	l.tries++
	l.resting = true
	time.AfterFunc(min(backoffFirst<<min(l.tries, 10), backoffLast), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		l.resting = false
		p.stir(l)
	})
}

// advance ends the lane's batch and moves on to the next sequence number.
func (p *Publisher) advance(l *lane) {
	const sequenceMax = 1<<31 - 1
	l.sequence = int32((int64(l.sequence) + int64(len(l.batch.items))) & sequenceMax)
	l.batch, l.failing, l.tries = nil, time.Time{}, 0
}

// dissolve takes apart the lane's batch, which the broker surely did not accept. Messages whose
// callers still wait go back to the head of the queue.
func (p *Publisher) dissolve(l *lane) {
	var back []*item
	for _, it := range l.batch.items {
		if it.stage == taken {
			it.stage, it.batch = queued, nil
			back = append(back, it)
		}
	}
	l.drop()
	l.queue = append(back, l.queue...)
}

// drop ends the lane's batch without a confirm. It gives up the batch's identity too, even if
// the broker surely did not accept the batch: under a number that the broker has seen, it would
// take other messages for a repetition, and lose them.
func (l *lane) drop() {
	if l.batch.bytes != nil {
		l.spoilt, l.producer, l.sequence = l.producer, nil, 0
	}
	l.batch = nil
}

// doubt ends the lane's batch with an unknown outcome.
func (p *Publisher) doubt(l *lane, reason string) {
	finishAll(l.batch.items, publisher.Result{Outcome: publisher.Unknown, Reason: reason})
	l.drop()
}

// abandon ends a batch that a caller has left and that is not in flight.
func (p *Publisher) abandon(l *lane) {
	if l.batch.maybe {
		p.doubt(l, "another message of its batch ran out of time before Kafka confirmed it"+p.lastWords(l.batch))
	} else {
		p.dissolve(l)
	}
	p.stir(l)
}
