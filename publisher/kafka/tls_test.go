package kafka_test

import (
	"context"
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/certs"
	"github.com/postdate/postdate/internal/certtest"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/publishertest"
)

// Over TLS messages go as without it. If a certificate is not as it should be, they are Down,
// never Unknown, with words that say what to do.
func TestTLS(t *testing.T) {
	authority, stranger := certtest.NewAuthority(t), certtest.NewAuthority(t)
	cert, key := authority.Issue(t, "broker")
	broker := kafkatest.StartTLS(t, kafkatest.TLS{Both: certtest.Both(t, cert, key), CA: authority.File})
	known, unknown := issue(t, authority, "client"), issue(t, stranger, "client")
	unknown.CA = authority.File
	client := kafkatest.NewClient(t, broker.Address)
	topic := publishertest.Unique("t")
	client.CreateTopic(topic, 2, nil)
	for _, test := range []struct {
		name, address string
		files         certs.Files
		change        func(*tls.Config)
		want          string // "": it is published
	}{
		{"good", broker.Secure, known, nil, ""},
		{"unknown authority", broker.Secure, certs.Files{CA: stranger.File}, nil, "name the file with the authority's certificate in --kafka-ca"},
		{"no certificate", broker.Secure, certs.Files{CA: authority.File}, nil, "--kafka-cert and --kafka-key"},
		{"another authority's certificate", broker.Secure, unknown, nil, "--kafka-cert and --kafka-key"},
		{"another name", broker.Secure, known, func(c *tls.Config) { c.ServerName = "elsewhere" }, "address it by a name that its certificate has"},
		{"expired", broker.Secure, known, func(c *tls.Config) { c.Time = func() time.Time { return time.Now().Add(48 * time.Hour) } }, "renew its certificate"},
		{"no TLS at that port", broker.Address, known, nil, "Kafka cannot be"},
	} {
		t.Run(test.name, func(t *testing.T) {
			secure, err := test.files.Client("--kafka")
			if err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(secure)
			}
			p := publishertest.Closing(t, newPublisher(t, kafka.Config{Seeds: []string{test.address}, TLS: secure}))
			results := p.Publish(context.Background(), postdate.Channel("kafka:"+topic), publishertest.Batch("m", 100))
			for _, r := range results {
				switch {
				case test.want == "" && r.Outcome != publisher.Confirmed,
					test.want != "" && (r.Outcome != publisher.Down || !strings.Contains(r.Reason, test.want)):
					t.Fatalf("%v: %s", r.Outcome, r.Reason)
				}
			}
		})
	}
	if n := len(client.TakeAll(topic, kafkatest.ReadCommitted)); n != 100 {
		t.Errorf("%d messages are in the topic", n)
	}
}

// issue makes a certificate of an authority, whose servers its user trusts.
func issue(t *testing.T, a *certtest.Authority, name string) certs.Files {
	t.Helper()
	cert, key := a.Issue(t, name)
	return certs.Files{Cert: cert, Key: key, CA: a.File}
}
