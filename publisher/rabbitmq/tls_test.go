package rabbitmq_test

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
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// Over TLS messages go as without it. If a certificate is not as it should be, they are Down,
// never Unknown, with words that say what to do.
func TestTLS(t *testing.T) {
	authority, stranger := certtest.NewAuthority(t), certtest.NewAuthority(t)
	files, known, unknown := issue(t, authority, "broker"), issue(t, authority, "guest"), issue(t, stranger, "guest")
	broker := rabbitmqtest.StartTLS(t, rabbitmqtest.TLS(files))
	unknown.CA = authority.File
	login := "amqps://guest:guest@" + broker.Secure + "/"
	client := rabbitmqtest.NewClient(t, broker.URL)
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	for _, test := range []struct {
		name, url string
		files     certs.Files
		change    func(*tls.Config)
		want      string // "": it is published
	}{
		{"with a password", login, known, nil, ""},
		{"with the certificate as login", "amqps://" + broker.Secure + "/?auth_mechanism=external", known, nil, ""},
		{"unknown authority", login, certs.Files{CA: stranger.File}, nil, "the authority that signed its certificate is not known here: name the file with the authority's certificate in --rabbitmq-ca"},
		{"no certificate", login, certs.Files{CA: authority.File}, nil, "--rabbitmq-cert and --rabbitmq-key"},
		{"another authority's certificate", login, unknown, nil, "--rabbitmq-cert and --rabbitmq-key"},
		{"another name", login, known, func(c *tls.Config) { c.ServerName = "elsewhere" }, "address it by a name that its certificate has"},
		{"expired", login, known, func(c *tls.Config) { c.Time = func() time.Time { return time.Now().Add(48 * time.Hour) } }, "renew its certificate"},
		{"no TLS at that port", strings.Replace(broker.URL, "amqp:", "amqps:", 1), known, nil, "speaks no TLS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			secure, err := test.files.Client("--rabbitmq")
			if err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(secure)
			}
			p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: test.url, TLS: secure}))
			results := p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), publishertest.Batch("m", 100))
			for _, r := range results {
				switch {
				case test.want == "" && r.Outcome != publisher.Confirmed,
					test.want != "" && (r.Outcome != publisher.Down || !strings.Contains(r.Reason, test.want)):
					t.Fatalf("%v: %s", r.Outcome, r.Reason)
				}
			}
			came := len(client.TakeAll(queue))
			if test.want == "" && came != 100 || test.want != "" && came > 0 {
				t.Errorf("%d messages are in the queue", came)
			}
		})
	}
}

// issue makes a certificate of an authority, whose servers its user trusts.
func issue(t *testing.T, a *certtest.Authority, name string) certs.Files {
	t.Helper()
	cert, key := a.Issue(t, name)
	return certs.Files{Cert: cert, Key: key, CA: a.File}
}
