package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate/publisher"
)

const (
	batchBytesMax   = 900_000 // brokers take 1 MiB by default
	requestBytesMax = 8 << 20

	// patience is how long a partition without a leader, or whose leader cannot be
	// reached, keeps its messages waiting before the channel is said to be down.
	patience = 2 * time.Second
)

// lane is the way to a partition. One batch is under way at a time: so the broker
// recognises a second try of it, whatever came in between, and the order is kept.
// What comes meanwhile makes the next batch.
type lane struct {
	topic     *topic
	partition int32
	leader    int32 // -1: none is known
	listed    bool  // stands in its leader's list

	queue  []*item
	batch  *batch
	flying bool // the batch is in a request that is not answered

	producer *producer // the batches' identity; nil: none yet
	sequence int32     // of the next record under it
	spoilt   *producer // must not be used here again

	bytesMax int
	failing  time.Time // since when no try has got through; zero: the last one has
	tries    int       // since then
	resting  bool      // until the next try
}

// batch is what travels together. It keeps its bytes over all tries.
type batch struct {
	lane    *lane // nil in a transaction
	items   []*item
	bytes   []byte
	written bool   // this try: the request was handed to the connection
	maybe   bool   // an earlier try may have been taken
	left    bool   // a caller has left: there is no further try
	reason  string // for which the last try came to nothing; "": this is the first
}

// leader is a broker that leads partitions. One request is under way at a time, with
// a batch of each partition that has one: a broker serves a connection's requests one
// after the other anyway.
type leader struct {
	id    int32
	busy  bool
	ready []*lane
}

// stir sees to it that what waits in a lane gets going.
func (p *Publisher) stir(l *lane) {
	if l.flying || l.listed || l.resting || l.batch == nil && len(l.queue) == 0 {
		return
	}
	if l.leader < 0 {
		p.rest(l, publisher.Result{Outcome: publisher.Down, Reason: "LEADER_NOT_AVAILABLE: a partition of topic " + l.topic.name + " has no leader"})
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

// dispatch sends what is ready for a broker.
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

// load makes the lane's next batch, if there is none and something to put into it.
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

// encode makes the batch's bytes, once. It needs no lock: what it reads stands still
// while the batch flies.
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

// rest lets the lane wait for its next try, after a look for its leader. When that
// has gone on for long, what was surely not sent is given back; the channel's probes
// then find out when it is over.
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

// advance ends the lane's batch: its sequence numbers are used.
func (p *Publisher) advance(l *lane) {
	const sequenceMax = 1<<31 - 1
	l.sequence = int32((int64(l.sequence) + int64(len(l.batch.items))) & sequenceMax)
	l.batch, l.failing, l.tries = nil, time.Time{}, 0
}

// dissolve takes the lane's batch, which was surely not taken by the broker, apart:
// what is still wanted goes back to the head of the queue.
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

// drop ends the lane's batch without a confirm. Its identity goes with it, also where
// the broker surely has not taken the batch: under a number that it has seen, it
// would take other messages for a repetition, and lose them.
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

// abandon ends a batch that a caller has left, and that is not in flight.
func (p *Publisher) abandon(l *lane) {
	if l.batch.maybe {
		p.doubt(l, "another message of its batch ran out of time before Kafka confirmed it"+p.lastWords(l.batch))
	} else {
		p.dissolve(l)
	}
	p.stir(l)
}
