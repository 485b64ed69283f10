package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
)

// The broker is stopped, killed and paused, each under load, and every message is accounted
// for.
func TestBrokerComesAndGoes(t *testing.T) {
	broker := kafkatest.Start(t)
	client := kafkatest.NewClient(t, broker.Address)
	plain := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: []string{broker.Address}, PublishTimeout: 4 * time.Second}))
	fenced := publishertest.Closing(t, newFenced(t, broker.Address, "x", 0))
	for _, c := range []struct {
		name string
		p    *kafka.Publisher
		away func(l *publishertest.Load)
	}{
		{"stopped", plain, func(*publishertest.Load) { broker.Stop(); broker.Restart() }},
		{"killed", plain, func(*publishertest.Load) { broker.Kill(); broker.Restart() }},
		{"killed, fenced", fenced, func(*publishertest.Load) { broker.Kill(); broker.Restart() }},
		{"paused", plain, func(l *publishertest.Load) { broker.Pause(); l.Until(publisher.Unknown, 1); broker.Cont() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			topic := publishertest.Unique("t")
			client.CreateTopic(topic, 4, nil)
			l := publishertest.StartLoad(t, c.p, postdate.Channel("kafka:"+topic))
			c.away(l)
			l.Until(publisher.Confirmed, 500)
			l.End()
			l.Account(idsOf(client.Take(topic, l.Count(publisher.Confirmed), kafkatest.ReadCommitted)))
			l.NoneRefused()
		})
	}
}

func idsOf(records []*kgo.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, string(r.Key))
	}
	return ids
}
