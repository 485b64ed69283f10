package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// ahead is a look at the records of a partition before any of them is carried out. The partition waits for it.
type ahead struct {
	firstRead postdate.Time // of a first read ([Source.first])
	until     int64         // the offset after the last record that it reads
	cancel    context.CancelFunc
	done      chan struct{}

	// Once done is closed:
	latest ingest.Latest
	end    int64 // the offset after the last record that latest knows
	err    error
}

// aheadWait is how long a look waits for records before it asks whether there are any.
const aheadWait = 2 * time.Second

// fetchByName is the last version of a fetch that names its topic. Later ones have an id, which not all brokers know.
const fetchByName = 12

// begin notes which of the partitions that come to this member were never read.
func (s *Source) begin(_ context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset,
	error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, o := range offsets[s.config.Topic] {
		if delete(s.first, n); o.EpochOffset().Offset < 0 {
			s.first[n] = postdate.WallOf(time.Now())
		}
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
	a.firstRead = s.first[p.number]
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
		a.latest, a.end, a.err = s.look(ctx, p.number, from, a.until)
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
		delete(s.first, p.number)
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

// committable says whether what is done of a partition may be committed. Of a first read nothing is before all of
// it is done: after a restart it would be the first no more, and what is left would not be marked.
func (p *partition) committable() bool {
	return p.done != nil && (p.ahead == nil || p.ahead.firstRead == 0 || p.next >= min(p.ahead.end, p.ahead.until))
}

// rest lets a partition wait.
func (s *Source) rest(p *partition, d time.Duration) {
	p.retryAt = time.Now().Add(d)
	s.client.PauseFetchPartitions(map[string][]int32{s.config.Topic: {p.number}})
}

// look reads a partition from an offset up to end. It is no member of the group. known is the offset after the last
// record that it saw.
func (s *Source) look(ctx context.Context, n int32, from, end int64) (latest ingest.Latest, known int64, err error) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), fetchByName)
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.ClientID("postdate-ingest-ahead"), kgo.DisableClientMetrics(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.config.Topic: {n: kgo.NewOffset().At(from)}}),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.FetchMaxWait(aheadWait / 4), kgo.MaxVersions(versions)}, s.config.Connect...)...)
	if err != nil {
		return latest, from, err
	}
	defer client.Close()
	known = from
	for next := from; next < end; {
		wait, cancel := context.WithTimeout(ctx, aheadWait)
		fetches := client.PollRecords(wait, pollMax)
		cancel()
		if ctx.Err() != nil {
			return latest, known, ctx.Err()
		}
		for _, f := range fetches.Errors() {
			if !errors.Is(f.Err, context.DeadlineExceeded) {
				return latest, known, f.Err
			}
		}
		before := next
		fetches.EachRecord(func(r *kgo.Record) {
			if next = r.Offset + 1; !r.Attrs.IsControl() && r.Offset < end {
				latest.Note(read(r, s.template))
				known = next
			}
		})
		if next > before {
			continue
		}
		if over, err := s.nothingFrom(ctx, client, n, next, end); over || err != nil {
			return latest, known, err
		}
	}
	return latest, known, nil
}

// nothingFrom says whether a partition has no records from an offset up to end: the last ones may be compacted away.
// Only an answer to a fetch can say so. Silence cannot, even if other requests are answered: they do not wait for a
// fetch that is slow.
func (s *Source) nothingFrom(ctx context.Context, client *kgo.Client, n int32, next, end int64) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	for next < end {
		p, err := s.fetch(ctx, client, n, next)
		if p == nil || err != nil {
			return false, err
		}
		if p.ErrorCode == kerr.OffsetOutOfRange.Code {
			start, err := s.startOf(ctx, client, n)
			if start <= next || err != nil {
				return false, err
			}
			next = start
			continue
		}
		f, after := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
			Topic: s.config.Topic, Partition: n, Offset: next, IsolationLevel: kgo.ReadCommitted(),
		}, p, kgo.DefaultDecompressor(), nil)
		switch {
		case f.Err != nil:
			return false, f.Err
		case len(f.Records) > 0:
			return f.Records[0].Offset >= end, nil
		case after > next: // a batch without records stays
			next = after
		case len(p.RecordBatches) > 0:
			return false, nil
		case p.LastStableOffset < end:
			return false, fmt.Errorf("its leader has it up to offset %d, and it ended at %d before",
				p.LastStableOffset, end)
		default:
			return true, nil
		}
	}
	return true, nil
}

// fetch asks a partition's leader for the records from an offset. It returns nil if that does not say, as under a
// quota.
func (s *Source) fetch(ctx context.Context, client *kgo.Client, n int32, from int64) (
	*kmsg.FetchResponseTopicPartition, error) {
	leader, _, err := client.PartitionLeader(s.config.Topic, n)
	if leader < 0 || err != nil {
		return nil, errors.Join(errors.New("it has no leader"), err)
	}
	req, t, p := kmsg.NewPtrFetchRequest(), kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = n, from, 1 // the first batch comes whole
	t.Topic, t.Partitions = s.config.Topic, append(t.Partitions, p)
	req.Topics, req.IsolationLevel = append(req.Topics, t), 1 // committed ones
	resp, err := req.RequestWith(ctx, client.Broker(int(leader)))
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, nil
	}
	return &resp.Topics[0].Partitions[0], nil
}

// startOf asks a partition's leader for the first offset that it has.
func (s *Source) startOf(ctx context.Context, client *kgo.Client, n int32) (int64, error) {
	req, t, p := kmsg.NewPtrListOffsetsRequest(), kmsg.NewListOffsetsRequestTopic(),
		kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp = n, -2
	t.Topic, t.Partitions = s.config.Topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("its leader does not say where it begins")
	}
	p0 := resp.Topics[0].Partitions[0]
	return p0.Offset, kerr.ErrorForCode(p0.ErrorCode)
}
