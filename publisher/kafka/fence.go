package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
)

// With Config.Fenced, a node publishes a bucket's messages in transactions under the bucket's
// own transactional id. Gained takes that id over: from then on the cluster refuses every
// transaction that a former owner of the bucket has begun or begins, however long it slept, and
// consumers that read only committed records never see it. The price is a transaction for each
// bucket and batch.

// gainAtOnce is how many buckets are taken over at the same time.
const gainAtOnce = 16

// session is this node's hold on a bucket's transactional id. One transaction runs at a time;
// what arrives meanwhile forms the next.
type session struct {
	bucket int
	name   string // the transactional id

	// These are guarded by the publisher's lock.
	queue   []*item
	busy    bool
	over    string               // why it takes no more messages; "": it is open
	failing map[string]time.Time // by topic: since when no transaction has succeeded

	// These belong to the goroutine that made the session busy.
	producer    producer
	sequences   map[place]int32
	sick        bool // the last transaction was not ended, or may not have been
	erred       bool // the last transaction failed
	coordinator int32
	bytesMax    int
}

// Gained implements publisher.Fencer.
func (p *Publisher) Gained(ctx context.Context, buckets []int) error {
	if !p.config.Fenced {
		return nil
	}
	var mu sync.Mutex
	var failed []error
	var group errgroup.Group
	group.SetLimit(gainAtOnce)
	for _, bucket := range buckets {
		group.Go(func() error {
			if err := p.gain(ctx, bucket); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("bucket %d: %w", bucket, err))
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
	if len(failed) > 0 {
		return postdate.E(postdate.KindUnavailable, "fenced %d of %d buckets at Kafka; call again for the others: %w",
			len(buckets)-len(failed), len(buckets), errors.Join(failed...))
	}
	return nil
}

// gain takes over a bucket's transactional id, whoever holds it.
func (p *Publisher) gain(ctx context.Context, bucket int) error {
	s := &session{bucket: bucket, name: p.config.TransactionPrefix + strconv.Itoa(bucket), coordinator: -1,
		bytesMax: batchBytesMax, failing: map[string]time.Time{}}
	if err := p.initialize(ctx, s, producer{id: -1, epoch: -1}); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if elder := p.sessions[bucket]; elder != nil {
		elder.end("the bucket was gained anew")
	}
	p.sessions[bucket] = s
	return nil
}

// Lost implements publisher.Fencer.
func (p *Publisher) Lost(buckets []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, bucket := range buckets {
		if s := p.sessions[bucket]; s != nil {
			s.end("the node has given the bucket up")
			delete(p.sessions, bucket)
		}
	}
}

// end gives back what was not sent. A transaction under way runs to its end.
func (s *session) end(why string) {
	if s.over == "" {
		s.over = why
	}
	finishAll(s.queue, publisher.Result{Outcome: publisher.Down, Reason: s.over})
	s.queue = nil
}

// routeFenced puts items into their buckets' sessions.
func (p *Publisher) routeFenced(items []*item) {
	var stirred []*session
	for _, it := range items {
		s := p.sessions[it.bucket]
		switch {
		case s == nil:
			it.finish(publisher.Result{Outcome: publisher.Down,
				Reason: fmt.Sprintf("bucket %d is not fenced at Kafka yet", it.bucket)})
		case s.over != "":
			it.finish(publisher.Result{Outcome: publisher.Down, Reason: s.over})
		default:
			s.queue = append(s.queue, it)
			if !s.busy {
				s.busy = true
				stirred = append(stirred, s)
			}
		}
	}
	for _, s := range stirred {
		go p.work(s)
	}
}

// work runs transactions until the queue is empty.
func (p *Publisher) work(s *session) {
	for tries := 0; ; tries++ {
		b := p.take(s)
		if b == nil {
			return
		}
		ctx, cancel := context.WithTimeout(p.life, p.config.PublishTimeout)
		err := p.heal(ctx, s)
		if err == nil {
			err = p.transact(ctx, s, b)
		}
		s.erred = err != nil
		if s.sick { // without delay: an open transaction blocks the readers of its partitions
			if healed := p.heal(ctx, s); err == nil || errors.Is(healed, errTaken) {
				err = healed
			}
		}
		cancel()
		p.mu.Lock()
		wait := p.finishTransaction(s, b, err)
		p.mu.Unlock()
		if wait {
			time.Sleep(min(backoffFirst<<min(tries, 10), backoffLast))
		} else {
			tries = 0
		}
	}
}

// take makes the next transaction's batch; nil if nothing waits. A batch has one topic, so that
// a topic in trouble does not hold up others.
func (p *Publisher) take(s *session) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, bytes := &batch{}, 0
	var rest []*item
	for _, it := range s.queue {
		switch {
		case it.stage != queued:
		case len(b.items) > 0 && (it.topic != b.items[0].topic || bytes+it.size > requestBytesMax):
			rest = append(rest, it)
		default:
			bytes += it.size
			it.stage, it.batch = taken, b
			b.items = append(b.items, it)
		}
	}
	if s.queue = rest; len(b.items) == 0 {
		s.busy = false
		return nil
	}
	return b
}

// finishTransaction gives back or requeues what a transaction left open; no reader will ever
// see that. It reports whether to wait before the next transaction.
func (p *Publisher) finishTransaction(s *session, b *batch, err error) (wait bool) {
	var back []*item
	for _, it := range b.items {
		if it.stage == taken {
			it.stage, it.batch = queued, nil
			back = append(back, it)
		}
	}
	topic := b.items[0].topic
	others := slices.ContainsFunc(s.queue, func(it *item) bool { return it.topic != topic })
	s.queue = append(s.queue, back...) // behind the other topics
	switch {
	case s.over != "":
		s.end("")
	case errors.Is(err, errTaken):
		s.end(fmt.Sprintf("another node has taken bucket %d over: %s", s.bucket, err))
		if p.config.OnFenced != nil {
			go p.config.OnFenced(s.bucket)
		}
	case err == nil:
		delete(s.failing, topic)
	default:
		since, ok := s.failing[topic]
		if !ok {
			since = time.Now()
			s.failing[topic] = since
		}
		if time.Since(since) >= patience {
			for _, it := range s.queue {
				if it.topic == topic {
					it.finish(publisher.Result{Outcome: publisher.Down, Reason: err.Error()})
				}
			}
		}
		return !others
	}
	return false
}

// errTaken is in the chain of the error that means that another node holds the id. Only a
// request for the next epoch tells: other requests are refused with the same error when the
// coordinator has given up a transaction that took too long.
var errTaken = errors.New("it has another owner")

// heal ends what the last transaction left open and gets a new epoch, under which sequence
// numbers start again. It names the present epoch, so a node that slept cannot take the id
// back.
func (p *Publisher) heal(ctx context.Context, s *session) error {
	if !s.sick {
		return nil
	}
	_ = p.endTransaction(ctx, s, false) // usually there is no transaction to end; the next answer counts
	err := p.initialize(ctx, s, s.producer)
	for _, taken := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		if errors.Is(err, taken) {
			return fmt.Errorf("%w (%w)", err, errTaken)
		}
	}
	return err
}

// initialize gets an epoch for the session's id: the one after the given producer's or, without
// one, after the latest.
func (p *Publisher) initialize(ctx context.Context, s *session, after producer) error {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &s.name,
		int32((p.config.PublishTimeout+answerTime)/time.Millisecond)
	req.ProducerID, req.ProducerEpoch = after.id, after.epoch
	return p.patiently(ctx, func() error {
		resp, err := req.RequestWith(ctx, p.client)
		if err == nil {
			err = words(resp.ErrorCode, nil)
		}
		if err == nil {
			s.producer, s.sequences, s.sick = producer{resp.ProducerID, resp.ProducerEpoch}, map[place]int32{}, false
		}
		return err
	})
}

// passing lists the errors that a coordinator gives while it is busy or moving.
var passing = []error{kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable,
	kerr.NotCoordinator}

// patiently repeats a request while it fails with a passing error. The first wait is short,
// because a coordinator takes some milliseconds to end the last transaction.
func (p *Publisher) patiently(ctx context.Context, ask func() error) error {
	for wait := time.Millisecond; ; wait = min(2*wait, backoffFirst) {
		err := ask()
		if !slices.ContainsFunc(passing, func(e error) bool { return errors.Is(err, e) }) {
			return err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}
