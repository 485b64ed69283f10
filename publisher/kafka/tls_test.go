package kafka_test

import (
	"crypto/tls"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certtest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
)

func TestTLS(t *testing.T) {
	authority := certtest.NewAuthority(t)
	broker := kafkatest.StartTLS(t, kafkatest.TLS{Both: certtest.Both(t, authority.Issue(t, "broker")), CA: authority.File})
	client := kafkatest.NewClient(t, broker.Address)
	topic := publishertest.Unique("t")
	client.CreateTopic(topic, 2, nil)
	publishertest.RunTLS(t, publishertest.TLSHarness{
		Flag: "--kafka", Known: authority.Issue(t, "client"), Stranger: certtest.NewAuthority(t).Issue(t, "client"),
		Good: []string{broker.Secure}, Plain: broker.Address, PlainReason: "Kafka cannot be",
		New: func(t *testing.T, address string, secure *tls.Config) publisher.Publisher {
			return newPublisher(t, kafka.Config{Seeds: []string{address}, TLS: secure})
		},
		Channel: postdate.Channel("kafka:" + topic),
		Count:   func() int { return len(client.TakeAll(topic, kafkatest.ReadCommitted)) },
	})
}
