package kafkatest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long a client waits for what must happen.
const patience = 60 * time.Second

// Client sees a broker's topics as an operator and a consumer would. Its methods fail the test
// if the broker refuses. It is safe for concurrent use, and connects anew for each call, so it
// keeps working after an outage of the broker.
type Client struct {
	t       testing.TB
	address string
}

// NewClient makes a client of the broker at address.
func NewClient(t testing.TB, address string) Client { return Client{t: t, address: address} }

// do runs f with a connected client.
func (c Client) do(f func(context.Context, *kgo.Client) error, opts ...kgo.Opt) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	opts = append(opts, kgo.SeedBrokers(c.address), kgo.DisableClientMetrics())
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	if err := f(ctx, cl); err != nil {
		c.t.Fatal(err)
	}
}

// CreateTopic makes a topic with one replica and returns when it has leaders.
// config is the topic's own, for example max.message.bytes; nil for none.
func (c Client) CreateTopic(topic string, partitions int, config map[string]string) {
	c.t.Helper()
	c.do(func(ctx context.Context, cl *kgo.Client) error {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = topic, int32(partitions), 1
		for name, value := range config {
			entry := kmsg.NewCreateTopicsRequestTopicConfig()
			entry.Name, entry.Value = name, &value
			t.Configs = append(t.Configs, entry)
		}
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Topics, req.TimeoutMillis = []kmsg.CreateTopicsRequestTopic{t}, 30_000
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		for err == nil && !led(ctx, cl, topic, partitions) {
			err = ctx.Err()
		}
		return err
	})
}

// led reports whether each partition of the topic has a leader.
func led(ctx context.Context, cl *kgo.Client, topic string, partitions int) bool {
	resp, err := describe(ctx, cl, topic)
	if err != nil || len(resp.Partitions) < partitions {
		return false
	}
	for _, p := range resp.Partitions {
		if p.ErrorCode != 0 || p.Leader < 0 {
			return false
		}
	}
	return true
}

// describe asks a broker for a topic's metadata.
func describe(ctx context.Context, cl *kgo.Client, topic string) (kmsg.MetadataResponseTopic, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	return resp.Topics[0], nil
}

// DeleteTopic deletes a topic and its records.
func (c Client) DeleteTopic(topic string) {
	c.t.Helper()
	c.do(func(ctx context.Context, cl *kgo.Client) error {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &topic
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames, req.Topics, req.TimeoutMillis = []string{topic}, []kmsg.DeleteTopicsRequestTopic{t}, 30_000
		resp, err := req.RequestWith(ctx, cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		for err == nil && !gone(ctx, cl, topic) { // the broker learns it later than the controller
			err = ctx.Err()
		}
		return err
	})
}

// gone reports whether the broker does not know the topic.
func gone(ctx context.Context, cl *kgo.Client, topic string) bool {
	resp, err := describe(ctx, cl, topic)
	return err == nil && kerr.ErrorForCode(resp.ErrorCode) == kerr.UnknownTopicOrPartition
}

// Isolation says what a consumer sees of transactions.
type Isolation int8

// The isolation levels. Under ReadCommitted a topic ends at the first open transaction, and
// aborted records are never seen.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// Take waits until at least n records are in the topic and returns all of them, from the
// beginning, in order within each partition. It removes nothing.
func (c Client) Take(topic string, n int, level Isolation) []*kgo.Record {
	c.t.Helper()
	opts := []kgo.Opt{
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(50 * time.Millisecond), kgo.KeepControlRecords(),
	}
	if level == ReadCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	var got taken
	c.do(func(ctx context.Context, cl *kgo.Client) error {
		if err := got.until(ctx, cl, func() bool { return len(got.records) >= n }); err != nil {
			c.t.Errorf("topic %s: %d of %d records after %s", topic, len(got.records), n, patience)
			return err
		}
		ends, err := ends(ctx, cl, topic, level)
		if err != nil {
			return err
		}
		return got.until(ctx, cl, func() bool { return got.reached(ends) })
	}, opts...)
	return got.records
}

// TakeAll returns all records that are in the topic.
func (c Client) TakeAll(topic string, level Isolation) []*kgo.Record {
	c.t.Helper()
	return c.Take(topic, 0, level)
}

// taken is what a consumer has seen so far.
type taken struct {
	records []*kgo.Record   // without those that only mark a transaction's end
	next    map[int32]int64 // partition -> the offset after the last one seen
}

// until polls until done.
func (g *taken) until(ctx context.Context, cl *kgo.Client, done func() bool) error {
	for !done() {
		pause, cancel := context.WithTimeout(ctx, time.Second)
		fetches := cl.PollFetches(pause)
		cancel()
		fetches.EachRecord(func(r *kgo.Record) {
			if g.next == nil {
				g.next = map[int32]int64{}
			}
			g.next[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				g.records = append(g.records, r)
			}
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return nil
}

func (g *taken) reached(ends map[int32]int64) bool {
	for partition, end := range ends {
		if g.next[partition] < end {
			return false
		}
	}
	return true
}

// ends returns the offset at which each partition ends for a consumer.
func ends(ctx context.Context, cl *kgo.Client, topic string, level Isolation) (map[int32]int64, error) {
	meta := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = &topic
	meta.Topics = append(meta.Topics, mt)
	found, err := meta.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	for _, p := range found.Topics[0].Partitions {
		lp := kmsg.NewListOffsetsRequestTopicPartition()
		lp.Partition, lp.Timestamp = p.Partition, -1
		t.Partitions = append(t.Partitions, lp)
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.IsolationLevel, req.Topics = int8(level), []kmsg.ListOffsetsRequestTopic{t}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	all := map[int32]int64{}
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, err
			}
			all[p.Partition] = p.Offset
		}
	}
	return all, nil
}
