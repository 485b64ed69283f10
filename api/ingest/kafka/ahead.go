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
	taken  postdate.Time // when it began, if the group has not read the partition before
	end    int64         // the offset after the last record that it sees
	cancel context.CancelFunc
	done   chan struct{}

	// Once done is closed:
	latest ingest.Latest
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

// lookAhead begins a look at a partition's records from an offset up to end.
func (s *Source) lookAhead(p *partition, from, end int64) {
	a := &ahead{end: end, done: make(chan struct{})}
	s.mu.Lock()
	if s.first[p.number] {
		a.taken = postdate.WallOf(time.Now())
	}
	s.mu.Unlock()
	ctx, cancel := context.WithCancel(s.taking)
	a.cancel, p.ahead = cancel, a
	s.checks.Go(func() {
		defer close(a.done)
		defer cancel()
		a.latest, a.err = s.look(ctx, p.number, from, end)
	})
}

// looked says whether a partition can be worked on, and tells its commands which of them are superseded.
func (s *Source) looked(p *partition) bool {
	a := p.ahead
	if a == nil {
		return true
	}
	select {
	case <-a.done:
	default:
		s.rest(p, backoffFirst)
		return false
	}
	if s.taking.Err() != nil {
		return false // it may have been cut short
	}
	if a.err != nil {
		s.because(partitionName(p.number), "the records cannot be looked through: "+a.err.Error())
		s.rest(p, backoffLast/10)
		s.lookAhead(p, p.records[0].Offset, a.end)
		return false
	}
	if p.records[0].Offset >= a.end {
		p.ahead = nil // frees what it knows
		return true
	}
	for _, c := range p.commands {
		c.Superseded = a.latest.Replaced(c)
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
			if silent, err = true, leaderAnswers(ctx, client, s.config.Topic, n); err != nil {
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
