package node_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/publisher/kafka/kafkatest"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// awaitStatus waits until a message has a status.
func awaitStatus(t testing.TB, c *client.Client, id string, want client.Status) client.Record {
	t.Helper()
	var m client.Record
	err := nodetest.Poll(patient(t), func() (bool, error) {
		var err error
		if m, err = c.Get(t.Context(), id); client.TypeOf(err) == client.NotFound {
			return false, nil
		}
		return m.Status == want, err
	})
	if err != nil {
		t.Fatalf("%s is %s: %v", id, m.Status, err)
	}
	return m
}

// Two tenants have a source each, both pinned. What comes from one belongs to its tenant alone,
// goes where the pin says whatever it says itself, and what comes from the other with the same ids
// does not touch it.
func TestTenantsHaveSources(t *testing.T) {
	url, address := rabbitmqtest.URL(t), kafkatest.URI(t)
	queues, topics := rabbitmqtest.NewClient(t, url), kafkatest.NewClient(t, address)
	name := fmt.Sprint("tenants-", time.Now().UnixNano())
	for _, queue := range []string{name, name + ".postdate-rejected", name + "-pinned", name + "-named"} {
		queues.Declare(queue, nil)
		topics.CreateTopic(queue, 1, nil)
	}
	c := config(t)
	c.AdminKey, c.RabbitMQ, c.Kafka = adminKey, url, node.Kafka{Seeds: []string{address}}
	c.Ingest = []string{"acme@rabbitmq:" + name + "=!rabbitmq:" + name + "-pinned", "b@be.ta@kafka:" + name + "=!kafka:" + name + "-pinned"}
	n, _ := start(t, c)
	operator := clientWith(t, n, adminKey)
	acme, beta := clientWith(t, n, keyFor(t, operator, "acme").Text), clientWith(t, n, keyFor(t, operator, "b@be.ta").Text)

	exchange := rabbitmqtest.Confirming(t, url)
	body := func(id, delay, of string) []byte {
		return fmt.Appendf(nil, `{"scheduleId":%q,"delay":%q,"payload":%q,"channel":"rabbitmq:%s-named"}`, id, delay, of, name)
	}
	for _, p := range []amqp.Publishing{
		{Body: body("same", "1h", "acme")}, {Body: body("only-acme", "1h", "acme")}, {Body: body("body", "0s", "acme")},
		{Body: []byte(`"acme"`), Headers: amqp.Table{"x-delay": 1, "postdate-channel": "rabbitmq:" + name + "-named", "postdate-schedule-id": "header"}},
	} {
		if err := exchange.PublishWithContext(t.Context(), "", name, true, false, p); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range queues.Take(name+"-pinned", 2, patience) {
		if id := d.MessageId; id != "body" && id != "header" || string(d.Body) != `"acme"` {
			t.Errorf("%s has arrived: %s", id, d.Body)
		}
	}
	awaitStatus(t, acme, "same", client.Pending)
	awaitStatus(t, acme, "only-acme", client.Pending)

	record := func(id string, value []byte) *kgo.Record {
		return &kgo.Record{Topic: name, Key: []byte(id), Value: value}
	}
	send(t, address, record("same", body("same", "1h", "beta")), record("same", nil), record("only-acme", nil), record("nobody", nil),
		record("body", body("body", "0s", "beta")), &kgo.Record{Topic: name, Value: []byte(`"beta"`), Headers: []kgo.RecordHeader{
			{Key: "x-delay", Value: []byte("1")}, {Key: "postdate-channel", Value: []byte("rabbitmq:" + name + "-named")}, {Key: "postdate-schedule-id", Value: []byte("header")}}})
	for _, r := range topics.Take(name+"-pinned", 2, kafkatest.ReadCommitted) {
		if id := header(r, "message-id"); id != "body" && id != "header" || string(r.Value) != `"beta"` {
			t.Errorf("%s has arrived: %s", id, r.Value)
		}
	}
	rejected := topics.Take(name+".postdate-rejected", 2, kafkatest.ReadCommitted)
	if reason := header(rejected[0], "postdate-rejected-reason"); reason == "" || reason != header(rejected[1], "postdate-rejected-reason") {
		t.Errorf("the other tenant's id is rejected as %q, and one that nobody has as %q", reason, header(rejected[1], "postdate-rejected-reason"))
	}
	for _, of := range []struct {
		name   string
		client *client.Client
		same   client.Status
	}{{"acme", acme, client.Pending}, {"beta", beta, client.Cancelled}} {
		awaitStatus(t, of.client, "body", client.Delivered)
		if m := awaitStatus(t, of.client, "same", of.same); string(m.Payload) != `"`+of.name+`"` {
			t.Errorf("%s reads %s", of.name, m.Payload)
		}
	}
	awaitStatus(t, acme, "only-acme", client.Pending)
	for id, other := range map[string]*client.Client{"only-acme": beta, "same": operator, "body": operator} {
		if m, err := other.Get(context.Background(), id); client.TypeOf(err) != client.NotFound {
			t.Errorf("another tenant reads %+v, %v", m, err)
		}
	}
	if got := queues.Len(name + "-named"); got != 0 {
		t.Errorf("%d messages went where they wanted to go", got)
	}
}

// traffic schedules two messages of a tenant to a channel, of which one is delivered and the other
// cancelled, and waits until the metrics count all of it. Its second return value are the lines
// that the tenant sees then.
func traffic(t *testing.T, c *client.Client, tenant, channel string) (text string, own []string) {
	t.Helper()
	for id, due := range map[string]time.Time{"now": time.Now(), "later": time.Now().Add(time.Hour)} {
		if _, err := c.Schedule(patient(t), client.Message{ScheduleID: id, Channel: channel, ExecutionTime: due, Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Cancel(patient(t), "later"); err != nil {
		t.Fatal(err)
	}
	awaitStatus(t, c, "now", client.Delivered)
	if err := c.Cancel(patient(t), "now"); client.TypeOf(err) != client.TooLate {
		t.Fatal(err)
	}
	broker, _, _ := strings.Cut(channel, ":")
	for _, series := range []string{
		`scheduled_total{broker="` + broker + `",tenant=%q} 2`, `cancelled_total{tenant=%q} 1`, `cancel_too_late_total{tenant=%q} 1`,
		`publishes_total{channel="` + channel + `",outcome="confirmed",tenant=%q} 1`, `lateness_seconds_count{channel="` + channel + `",tenant=%q} 1`,
		`priority_lateness_seconds_count{priority="medium",tenant=%q} 1`, `settled_total{how="delivered",tenant=%q} 1`,
		`possible_duplicates_total{tenant=%q} 0`,
	} {
		own = append(own, fmt.Sprintf("postdate_"+series, tenant))
	}
	err := nodetest.Poll(patient(t), func() (bool, error) { // they count after the store has it
		text = metricsFor(t, c)
		return !slices.ContainsFunc(own, func(line string) bool { return !strings.Contains(text, line+"\n") }), nil
	})
	if err != nil {
		t.Fatalf("%v: %s sees\n%s", err, tenant, text)
	}
	return text, own
}

func metricsFor(t *testing.T, c *client.Client) string {
	t.Helper()
	text, err := c.Metrics(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A tenant's key for /metrics shows the series of its own messages and of nothing else. The
// operator's shows all.
func TestMetricsOfTenants(t *testing.T) {
	url := rabbitmqtest.URL(t)
	queues := rabbitmqtest.NewClient(t, url)
	name := fmt.Sprint("secret-", time.Now().UnixNano())
	for _, queue := range []string{name, name + ".postdate-rejected", name + "-out"} {
		queues.Declare(queue, nil)
	}
	c := config(t)
	c.AdminKey, c.RabbitMQ, c.Ingest = adminKey, url, []string{"acme@rabbitmq:" + name}
	n, _ := start(t, c)
	operator := clientWith(t, n, adminKey)
	with := func(tenant string, scopes ...string) *client.Client {
		key, err := operator.CreateKey(patient(t), client.KeyWish{Tenant: tenant, Scopes: scopes})
		if err != nil {
			t.Fatal(err)
		}
		return clientWith(t, n, key.Text)
	}
	ofAcme, lines := traffic(t, with("acme", "sched:r", "sched:w", "ops:r"), "acme", "rabbitmq:"+name+"-out")
	ofBeta, more := traffic(t, with("beta", "sched:r", "sched:w", "ops:r"), "beta", "inbox:mine")

	own := regexp.MustCompile(`^postdate_[a-z_]+\{([^}]*,)?tenant="beta"[^}]*\} \S+\n$`)
	for line := range strings.Lines(ofBeta) {
		if !strings.HasPrefix(line, "#") && !own.MatchString(line) {
			t.Errorf("beta sees %s", line)
		}
	}
	for _, secret := range []string{"acme", name, "go_", "process_", "postdate_http", "postdate_ingest"} {
		if strings.Contains(ofBeta, secret) {
			t.Errorf("beta sees %s:\n%s", secret, ofBeta)
		}
	}
	source := `postdate_ingest_commands_total{result="bad",source="rabbitmq:` + name + `",tenant="acme"} 0`
	if !strings.Contains(ofAcme, source+"\n") {
		t.Errorf("acme does not see its source:\n%s", ofAcme)
	}
	lines = append(append(lines, more...), source, "# TYPE go_goroutines gauge", "# TYPE postdate_http_requests_total counter")
	for who, text := range map[string]string{
		"the operator": metricsFor(t, operator), "one of the default tenant": metricsFor(t, with("default", "ops:r")), "an administrator": metricsFor(t, with("beta", "admin")),
	} {
		for _, line := range lines {
			if !strings.Contains(text, line+"\n") {
				t.Errorf("%s does not see %s", who, line)
			}
		}
	}
}
