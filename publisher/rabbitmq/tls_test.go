package rabbitmq_test

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certtest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// The login is a password, or the certificate.
func TestTLS(t *testing.T) {
	authority := certtest.NewAuthority(t)
	broker := rabbitmqtest.StartTLS(t, rabbitmqtest.TLS(authority.Issue(t, "broker")))
	client := rabbitmqtest.NewClient(t, broker.URL)
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	publishertest.RunTLS(t, publishertest.TLSHarness{
		Flag: "--rabbitmq", Known: authority.Issue(t, "guest"), Stranger: certtest.NewAuthority(t).Issue(t, "guest"),
		Good:  []string{"amqps://guest:guest@" + broker.Secure + "/", "amqps://" + broker.Secure + "/?auth_mechanism=external"},
		Plain: strings.Replace(broker.URL, "amqp:", "amqps:", 1), PlainReason: "speaks no TLS",
		New: func(t *testing.T, url string, secure *tls.Config) publisher.Publisher {
			return newPublisher(t, rabbitmq.Config{URL: url, TLS: secure})
		},
		Channel: postdate.Channel("rabbitmq:" + queue),
		Count:   func() int { return len(client.TakeAll(queue)) },
	})
}
