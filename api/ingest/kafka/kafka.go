// Package kafka takes schedules from a Kafka topic. What the records mean is package
// ingest's.
//
// A record with a value schedules. Where it is the API's JSON with a scheduleId, it
// makes that message, or replaces it while it is PENDING. A record without a value
// cancels the message whose id is its key.
//
// # Promises
//
//   - A partition's offset is committed when everything before it is durable in the
//     store, or lies, acknowledged by all in-sync replicas, in the topic of rejected
//     records. Whatever ends in between, the records are read again.
//   - What is read again schedules nothing twice, and brings nothing back that a later
//     record replaced: each record is named by its place, and each message knows the
//     place that it came from.
//   - Records of a partition take effect in their order. A record that the store cannot
//     take now holds its partition, and no other.
//   - No topic is ever created here. Where that for rejected records is missing, a
//     partition with a bad record stands still, says so, and goes on when it is there.
//
// The nodes of a cluster share the partitions as one consumer group. A group without
// committed offsets begins with the oldest record, and reads what was committed
// only: records of aborted transactions are passed over.
//
// # Limits
//
// A record's headers must be texts without control characters. A member of the group
// that was stopped for longer than Kafka's session timeout, between its look at a
// message and its cancel, may cancel what another member has scheduled anew under
// the same id meanwhile.
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

// Key is the placeholder for a record's own key in a channel.
const Key = "{key}"

const (
	groupDefault   = "postdate"
	rejectedSuffix = ".postdate-rejected"
	topicBytesMax  = 249

	pollMax       = 1_000 // records at a time
	pollEvery     = 5 * time.Second
	workTimeout   = 20 * time.Second // less than Kafka gives a member to let go of a partition
	commitTimeout = 10 * time.Second
	checkEvery    = 10 * time.Second

	// What could not be done is tried again: the wait doubles from the first to the
	// last.
	backoffFirst = 100 * time.Millisecond
	backoffLast  = 10 * time.Second
)

// Config is what a Source needs. Connect, Topic and Taker have no defaults.
type Config struct {
	// Connect is how to reach the brokers and log in, as the client library has it.
	Connect []kgo.Opt

	Topic    string
	Channel  string // where records go that do not say; [Key] may stand in it
	Group    string // the consumer group; "postdate" by default
	Rejected string // the topic of rejected records; by default Topic + ".postdate-rejected"
	Taker    *ingest.Taker
	Log      *slog.Logger
}

// Source consumes one topic.
type Source struct {
	config   Config
	name     string // for metrics and logs
	template ingest.Template
	client   *kgo.Client

	taking  context.Context // ends when nothing new is to be taken
	close   context.CancelFunc
	cut     context.CancelFunc // ends everything at once
	stopped chan struct{}
	checks  sync.WaitGroup

	working    sync.Mutex // held while partitions are worked: none is given away meanwhile
	partitions map[int32]*partition

	mu      sync.Mutex
	reasons map[string]string // why nothing, or not all, is consumed, by what is at fault
}

// Start begins to consume, in the background, until Close or the end of ctx, which
// cuts off what is under way. Errors are sentences about the configuration.
func Start(ctx context.Context, c Config) (*Source, error) {
	if c.Rejected == "" {
		c.Rejected = c.Topic + rejectedSuffix
	}
	if c.Group == "" {
		c.Group = groupDefault
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	switch {
	case c.Topic == "" || len(c.Rejected) > topicBytesMax:
		return nil, postdate.E(postdate.KindInvalid, "the topic to take schedules from must have a name of 1 to %d bytes", topicBytesMax-len(rejectedSuffix))
	case c.Taker == nil:
		return nil, postdate.E(postdate.KindInternal, "nothing carries out what comes from topic %q", c.Topic)
	}
	s := &Source{
		config: c, name: "kafka:" + c.Topic, stopped: make(chan struct{}),
		partitions: map[int32]*partition{}, reasons: map[string]string{},
	}
	var err error
	if s.template, err = ingest.ParseTemplate(c.Channel, Key, c.Taker.CheckChannel); err != nil {
		return nil, err
	}
	opts := append([]kgo.Opt{kgo.ClientID("postdate-ingest"), kgo.DisableClientMetrics()}, c.Connect...)
	s.client, err = kgo.NewClient(append(opts,
		kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.OnPartitionsRevoked(s.lost), kgo.OnPartitionsLost(s.lost),
		kgo.MetadataMaxAge(checkEvery), kgo.MetadataMinAge(backoffFirst), kgo.UnknownTopicRetries(1), kgo.ProducerLinger(0),
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

// Ready says why nothing, or not everything, is consumed at present, or nil.
func (s *Source) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for fault, reason := range s.reasons {
		if fault == rejectedTopic {
			continue // nothing waits for it, as long as nothing is bad
		}
		return postdate.E(postdate.KindUnavailable, "schedules from the Kafka topic %q wait: %s", s.config.Topic, reason)
	}
	return nil
}

// because notes why something at fault keeps records waiting; "": it does not any
// more. The operator hears of it once.
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

// Close takes nothing new, finishes and commits what is in hand, no longer than ctx,
// and leaves the group.
func (s *Source) Close(ctx context.Context) error {
	s.close()
	var err error
	select {
	case <-s.stopped:
	case <-ctx.Done():
		err = postdate.E(postdate.KindUnknown, "stopped taking schedules from the Kafka topic %q before all that was in hand was done; it is read again: %w", s.config.Topic, ctx.Err())
		s.cut()
		<-s.stopped
	}
	s.cut()
	s.checks.Wait()
	return err
}

// run polls, works and commits, until the source is closed.
func (s *Source) run(ctx context.Context) {
	defer close(s.stopped)
	defer s.client.CloseAllowingRebalance()
	for s.taking.Err() == nil {
		s.poll()
		s.work(ctx)
		s.client.AllowRebalance()
	}
}

// poll waits for records, or for the time when something is to be tried again.
func (s *Source) poll() {
	ctx, cancel := context.WithTimeout(s.taking, s.wait())
	defer cancel()
	fetches := s.client.PollRecords(ctx, pollMax)
	s.working.Lock()
	defer s.working.Unlock()
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		if f.Topic != s.config.Topic {
			return // the end of ctx
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
		p.end = f.HighWatermark
		for _, r := range f.Records {
			p.records, p.commands = append(p.records, r), append(p.commands, read(r, s.template))
			p.aside = append(p.aside, false)
		}
	})
}

// lost forgets partitions that another member has from now on. What is not
// committed it reads again.
func (s *Source) lost(_ context.Context, client *kgo.Client, lost map[string][]int32) {
	s.working.Lock()
	defer s.working.Unlock()
	for _, n := range lost[s.config.Topic] {
		delete(s.partitions, n)
		client.ResumeFetchPartitions(map[string][]int32{s.config.Topic: {n}})
		s.because(partitionName(n), "")
	}
}
