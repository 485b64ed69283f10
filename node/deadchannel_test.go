package node_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// BenchmarkDeadChannel shows how a dead channel affects others: three channels get the same
// load, the broker of one is killed, and then it comes back. It reports the lateness of the
// other two in each phase, and its ratio to the first.
func BenchmarkDeadChannel(b *testing.B) {
	const phase, perSecond = 15 * time.Second, 300
	rabbit, broker := rabbitmqtest.Start(b), kafkatest.Start(b)
	rabbitmqtest.NewClient(b, rabbit.URL).Declare("dies", nil)
	topics := kafkatest.NewClient(b, broker.Address)
	topics.CreateTopic("lives", 4, map[string]string{"message.timestamp.type": "LogAppendTime"})
	c := config(b)
	c.RabbitMQ, c.Kafka = rabbit.URL, node.Kafka{Seeds: []string{broker.Address}}
	_, api := start(b, c)
	var mu sync.Mutex
	late := map[string]time.Duration{} // by id
	end := follow(b, api, "lives", func(a nodetest.Arrival) {
		mu.Lock()
		defer mu.Unlock()
		late[a.ScheduleID] = a.DeliveredAt.Sub(a.ExecutionTime)
	})
	due := map[string]time.Time{}
	load := func(name string) {
		for begin, n := time.Now(), 0; time.Since(begin) < phase; n++ {
			<-time.After(time.Until(begin.Add(time.Duration(n) * 100 * time.Millisecond)))
			var batch []client.Message
			for i := range perSecond / 10 {
				at := begin.Add(time.Second + time.Duration(n*perSecond/10+i)*time.Second/perSecond).Truncate(time.Millisecond)
				for _, channel := range []string{"rabbitmq:dies", "inbox:lives", "kafka:lives"} {
					id := fmt.Sprintf("%s.%s.%d.%d", name, channel[:5], n, i)
					due[id] = at
					batch = append(batch, client.Message{ScheduleID: id, Channel: channel, ExecutionTime: at, Payload: fmt.Append(nil, i)})
				}
			}
			if _, err := api.ScheduleAll(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		}
	}
	for b.Loop() {
		load("warm-up")
		load("before")
		rabbit.Kill()
		load("dead")
		rabbit.Restart()
		load("back")
	}
	if err := api.AwaitNonePending(patient(b)); err != nil {
		b.Fatal(err)
	}
	end()
	for _, r := range topics.TakeAll("lives", kafkatest.ReadCommitted) {
		id := header(r, "postdate-schedule-id")
		late[id] = r.Timestamp.Sub(due[id])
	}
	for _, channel := range []string{"inbox", "kafka"} {
		mean, p99 := summary(late, "before."+channel)
		b.Logf("%s before: mean %v, p99 %v", channel, mean, p99)
		for _, phase := range []string{"dead", "back"} {
			thenMean, then99 := summary(late, phase+"."+channel)
			b.Logf("%s %s: mean %v, p99 %v", channel, phase, thenMean, then99)
			b.ReportMetric(float64(thenMean)/float64(mean), channel+"-"+phase+"-mean-ratio")
			b.ReportMetric(float64(then99)/float64(p99), channel+"-"+phase+"-p99-ratio")
		}
	}
}

// summary returns the mean and p99 lateness of the ids with the prefix. Both brokers report
// whole milliseconds, so the median says little.
func summary(late map[string]time.Duration, prefix string) (mean, p99 time.Duration) {
	var all []time.Duration
	var sum time.Duration
	for id, d := range late {
		if len(id) > len(prefix) && id[:len(prefix)] == prefix {
			all = append(all, d)
			sum += d
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0, 0
	}
	return sum / time.Duration(len(all)), all[len(all)*99/100]
}
