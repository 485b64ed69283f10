package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api/ingest"
)

// lookable has a source of a topic with four records of the keys 0 and 1 in turn.
func lookable(t *testing.T) (context.Context, *kfake.Cluster, *Source) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	s := &Source{config: Config{Connect: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}, Topic: "t"}}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	client, err := kgo.NewClient(append(s.config.Connect, kgo.DefaultProduceTopic("t"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 4 {
		if err := client.ProduceSync(ctx, &kgo.Record{Key: fmt.Append(nil, i%2), Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return ctx, cluster, s
}

// replacedOf says of each of the four records whether a later one has taken its place.
func replacedOf(latest ingest.Latest) (got string) {
	for offset := range int64(4) {
		c := &ingest.Command{Key: fmt.Sprint(offset % 2), Place: ingest.Place{Topic: "t", Offset: offset}}
		got += fmt.Sprint(latest.Superseded(c), " ")
	}
	return got
}

// answerEmpty answers a fetch without records. If end is not 0, it says that the partition has none up to there.
func answerEmpty(req *kmsg.FetchRequest, end int64) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	if end == 0 {
		resp.ThrottleMillis = 500
		return resp
	}
	topic, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
	p.HighWatermark, p.LastStableOffset = end, end
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	resp.Topics = append(resp.Topics, topic)
	return resp
}

// The last records of a partition may be compacted away: then a look ends where they were. If the partition's leader
// is away, or does not know of them yet, it ends with an error, and is repeated.
func TestLookAheadOverAGap(t *testing.T) {
	ctx, cluster, s := lookable(t)
	gap := true
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if f := req.(*kmsg.FetchRequest); gap && f.MaxWaitMillis == 0 && f.Topics[0].Partitions[0].FetchOffset == 4 {
			return answerEmpty(f, 9), nil, true
		}
		return nil, nil, false
	})
	for _, end := range []int64{4, 9, 3} {
		latest, known, err := s.look(ctx, 0, 0, end)
		if err != nil || known != min(end, 4) {
			t.Fatal(known, err)
		}
		want := "true true false false "
		if end == 3 {
			want = "true false false false "
		}
		if got := replacedOf(latest); got != want {
			t.Errorf("up to %d:\n got %s\nwant %s", end, got, want)
		}
	}
	gap = false
	if _, known, err := s.look(ctx, 0, 0, 9); err == nil || ctx.Err() != nil {
		t.Errorf("with a leader that has less: %d %v", known, err)
	}
	cluster.Close()
	if _, _, err := s.look(ctx, 0, 0, 4); err == nil || ctx.Err() != nil {
		t.Errorf("without a leader: %v", err)
	}
}

// Silence is not the end: a broker that is slow, or holds a client to a quota, brings the records later.
func TestLookAheadWaitsForASlowBroker(t *testing.T) {
	ctx, cluster, s := lookable(t)
	asked := 0
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		f := req.(*kmsg.FetchRequest)
		if f.MaxWaitMillis == 0 {
			asked++
		}
		if asked < 3 {
			return answerEmpty(f, 0), nil, true
		}
		return nil, nil, false
	})
	latest, known, err := s.look(ctx, 0, 0, 4)
	if got := replacedOf(latest); got != "true true false false " || known != 4 || err != nil {
		t.Errorf("%s %d %v", got, known, err)
	}
}

// Records may be deleted from the beginning of a partition while it is looked through.
func TestLookAheadAfterDeletion(t *testing.T) {
	ctx, _, s := lookable(t)
	client, err := kgo.NewClient(s.config.Connect...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req, topic, p := kmsg.NewPtrDeleteRecordsRequest(), kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Offset = 4
	topic.Topic, topic.Partitions = "t", append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	if resp, err := req.RequestWith(ctx, client); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}
	if latest, known, err := s.look(ctx, 0, 0, 4); err != nil || known != 0 || replacedOf(latest) != "false false false false " {
		t.Errorf("%s %d %v", replacedOf(latest), known, err)
	}
}

// A first read begins when the partition comes to the node, even if its first record comes much later: no other
// scheduler runs any more then.
func TestFirstReadBeginsWithThePartition(t *testing.T) {
	s := &Source{config: Config{Topic: "t"}, first: map[int32]postdate.Time{}}
	taken := func(committed kgo.Offset) postdate.Time {
		began := postdate.WallOf(time.Now())
		if _, err := s.begin(context.Background(), map[string]map[int32]kgo.Offset{"t": {0: committed}}); err != nil {
			t.Fatal(err)
		}
		begun := postdate.WallOf(time.Now())
		for postdate.WallOf(time.Now()) == begun { // until the clock goes on
		}
		p := &partition{records: []*kgo.Record{{Topic: "t"}}, stable: 1}
		s.lookAhead(p)
		if at := p.ahead.firstRead; at != 0 && (at < began || at > begun) {
			t.Errorf("it is read for the first time at %s, and came between %s and %s", at, began, begun)
		}
		return p.ahead.firstRead
	}
	if taken(kgo.NewOffset().AtStart()) == 0 || taken(kgo.NewOffset().At(0)) != 0 {
		t.Error("a partition is read for the first time if no offset is committed, and only then")
	}
}
