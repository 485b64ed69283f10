package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// BenchmarkPriority shows that what is urgent does not wait for a backlog: 100,000 messages of low
// priority are overdue, and meanwhile some of high priority come in. It reports how late these are, by
// the time of the confirm, in the worst case and in the middle.
func BenchmarkPriority(b *testing.B) {
	rabbit := rabbitmqtest.Start(b)
	for _, to := range []string{"inbox:work", "rabbitmq:work"} {
		b.Run("embedded/"+to, func(b *testing.B) { besideABacklog(b, config(b), rabbit, to) })
		b.Run("mongodb/"+to, func(b *testing.B) {
			c := config(b)
			c.Store = mongotest.Fresh(b)
			besideABacklog(b, c, rabbit, to)
		})
	}
}

func besideABacklog(b *testing.B, c node.Config, rabbit *rabbitmqtest.Broker, to string) {
	const backlog, urgent = 100_000, 60
	queues := rabbitmqtest.NewClient(b, rabbit.URL)
	queues.Declare("work", nil)
	c.RabbitMQ = rabbit.URL
	for turn := 0; b.Loop(); turn++ {
		n, api := start(b, c)
		due := time.Now().Add(20 * time.Second)
		for i := 0; i < backlog; i += 5_000 {
			low := make([]client.Message, 5_000)
			for k := range low {
				low[k] = client.Message{ScheduleID: fmt.Sprint("low-", turn, "-", i+k), Channel: to, ExecutionTime: due, Priority: client.PriorityLow, Payload: []byte("1")}
			}
			if _, err := api.ScheduleAll(b.Context(), low); err != nil {
				b.Fatal(err)
			}
		}
		if time.Now().After(due) {
			b.Fatal("scheduling took too long: the backlog is not due at one time")
		}
		stop(b, n)
		<-time.After(time.Until(due))
		n, err := node.Start(patient(b), c)
		if err != nil {
			b.Fatal(err)
		}
		api.Move(n.Addr())
		for i := range urgent {
			<-time.After(50 * time.Millisecond)
			m := client.Message{ScheduleID: fmt.Sprint("high-", turn, "-", i), Channel: to, ExecutionTime: time.Now(), Priority: client.PriorityHigh, Payload: []byte("1")}
			if _, err := api.Schedule(b.Context(), m); err != nil {
				b.Fatal(err)
			}
		}
		left := 0
		for _, err := range api.List(b.Context(), client.Filter{Status: client.Pending, PageSize: 1_000}) {
			if left++; err != nil {
				b.Fatal(err)
			}
		}
		if err := api.AwaitNonePending(patient(b)); err != nil {
			b.Fatal(err)
		}
		var late []time.Duration
		for i := range urgent {
			m, err := api.Get(b.Context(), fmt.Sprint("high-", turn, "-", i))
			if err != nil {
				b.Fatal(err)
			}
			late = append(late, m.DeliveredAt.Sub(m.ExecutionTime))
		}
		slices.Sort(late)
		b.ReportMetric(float64(late[len(late)-1].Milliseconds()), "worst-ms")
		b.ReportMetric(float64(late[len(late)/2].Milliseconds()), "median-ms")
		b.ReportMetric(float64(left), "low-left")
		stop(b, n)
	}
}
