package node_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// BenchmarkNodes measures one node and then three on one replica set of three: how fast they
// accept schedules in batches, and how fast messages due at one instant go out. Nodes and
// database share the machine's cores.
func BenchmarkNodes(b *testing.B) {
	for _, names := range [][]string{{"a"}, {"a", "b", "c"}} {
		b.Run(fmt.Sprintf("nodes=%d", len(names)), func(b *testing.B) {
			uri := mongotest.URI(b, 3)
			m := newTeam(b, func(c *node.Config, _ *node.Parts) { c.Store = uri })
			for _, name := range names {
				m.add(name)
				defer m.remove(name)
			}
			m.awaitOwners(names...)
			for b.Loop() {
				drainAll(b, m)
			}
		})
	}
}

func drainAll(b *testing.B, m *team) {
	const count, batch, callers = 20_000, 500, 6
	instant := time.Now().Add(20 * time.Second)
	begin := time.Now()
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			api := nodetest.NewClient(m.address())
			defer api.Close()
			for first := caller * batch; first < count; first += callers * batch {
				ms := make([]client.Message, batch)
				for i := range ms {
					ms[i] = client.Message{ScheduleID: fmt.Sprintf("s-%d-%d", b.N, first+i), Channel: "inbox:scale", ExecutionTime: instant, Payload: fmt.Append(nil, i)}
				}
				if _, err := api.ScheduleAll(b.Context(), ms); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	took := time.Since(begin)
	if time.Now().After(instant) {
		b.Fatal("this machine took too long to schedule: there was nothing to drain")
	}
	b.ReportMetric(count/took.Seconds(), "schedules/s")
	api := nodetest.NewClient(m.address())
	defer api.Close()
	var last time.Time
	n := 0
	end := follow(b, api, "scale", func(a nodetest.Arrival) {
		n++
		if a.DeliveredAt.After(last) {
			last = a.DeliveredAt
		}
	})
	<-time.After(time.Until(instant))
	if err := api.AwaitNonePending(patient(b)); err != nil {
		b.Fatal(err)
	}
	end()
	if n != count {
		b.Errorf("%d arrived, want %d", n, count)
	}
	b.ReportMetric(count/last.Sub(instant).Seconds(), "drained/s")
}
