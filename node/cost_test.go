package node_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// BenchmarkClusterCost counts the commands that a cluster of three nodes sends to MongoDB, with
// few buckets and with many: when idle, and for each 1,000 messages scheduled and delivered to
// an inbox. It also counts the partition records and leases that an idle cluster reads. It
// shows that neither a cycle's round trips nor an idle cluster's reads grow with the number of
// buckets.
func BenchmarkClusterCost(b *testing.B) {
	for _, buckets := range []int{64, 1024} {
		b.Run(fmt.Sprintf("buckets=%d", buckets), func(b *testing.B) { clusterCost(b, buckets) })
	}
}

func clusterCost(b *testing.B, buckets int) {
	const idle, count = 10 * time.Second, 5_000
	var commands, locks atomic.Int64
	uri := mongotest.Fresh(b)
	m := newTeam(b, func(c *node.Config, p *node.Parts) {
		config := mongo.DefaultConfig(uri)
		config.Buckets, config.Log = buckets, slog.New(slog.NewTextHandler(io.Discard, nil))
		monitor := &event.CommandMonitor{
			Started:   func(context.Context, *event.CommandStartedEvent) { commands.Add(1) },
			Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) { locks.Add(lockRecords(e.Reply)) },
		}
		s, err := mongo.OpenWatched(b.Context(), config, monitor)
		if err != nil {
			b.Fatal(err)
		}
		c.Store, p.Store = uri, s
	})
	for _, name := range []string{"a", "b", "c"} {
		m.add(name)
		defer m.remove(name)
	}
	m.awaitOwners("a", "b", "c")
	for b.Loop() {
		before, begin, read := commands.Load(), time.Now(), locks.Load()
		<-time.After(idle)
		perSecond := float64(commands.Load()-before) / time.Since(begin).Seconds()
		b.ReportMetric(float64(locks.Load()-read)/time.Since(begin).Seconds()/3, "idle-lock-records/s/node")
		b.ReportMetric(perSecond/3, "idle-commands/s/node")

		api := nodetest.NewClient(m.address())
		before, begin = commands.Load(), time.Now()
		for first := 0; first < count; first += 500 {
			batch := make([]client.Message, 500)
			for i := range batch {
				due := begin.Add(5*time.Second + time.Duration(first+i)*time.Millisecond)
				batch[i] = client.Message{ScheduleID: fmt.Sprintf("c-%d-%d", b.N, first+i), Channel: "inbox:cost", ExecutionTime: due, Payload: fmt.Append(nil, i)}
			}
			if _, err := api.ScheduleAll(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
		<-time.After(time.Until(begin.Add(12 * time.Second)))
		if err := api.AwaitNonePending(patient(b)); err != nil {
			b.Fatal(err)
		}
		extra := float64(commands.Load()-before) - perSecond*time.Since(begin).Seconds()
		b.ReportMetric(extra/count*1000, "commands/1000-delivered")
		api.Close()
	}
}

// lockRecords counts the partition records and leases in an answer.
func lockRecords(reply bson.Raw) (n int64) {
	ns, _ := reply.Lookup("cursor", "ns").StringValueOK()
	if !strings.HasSuffix(ns, ".partitions") && !strings.HasSuffix(ns, ".leases") {
		return 0
	}
	for _, batch := range []string{"firstBatch", "nextBatch"} {
		if all, ok := reply.Lookup("cursor", batch).ArrayOK(); ok {
			records, _ := all.Values()
			n += int64(len(records))
		}
	}
	return n
}
