package node_test

import (
	"net/http"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/certtest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// A node speaks TLS with whom it speaks, and shows its certificate everywhere: with MongoDB,
// and with RabbitMQ and Kafka, from which it takes schedules and to which it delivers.
func TestTLSEverywhere(t *testing.T) {
	t.Parallel() // it waits for three servers to start
	authority := certtest.NewAuthority(t)
	server, mine := authority.Issue(t, "server"), authority.Issue(t, "guest")
	both := certtest.Both(t, server)
	db := mongotest.StartTLS(t, 1, mongotest.TLS{Both: both, CA: authority.File})
	rabbit := rabbitmqtest.StartTLS(t, rabbitmqtest.TLS(server))
	kafka := kafkatest.StartTLS(t, kafkatest.TLS{Both: both, CA: authority.File})
	queues, topics := rabbitmqtest.NewClient(t, rabbit.URL), kafkatest.NewClient(t, kafka.Address)
	for _, queue := range []string{"in", "out"} {
		queues.Declare(queue, nil)
		topics.CreateTopic(queue, 1, nil)
	}
	c := config(t)
	c.Store, c.Gossip, c.TLS = db.Fresh(), "127.0.0.1:0", node.TLS{Cert: server.Cert, Key: server.Key, ClientCA: authority.File}
	c.RabbitMQ, c.RabbitMQTLS = "amqps://"+rabbit.Secure+"/?auth_mechanism=external", mine
	c.Kafka = node.Kafka{Seeds: []string{kafka.Secure}, TLS: true, Files: mine}
	c.Ingest = []string{"rabbitmq:in=kafka:out", "kafka:in=rabbitmq:out"}
	n, err := node.Start(patient(t), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, n) })

	err = rabbitmqtest.Confirming(t, rabbit.URL).PublishWithContext(t.Context(), "", "in", true, false,
		amqp.Publishing{Body: []byte("of a queue"), Headers: amqp.Table{"x-delay": 1}})
	if err != nil {
		t.Fatal(err)
	}
	send(t, kafka.Address, &kgo.Record{Topic: "in", Value: []byte("of a topic"), Headers: []kgo.RecordHeader{{Key: "x-delay", Value: []byte("1")}}})
	if r := topics.Take("out", 1, kafkatest.ReadCommitted)[0]; string(r.Value) != "of a queue" {
		t.Errorf("%s has arrived", r.Value)
	}
	if d := queues.Take("out", 1, patience)[0]; string(d.Body) != "of a topic" {
		t.Errorf("%s has arrived", d.Body)
	}
	secure, err := mine.Client("--tls")
	if err != nil {
		t.Fatal(err)
	}
	user, err := client.New(client.Config{Servers: []string{"https://" + n.Addr()}, HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}})
	if err != nil {
		t.Fatal(err)
	}
	defer user.Close()
	if _, err := user.Schedule(t.Context(), client.Message{Channel: "rabbitmq:out", Delay: time.Hour, Payload: []byte("1")}); err != nil {
		t.Error(err)
	}
}
