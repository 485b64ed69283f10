package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate/publisher"
)

// share is one partition's part of a transaction.
type share struct {
	place
	leader  int32
	items   []*item
	records []*kmsg.Record
	bytes   int
	answer  answer
}

// transact publishes a batch in one transaction. Items that it finishes are final. A reader of
// committed records never sees those that it leaves open: either they were not produced, or the
// session is sick and aborts the transaction before it begins another. The error says why items
// were left open.
func (p *Publisher) transact(ctx context.Context, s *session, b *batch) error {
	shares, err := p.divide(ctx, s, b)
	if err != nil || len(shares) == 0 {
		return err
	}
	s.sick = true // until the transaction is known to have ended
	if err := p.addPartitions(ctx, s, shares); err != nil {
		if !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		finishAll(b.items, publisher.Result{Outcome: publisher.Refused, Reason: err.Error()})
		return nil
	}
	p.produceShares(ctx, s, shares)
	taken, failed := 0, 0
	for _, sh := range shares {
		switch v := sh.answer.verdict; {
		case v == confirmed:
			taken++
		case v == again, v == anew, sh.answer.appended:
			return errors.New(sh.answer.reason)
		default:
			failed++
			p.finishShare(s, sh)
		}
	}
	if taken == 0 || !p.mayCommit(b) {
		return nil
	}
	result, err := p.commit(ctx, s)
	if result.Outcome == publisher.Confirmed {
		for _, sh := range shares {
			s.sequences[sh.place] += int32(len(sh.items))
		}
		s.sick = failed > 0 // a refused sequence number is not used again
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b.written = false
	if result.Outcome == 0 {
		return err
	}
	for _, sh := range shares {
		if sh.answer.verdict == confirmed {
			finishAll(sh.items, result)
		}
	}
	return nil
}

// finishShare gives back the messages of a partition that surely did not take them. If smaller
// batches may succeed, they stay open.
func (p *Publisher) finishShare(s *session, sh *share) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := publisher.Result{Outcome: publisher.Refused, Reason: sh.answer.reason}
	switch {
	case sh.answer.verdict == smaller && len(sh.items) > 1:
		s.bytesMax = max(1, sh.bytes/2)
		return
	case sh.answer.verdict == smaller:
		r.Permanent = true
	case sh.answer.verdict == down:
		r.Outcome = publisher.Down
	}
	finishAll(sh.items, r)
}

// mayCommit is the point of no return: if a caller has left before it, the transaction is not
// committed; a caller that leaves after it does not learn the outcome.
func (p *Publisher) mayCommit(b *batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.written = !b.left
	return b.written
}

// divide finds each message's partition. It refuses messages for topics that do not exist and
// leaves open what does not fit into a partition's batch.
func (p *Publisher) divide(ctx context.Context, s *session, b *batch) ([]*share, error) {
	layouts, err := p.layouts(ctx, s, b)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var shares []*share
	byPlace := map[place]*share{}
	for _, it := range b.items {
		layout := layouts[it.topic]
		if it.stage != taken || layout.refusal != nil {
			if layout.refusal != nil {
				it.finish(publisher.Result{Outcome: publisher.Refused, Reason: layout.refusal.Error()})
			}
			continue
		}
		partition := hash.Partition(&kgo.Record{Key: it.record.Key}, len(layout.leaders))
		at := place{it.topic, int32(partition)}
		sh := byPlace[at]
		if sh == nil {
			if layout.leaders[partition] < 0 {
				return nil, fmt.Errorf("LEADER_NOT_AVAILABLE: a partition of topic %s has no leader", it.topic)
			}
			sh = &share{place: at, leader: layout.leaders[partition]}
			byPlace[at] = sh
			shares = append(shares, sh)
		}
		if len(sh.items) > 0 && sh.bytes+it.size > s.bytesMax {
			continue
		}
		sh.bytes += it.size
		sh.items, sh.records = append(sh.items, it), append(sh.records, &it.record)
	}
	return shares, nil
}

// layout says who leads a topic's partitions.
type layout struct {
	leaders []int32
	refusal error
}

// layouts returns the layouts of the batch's topics. It may use cached metadata, but not after
// a failure.
func (p *Publisher) layouts(ctx context.Context, s *session, b *batch) (map[string]layout, error) {
	names := map[string]layout{}
	req := kmsg.NewPtrMetadataRequest()
	for _, it := range b.items {
		if _, ok := names[it.topic]; !ok {
			names[it.topic] = layout{refusal: kerr.UnknownTopicOrPartition}
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = &it.topic
			req.Topics = append(req.Topics, t)
		}
	}
	req.AllowAutoTopicCreation = false
	resp, err := p.client.RequestCachedMetadata(ctx, req, freshTime)
	if err != nil {
		return nil, err
	}
	if s.erred || outOfDate(resp) {
		if resp, err = req.RequestWith(ctx, p.client); err != nil {
			return nil, err
		}
	}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		l := layout{leaders: make([]int32, len(t.Partitions))}
		if err := words(t.ErrorCode, nil); err != nil {
			l.refusal = err
		} else if len(t.Partitions) == 0 {
			return nil, kerr.LeaderNotAvailable
		}
		for _, sp := range t.Partitions {
			if int(sp.Partition) < len(l.leaders) {
				l.leaders[sp.Partition] = sp.Leader
			}
		}
		names[*t.Topic] = l
	}
	return names, nil
}

// outOfDate reports whether metadata may be stale: a leader is missing, or there is an error.
func outOfDate(resp *kmsg.MetadataResponse) bool {
	for _, t := range resp.Topics {
		if t.ErrorCode != 0 {
			return true
		}
		for _, sp := range t.Partitions {
			if sp.ErrorCode != 0 || sp.Leader < 0 {
				return true
			}
		}
	}
	return false
}

// addPartitions tells the coordinator which partitions the transaction will touch.
func (p *Publisher) addPartitions(ctx context.Context, s *session, shares []*share) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = s.name, s.producer.id, s.producer.epoch
	at := map[string]int{}
	for _, sh := range shares {
		i, seen := indexOf(sh.topic, at)
		if !seen {
			t := kmsg.NewAddPartitionsToTxnRequestTopic()
			t.Topic = sh.topic
			req.Topics = append(req.Topics, t)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, sh.partition)
	}
	return p.patiently(ctx, func() error {
		kresp, err := p.coordinate(ctx, s, req)
		if err != nil {
			return err
		}
		resp := kresp.(*kmsg.AddPartitionsToTxnResponse)
		named := 0
		for _, t := range resp.Topics {
			for _, sp := range t.Partitions {
				named++
				if said := words(sp.ErrorCode, nil); said != nil && !errors.Is(said, kerr.OperationNotAttempted) {
					err, s.coordinator = said, -1
				}
			}
		}
		if err == nil && named < len(shares) {
			err = errors.New("the answer does not name all partitions of the transaction")
		}
		return err
	})
}

// indexOf returns where a topic stands in a request. One that is not seen yet comes next.
func indexOf(topic string, at map[string]int) (i int, seen bool) {
	i, seen = at[topic]
	if !seen {
		i = len(at)
		at[topic] = i
	}
	return i, seen
}

// produceShares sends all shares in parallel, one request for each leader, and stores the
// answers.
func (p *Publisher) produceShares(ctx context.Context, s *session, shares []*share) {
	byLeader := map[int32][]*share{}
	for _, sh := range shares {
		byLeader[sh.leader] = append(byLeader[sh.leader], sh)
	}
	var wg sync.WaitGroup
	for leader, shares := range byLeader {
		wg.Go(func() {
			req := kmsg.NewPtrProduceRequest()
			req.TransactionID, req.Acks, req.TimeoutMillis = &s.name, allAcks,
				int32(p.config.PublishTimeout/2/time.Millisecond)
			at := map[string]int{}
			for _, sh := range shares {
				i, seen := indexOf(sh.topic, at)
				if !seen {
					t := kmsg.NewProduceRequestTopic()
					t.Topic = sh.topic
					req.Topics = append(req.Topics, t)
				}
				part := kmsg.NewProduceRequestTopicPartition()
				part.Partition = sh.partition
				part.Records = encode(sh.records, s.producer, s.sequences[sh.place], transactional,
					time.Now().UnixMilli())
				req.Topics[i].Partitions = append(req.Topics[i].Partitions, part)
			}
			resp, err := p.client.Broker(int(leader)).Request(ctx, req)
			answers := answersOf(resp)
			for _, sh := range shares {
				a, ok := answers[sh.place]
				if err != nil {
					a = answer{verdict: again, reason: err.Error()}
				} else if !ok {
					a = answer{verdict: again, reason: "Kafka's answer does not name the partition"}
				}
				sh.answer = a
			}
		})
	}
	wg.Wait()
}

// commit ends the transaction. A result without an outcome means that it was surely not
// committed. Once the coordinator may have accepted a try, the refusal of a later one proves
// nothing: the first may have succeeded and caused it.
func (p *Publisher) commit(ctx context.Context, s *session) (publisher.Result, error) {
	maybe := false
	for wait := time.Millisecond; ; wait = min(2*wait, backoffFirst) {
		err := p.endTransaction(ctx, s, true)
		switch {
		case err == nil:
			return publisher.Result{Outcome: publisher.Confirmed}, nil
		case errors.Is(err, errNotSent), errors.Is(err, errNoCoordinator):
		case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch),
			errors.Is(err, kerr.InvalidTxnState), errors.Is(err, kerr.InvalidProducerIDMapping):
			if !maybe {
				return publisher.Result{}, err
			}
			return publisher.Result{Outcome: publisher.Unknown, Reason: err.Error()}, nil
		default:
			maybe = true
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			if !maybe {
				return publisher.Result{}, err
			}
			return publisher.Result{Outcome: publisher.Unknown, Reason: err.Error()}, nil
		}
	}
}

var errNoCoordinator = errors.New("no coordinator is known for the transaction")

// endTransaction commits or aborts, in one try, and returns that try's error.
func (p *Publisher) endTransaction(ctx context.Context, s *session, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = s.name, s.producer.id, s.producer.epoch, commit
	resp, err := p.coordinate(ctx, s, req)
	if err == nil {
		err = words(resp.(*kmsg.EndTxnResponse).ErrorCode, nil)
	}
	if err != nil {
		s.coordinator = -1
	}
	return err
}

// coordinate sends a request to the transaction's coordinator, once.
func (p *Publisher) coordinate(ctx context.Context, s *session, req kmsg.Request) (kmsg.Response, error) {
	if s.coordinator < 0 {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorType, find.CoordinatorKeys = 1, []string{s.name}
		resp, err := find.RequestWith(ctx, p.client)
		if err == nil && len(resp.Coordinators) == 1 {
			err = words(resp.Coordinators[0].ErrorCode, resp.Coordinators[0].ErrorMessage)
		} else if err == nil {
			err = errors.New("its answer names none")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errNoCoordinator, err)
		}
		s.coordinator = resp.Coordinators[0].NodeID
	}
	resp, err := p.client.Broker(int(s.coordinator)).Request(ctx, req)
	if err != nil {
		s.coordinator = -1
	}
	return resp, err
}
