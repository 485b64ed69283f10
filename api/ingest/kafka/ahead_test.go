package kafka

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/api/ingest"
)

// The last records of a partition may be compacted away: then a look ends where they were. If the partition's leader
// is away, it ends with an error, and is repeated.
func TestLookAheadOverAGap(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	s := &Source{config: Config{Connect: []kgo.Opt{kgo.SeedBrokers(cluster.ListenAddrs()...)}, Topic: "t"}}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
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
	for _, end := range []int64{4, 9, 3} {
		latest, err := s.look(ctx, 0, 0, end)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for offset := range int64(4) {
			c := &ingest.Command{Key: fmt.Sprint(offset % 2), Place: ingest.Place{Topic: "t", Offset: offset}}
			got += fmt.Sprint(latest.Superseded(c), " ")
		}
		want := "true true false false "
		if end == 3 {
			want = "true false false false "
		}
		if got != want {
			t.Errorf("up to %d:\n got %s\nwant %s", end, got, want)
		}
	}
	cluster.Close()
	if _, err := s.look(ctx, 0, 0, 4); err == nil || ctx.Err() != nil {
		t.Errorf("without a leader: %v", err)
	}
}
