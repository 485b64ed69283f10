package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// partition holds the records in hand of one partition, in their order.
type partition struct {
	number   int32
	records  []*kgo.Record
	commands []*ingest.Command
	aside    []bool      // the record is in the topic of rejected records
	done     *kgo.Record // the last finished record, if it is not committed yet
	next     int64       // the offset of the first unfinished record
	end      int64       // the partition's high watermark at the last fetch
	stable   int64       // where it ended for readers of committed records, likewise
	ahead    *ahead      // of a compacted topic
	attempt  int         // attempts without progress
	retryAt  time.Time
}

// rejectedTopic is the name of a fault.
const rejectedTopic = "topic of rejected records"

func partitionName(n int32) string { return fmt.Sprint("partition ", n) }

// wait returns how long the next poll may take.
func (s *Source) wait() time.Duration {
	s.working.Lock()
	defer s.working.Unlock()
	wait := pollEvery
	for _, p := range s.partitions {
		if len(p.records) > 0 {
			wait = min(wait, time.Until(p.retryAt))
		} else if p.committable() {
			wait = min(wait, backoffLast/10)
		}
	}
	return max(wait, time.Millisecond)
}

// work works on the records of all partitions, in parallel, and commits.
func (s *Source) work(ctx context.Context) {
	s.working.Lock()
	defer s.working.Unlock()
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	var group sync.WaitGroup
	now := time.Now()
	for _, p := range s.partitions {
		if len(p.records) > 0 && !p.retryAt.After(now) && s.looked(p) {
			group.Go(func() { s.workOn(ctx, p) })
		}
	}
	group.Wait()
	s.commit(ctx)
	var lag int64
	for _, p := range s.partitions {
		lag += max(p.end-p.next, 0)
	}
	s.config.Taker.SetLag(lag)
}

// workOn works on one partition, up to the first record that it cannot finish.
func (s *Source) workOn(ctx context.Context, p *partition) {
	results := s.config.Taker.Take(ctx, p.commands)
	why := ""
	if err := s.putAside(ctx, p, results); err != nil {
		why = err.Error()
	}
	through := 0
	for through < len(results) && (results[through].Outcome == ingest.Done || p.aside[through]) {
		through++
	}
	if through > 0 {
		p.done = p.records[through-1]
		p.next = p.done.Offset + 1
	}
	if through < len(results) && results[through].Outcome == ingest.Again {
		why = results[through].Reason
	}
	p.records, p.commands, p.aside = p.records[through:], p.commands[through:], p.aside[through:]
	here := map[string][]int32{s.config.Topic: {p.number}}
	if len(p.records) == 0 {
		p.records, p.commands, p.aside = nil, nil, nil // frees the finished records
		p.attempt = 0
		s.client.ResumeFetchPartitions(here)
		s.because(partitionName(p.number), "")
		return
	}
	if through > 0 {
		p.attempt = 0
	}
	p.retryAt = time.Now().Add(min(backoffFirst<<min(p.attempt, 20), backoffLast))
	p.attempt++
	s.client.PauseFetchPartitions(here)
	if p.attempt > 1 {
		s.because(partitionName(p.number), why)
	}
}

// putAside produces bad records to the topic of rejected records.
func (s *Source) putAside(ctx context.Context, p *partition, results []ingest.Result) error {
	var bad []int
	var records []*kgo.Record
	for i, r := range results {
		if r.Outcome == ingest.Bad && !p.aside[i] {
			bad, records = append(bad, i), append(records, s.aside(p.records[i], r.Reason))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	var failure error
	at := make(map[*kgo.Record]int, len(bad))
	for i, r := range records {
		at[r] = bad[i]
	}
	for _, produced := range s.client.ProduceSync(ctx, records...) { // in any order
		i := at[produced.Record]
		switch err := produced.Err; {
		case err == nil:
			p.aside[i] = true
			s.config.Log.Warn("rejected a record", "topic", s.config.Topic, "partition", p.number,
				"offset", p.records[i].Offset, "reason", results[i].Reason)
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			failure = fmt.Errorf("the topic %q for rejected records does not exist: create it; "+
				"until then the partition stands still (the record at offset %d "+
				"is bad: %s)", s.config.Rejected, p.records[i].Offset, results[i].Reason)
		default:
			failure = fmt.Errorf("the record at offset %d is bad (%s), and cannot be put into the topic %q: %w",
				p.records[i].Offset, results[i].Reason, s.config.Rejected, err)
		}
	}
	return failure
}

// commit commits the offset of each partition's last finished record. A failure is tried
// again later; the records stay finished.
func (s *Source) commit(ctx context.Context) {
	var records []*kgo.Record
	for _, p := range s.partitions {
		if p.committable() {
			records = append(records, p.done)
		}
	}
	if len(records) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	if err := s.client.CommitRecords(ctx, records...); err != nil {
		s.because("committing", "the offsets cannot be committed: "+err.Error())
		return
	}
	s.because("committing", "")
	for _, p := range s.partitions {
		if p.committable() {
			p.done = nil
		}
	}
}

// aside makes the record for the topic of rejected records: r with the reason added.
func (s *Source) aside(r *kgo.Record, reason string) *kgo.Record {
	headers := slices.DeleteFunc(slices.Clone(r.Headers),
		func(h kgo.RecordHeader) bool { return ingest.IsRejection(h.Key) })
	from := fmt.Sprintf("%s/%d/%d", r.Topic, r.Partition, r.Offset)
	return &kgo.Record{
		Topic: s.config.Rejected, Key: r.Key, Value: r.Value,
		Headers: append(headers, kgo.RecordHeader{Key: ingest.HeaderReason, Value: []byte(reason)},
			kgo.RecordHeader{Key: ingest.HeaderRejectedFrom, Value: []byte(from)}),
	}
}

// read makes a command from a record.
func read(r *kgo.Record, template ingest.Template) *ingest.Command {
	place := ingest.Place{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	c := &ingest.Command{
		Body: r.Value, Key: string(r.Key), Records: true, Place: place,
		Position: ingest.PositionOf(place, r.Timestamp.UnixMilli()), Pinned: template.Pinned(),
		Stamp: r.Timestamp.UnixMilli(),
	}
	if len(r.Key) > 0 || !template.Uses() {
		c.Channel = template.With(string(r.Key))
	}
	if r.Attrs.TimestampType() == 1 { // by the broker's clock instead of the sender's
		c.Sent = postdate.WallOf(r.Timestamp)
	}
	for _, h := range r.Headers {
		switch {
		case h.Key == "message-id" && c.MessageID == "":
			c.MessageID = string(h.Value)
		case h.Key == "content-type" && c.ContentType == "":
			c.ContentType = string(h.Value)
		default:
			c.Headers = append(c.Headers, postdate.Header{Name: h.Key, Value: string(h.Value)})
		}
	}
	return c
}

// check periodically checks that the brokers and the topics are there. The client
// library itself waits for them silently.
func (s *Source) check() {
	ticks := time.NewTicker(checkEvery)
	defer ticks.Stop()
	for {
		s.checkTopics()
		select {
		case <-ticks.C:
		case <-s.taking.Done():
			return
		}
	}
}

func (s *Source) checkTopics() {
	ctx, cancel := context.WithTimeout(s.taking, commitTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range []string{s.config.Topic, s.config.Rejected} {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, s.client)
	if s.taking.Err() != nil {
		return
	}
	if err != nil {
		s.because("connecting", "Kafka cannot be reached: "+err.Error())
		return
	}
	s.because("connecting", "")
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case t.Topic == nil:
		case *t.Topic == s.config.Topic && err != nil:
			s.because("topic", fmt.Sprintf("the topic cannot be read: %v; create it, and let this user read it", err))
		case *t.Topic == s.config.Topic:
			s.because("topic", "")
		case err != nil:
			s.because(rejectedTopic, fmt.Sprintf("the topic %q is not there (%v): create it; "+
				"a partition with a bad record stands still without it", s.config.Rejected, err))
		default:
			s.because(rejectedTopic, "")
		}
	}
}
