// Package kafka takes schedules from a Kafka topic. Package ingest decides what the
// records mean.
//
// A record with a value schedules a message. If the value is the API's JSON with a
// scheduleId, it creates that message, or replaces it while it is PENDING. A record
// without a value cancels the message whose id is its key. If the Taker's are tasks, each
// record is a task definition instead. If the topic is compacted, its last record of a key counts.
//
// # Promises
//
//   - A partition's offset is committed when everything before it is durable in the
//     store, or is in the topic of rejected records and acknowledged there by all in-sync
//     replicas. After a crash in between, the records are read again.
//   - A record that is read again schedules nothing twice, and does not undo a later
//     record: each record is named by its place, and each message keeps the place that
//     it came from.
//   - Records of a partition take effect in their order. A record that the store cannot
//     take yet holds up its own partition only.
//   - No topic is ever created here. If the topic of rejected records is missing, a
//     partition with a bad record stops, says so, and continues once the topic exists.
//
// The nodes of a cluster share the partitions as one consumer group. A group without
// committed offsets begins with the oldest record. Records of aborted transactions are
// skipped.
//
// # Limits
//
// A record's headers must be text without control characters. If a member of the group
// is stopped for longer than Kafka's session timeout, between its look at a message and
// its cancel, it may cancel a message that another member has meanwhile scheduled under
// the same id.
package kafka

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// Key is the placeholder for a record's key in a channel.
const Key = "{key}"

const (
	groupDefault  = "postdate"
	topicBytesMax = 249

	pollMax       = 1_000 // records per poll
	pollEvery     = 5 * time.Second
	workTimeout   = 20 * time.Second // less than Kafka gives a member to release a partition
	commitTimeout = 10 * time.Second
	checkEvery    = 10 * time.Second

	// The wait before a retry doubles from the first to the last.
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 10 * time.Second
)

// Config is what a Source needs. Connect, Topic and Taker have no defaults.
type Config struct {
	// Connect has the client library's options to reach the brokers and log in.
	Connect []kgo.Opt

	Topic    string
	Channel  string // where records go that name no channel, or all after a "!"; may contain [Key]
	Group    string // the consumer group; "postdate" by default
	Rejected string // the topic of rejected records; by default Topic + ".postdate-rejected"
	Taker    *ingest.Taker
	Log      *slog.Logger

	// Compacted: the last record of a key counts. Before the node works on records, it looks for
	// later ones of the same keys, up to where the partition ends at that time.
	Compacted bool
}

// Source consumes one topic.
type Source struct {
	config   Config
	template ingest.Template
	client   *kgo.Client

	taking  context.Context // ends when the source shall take no more records
	close   context.CancelFunc
	cut     context.CancelFunc // aborts everything immediately
	stopped chan struct{}
	checks  sync.WaitGroup

	working    sync.Mutex // held while partitions are worked on, so that none is given away
	partitions map[int32]*partition

	mu      sync.Mutex
	first   map[int32]postdate.Time // partitions of which nothing was ever committed → when they came here
	reasons map[string]string       // what is at fault → why records wait
}

// Start begins to consume in the background, until Close or the end of ctx, which aborts
// the work in progress. Errors are sentences about the configuration.
func Start(ctx context.Context, c Config) (*Source, error) {
	if c.Rejected == "" {
		c.Rejected = c.Topic + ingest.RejectedSuffix
	}
	if c.Group == "" {
		c.Group = groupDefault
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	switch {
	case c.Topic == "" || len(c.Rejected) > topicBytesMax:
		return nil, postdate.E(postdate.KindInvalid,
			"the topic to take schedules from must have a name of 1 to %d bytes",
			topicBytesMax-len(ingest.RejectedSuffix))
	case c.Taker == nil:
		return nil, postdate.E(postdate.KindInternal, "nothing carries out what comes from topic %q", c.Topic)
	}
	s := &Source{
		config: c, stopped: make(chan struct{}),
		partitions: map[int32]*partition{}, first: map[int32]postdate.Time{}, reasons: map[string]string{},
	}
	var err error
	if s.template, err = ingest.ParseTemplate(c.Channel, Key, c.Taker.CheckChannel); err != nil {
		return nil, err
	}
	opts := append([]kgo.Opt{kgo.ClientID("postdate-ingest"), kgo.DisableClientMetrics()}, c.Connect...)
	s.client, err = kgo.NewClient(append(opts,
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.OnPartitionsRevoked(s.lost), kgo.OnPartitionsLost(s.lost), kgo.AdjustFetchOffsetsFn(s.begin),
		kgo.MetadataMaxAge(checkEvery), kgo.MetadataMinAge(backoffFirst), kgo.UnknownTopicRetries(1),
		kgo.ProducerLinger(0),
	)...)
	if err != nil {
		return nil, postdate.E(postdate.KindInvalid, "the Kafka settings cannot be used: %w", err)
	}
	ctx, s.cut = context.WithCancel(ctx)
	s.taking, s.close = context.WithCancel(ctx)
	s.checks.Go(s.check)
	go s.run(ctx)
	return s, nil
}

// Ready returns why some or all records wait at present, or nil if none does.
func (s *Source) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fault, reason := range s.reasons {
		if fault == rejectedTopic {
			continue // without a bad record, nothing waits for it
		}
		return postdate.E(postdate.KindUnavailable, "schedules from the Kafka topic %q wait: %s",
			s.config.Topic, reason)
	}
	return nil
}

// because records the reason why a fault makes records wait; "" clears it. It logs each
// change once.
func (s *Source) because(fault, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reasons[fault] == reason {
		return
	}
	if reason == "" {
		delete(s.reasons, fault)
		s.config.Log.Info("schedules are taken from a Kafka topic again", "topic", s.config.Topic, "was", fault)
		return
	}
	s.reasons[fault] = reason
	s.config.Log.Warn("schedules from a Kafka topic wait", "topic", s.config.Topic, "at", fault, "reason", reason)
}

// Close takes no more records, finishes and commits what is in hand, until ctx ends at
// the latest, and leaves the group.
func (s *Source) Close(ctx context.Context) error {
	s.close()
	var err error
	select {
	case <-s.stopped:
	case <-ctx.Done():
		err = postdate.E(postdate.KindUnknown, "stopped taking schedules from the Kafka topic %q before all that was "+
			"in hand was done; it is read again: %w", s.config.Topic, ctx.Err())
		s.cut()
		<-s.stopped
	}
	s.cut()
	s.checks.Wait()
	return err
}

// run polls, works and commits until the source is closed.
func (s *Source) run(ctx context.Context) {
	defer close(s.stopped)
	defer s.client.CloseAllowingRebalance()
	for s.taking.Err() == nil {
		s.poll()
		s.work(ctx)
		s.client.AllowRebalance()
	}
}

// poll waits for records or for the time of the next retry.
func (s *Source) poll() {
	ctx, cancel := context.WithTimeout(s.taking, s.wait())
	defer cancel()
	fetches := s.client.PollRecords(ctx, pollMax)
	s.working.Lock()
	defer s.working.Unlock()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if f.Topic != s.config.Topic {
			return // not a partition: it reports the end of ctx
		}
		if f.Err != nil {
			s.because("fetching", f.Err.Error())
			return
		}
		s.because("fetching", "")
		p := s.partitions[f.Partition]
		if p == nil {
			p = &partition{number: f.Partition}
			s.partitions[p.number] = p
		}
		p.end, p.stable = f.HighWatermark, f.LastStableOffset
		for _, r := range f.Records {
			p.records, p.commands = append(p.records, r), append(p.commands, read(r, s.template))
			p.aside = append(p.aside, false)
		}
	})
}

// lost forgets partitions that move to another member. That member reads the
// uncommitted records again.
func (s *Source) lost(_ context.Context, client *kgo.Client, lost map[string][]int32) {
	s.working.Lock()
	defer s.working.Unlock()
	for _, n := range lost[s.config.Topic] {
		if p := s.partitions[n]; p != nil && p.ahead != nil {
			p.ahead.cancel()
		}
		delete(s.partitions, n)
		client.ResumeFetchPartitions(map[string][]int32{s.config.Topic: {n}})
		s.because(partitionName(n), "")
	}
}
