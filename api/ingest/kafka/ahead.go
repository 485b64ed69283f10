package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// ahead is a look at the records of a partition before any of them is carried out. The partition waits for it.
type ahead struct {
	firstRead postdate.Time // when it began, if the group has not read the partition before
	until     int64         // the offset after the last record that it reads
	cancel    context.CancelFunc
	done      chan struct{}

	// Once done is closed:
	latest ingest.Latest
	end    int64 // the offset after the last record that latest knows
	err    error
}

// aheadWait is how long a look waits for records before it asks whether the partition's leader is there.
const aheadWait = 2 * time.Second

// begin notes which of the partitions that come to this member were never read.
func (s *Source) begin(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, o := range offsets[s.config.Topic] {
		s.first[n] = o.EpochOffset().Offset < 0
	}
	return offsets, nil
}

// lookAhead begins a look at a partition's records, from the first in hand. If those in hand are all that there are,
// nothing is read.
func (s *Source) lookAhead(p *partition) {
	from, last := p.records[0].Offset, p.records[len(p.records)-1].Offset
	a := &ahead{until: max(p.stable, last+1), done: make(chan struct{}), end: from, cancel: func() {}}
	p.ahead = a
	s.mu.Lock()
	if s.first[p.number] {
		a.firstRead = postdate.WallOf(time.Now())
	}
	s.mu.Unlock()
	if p.stable <= last+1 {
		close(a.done)
		return
	}
	ctx, cancel := context.WithCancel(s.taking)
	a.cancel = cancel
	s.checks.Go(func() {
		defer close(a.done)
		defer cancel()
		if a.latest, a.err = s.look(ctx, p.number, from, a.until); a.err == nil {
			a.end = a.until
		}
	})
}

// looked says whether a partition can be worked on, and tells its commands which of them are superseded.
func (s *Source) looked(p *partition) bool {
	if !s.config.Compacted {
		return true
	}
	if p.ahead == nil {
		s.lookAhead(p)
	}
	a := p.ahead
	select {
	case <-a.done:
	default:
		s.rest(p, backoffFirst)
		return false
	}
	switch {
	case a.err != nil && s.taking.Err() != nil:
		return false // it was cut short
	case a.err != nil:
		s.because(partitionName(p.number), "the records cannot be looked through: "+a.err.Error())
		s.rest(p, backoffLast/10)
		p.ahead = nil
		return false
	case p.records[0].Offset >= a.until:
		s.mu.Lock()
		s.first[p.number] = false
		s.mu.Unlock()
		p.ahead = nil
		return s.looked(p)
	}
	for _, c := range p.commands {
		if c.Place.Offset >= a.end { // it came after the look
			a.latest.Note(c)
			a.end = c.Place.Offset + 1
		}
	}
	for _, c := range p.commands {
		c.Superseded = a.latest.Superseded(c)
		if c.Place.Offset < a.until {
			c.FirstRead = a.firstRead
		}
	}
	return true
}

// rest lets a partition wait.
func (s *Source) rest(p *partition, d time.Duration) {
	p.retryAt = time.Now().Add(d)
	s.client.PauseFetchPartitions(map[string][]int32{s.config.Topic: {p.number}})
}

// look reads a partition from an offset up to end. It is no member of the group.
func (s *Source) look(ctx context.Context, n int32, from, end int64) (latest ingest.Latest, err error) {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.ClientID("postdate-ingest-ahead"), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.config.Topic: {n: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(aheadWait / 4)}, s.config.Connect...)...)
	if err != nil {
		return latest, err
	}
	defer client.Close()
	silent := false
	for next := from; next < end; {
		wait, cancel := context.WithTimeout(ctx, aheadWait)
		fetches := client.PollRecords(wait, pollMax)
		cancel()
		if ctx.Err() != nil {
			return latest, ctx.Err()
		}
		for _, f := range fetches.Errors() {
			if !errors.Is(f.Err, context.DeadlineExceeded) {
				return latest, f.Err
			}
		}
		before := next
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; !r.Attrs.IsControl() && r.Offset < end {
				latest.Note(read(r, s.template))
			}
		})
		switch {
		case next > before:
			silent = false
		case silent: // the leader was there all the time: its last records are compacted away
			return latest, nil
		default:
			silent = true
			if err := leaderAnswers(ctx, client, s.config.Topic, n); err != nil {
				return latest, err
			}
		}
	}
	return latest, nil
}

// leaderAnswers asks a partition's leader where it ends.
func leaderAnswers(ctx context.Context, client *kgo.Client, topic string, n int32) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	req, t, p := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic(),
		kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = n, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return fmt.Errorf("the leader of partition %d does not say where it ends", n)
	}
	return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
}
