package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// brokers starts a RabbitMQ with a queue and a Kafka with a topic, both named orders. It returns
// the environment in which tests of pages find them. At POSTDATE_TEST_BROKERS, POST /rabbitmq/stop
// and /rabbitmq/start stop and start the RabbitMQ, and GET /rabbitmq counts what it has got. /kafka
// does the same for the Kafka.
func brokers(t *testing.T) []string {
	t.Helper()
	const name = "orders"
	rabbit, kafka := rabbitmqtest.Start(t), kafkatest.Start(t)
	queue, topic := rabbitmqtest.NewClient(t, rabbit.URL), kafkatest.NewClient(t, kafka.Address)
	queue.Declare(name, nil)
	topic.CreateTopic(name, 1, nil)

	control := http.NewServeMux()
	do := func(path string, do func()) {
		control.HandleFunc(path, func(http.ResponseWriter, *http.Request) { do() })
	}
	do("POST /rabbitmq/stop", rabbit.Stop)
	do("POST /rabbitmq/start", rabbit.Restart)
	do("POST /kafka/stop", kafka.Stop)
	do("POST /kafka/start", kafka.Restart)
	control.HandleFunc("GET /rabbitmq", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, queue.Len(name))
	})
	control.HandleFunc("GET /kafka", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, len(topic.TakeAll(name, kafkatest.ReadCommitted)))
	})
	server := httptest.NewServer(control)
	t.Cleanup(server.Close)
	return []string{
		"POSTDATE_TEST_RABBITMQ=" + rabbit.URL,
		"POSTDATE_TEST_KAFKA=" + kafka.Address,
		"POSTDATE_TEST_BROKERS=" + server.URL,
	}
}
