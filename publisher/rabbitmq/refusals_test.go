package rabbitmq_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/publishertest"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/rabbitmq/rabbitmqtest"
)

// What AMQP cannot carry is refused here, because the broker, or amqp091, would close the
// connection over it.
func TestBadMessagesFailAlone(t *testing.T) {
	url := rabbitmqtest.URL(t)
	client := rabbitmqtest.NewClient(t, url)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: url}))
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	batch := publishertest.Batch("m", 10)
	batch[1].Message.ContentType = strings.Repeat("x", postdate.ContentTypeBytesMax)
	batch[3].Message.Headers = []postdate.Header{{Name: "CC", Value: "elsewhere"}}
	for i := range postdate.HeadersMax {
		batch[5].Message.Headers = append(batch[5].Message.Headers, postdate.Header{Name: fmt.Sprint("h", i), Value: strings.Repeat("v", postdate.HeaderValueBytesMax)})
	}
	batch[7].Message.Headers = []postdate.Header{{Name: "amqp-reply-to", Value: "amq.rabbitmq.reply-to"}}
	batch[8].Message.Headers = []postdate.Header{{Name: "amqp-reply-to", Value: "amq.rabbitmq.reply-to.g1h2AA5yZXBseUAxMTI0NzE2"}}
	for i := range 28 { // as many as fit
		batch[6].Message.Headers = append(batch[6].Message.Headers, postdate.Header{Name: fmt.Sprint("h", i), Value: strings.Repeat("v", postdate.HeaderValueBytesMax)})
	}
	for i, r := range p.Publish(context.Background(), postdate.Channel("rabbitmq:"+queue), batch) {
		bad := i == 1 || i == 3 || i == 5 || i == 7
		if bad && (r.Outcome != publisher.Refused || !r.Permanent) || !bad && r.Outcome != publisher.Confirmed {
			t.Errorf("message %d: %v, permanent %t: %s", i, r.Outcome, r.Permanent, r.Reason)
		}
	}
	if n := len(client.TakeAll(queue)); n != 6 {
		t.Errorf("%d messages are in the queue", n)
	}
	if s := p.State(); s.Phase != publisher.Connected {
		t.Errorf("state %v: %s", s.Phase, s.Reason)
	}
}

// The broker closes the channel over a message that is too large for it. The others may be in
// doubt once; when they are tried again, each gets its own result.
func TestPoisonIsFound(t *testing.T) {
	broker := rabbitmqtest.Start(t) // its max_message_size is 1 MB
	client := rabbitmqtest.NewClient(t, broker.URL)
	p := publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: broker.URL}))
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	batch := publishertest.Batch("m", 50)
	batch[20].Message.Payload = make([]byte, 1_000_001)
	channel := postdate.Channel("rabbitmq:" + queue)
	for try := 0; len(batch) > 0; try++ {
		if try == 3 {
			t.Fatalf("%d messages have no certain outcome after %d tries", len(batch), try)
		}
		var again []postdate.Delivery
		for i, r := range p.Publish(context.Background(), channel, batch) {
			poison := batch[i].Message.ScheduleID == "m-20"
			switch {
			case r.Outcome == publisher.Unknown:
				batch[i].PossibleDuplicate = true
				again = append(again, batch[i])
			case poison && (r.Outcome != publisher.Refused || !r.Permanent || !strings.HasPrefix(r.Reason, "406 PRECONDITION_FAILED")):
				t.Errorf("the poison is %v, permanent %t: %s", r.Outcome, r.Permanent, r.Reason)
			case !poison && r.Outcome != publisher.Confirmed:
				t.Errorf("%s is %v: %s", batch[i].Message.ScheduleID, r.Outcome, r.Reason)
			}
		}
		batch = again
	}
	for _, d := range client.TakeAll(queue) {
		if d.MessageId == "m-20" {
			t.Error("the poison is in the queue")
		}
	}
}

// A user without write permission is refused in the broker's words; a user with a wrong
// password is told so, without the password.
func TestAccessRefused(t *testing.T) {
	broker := rabbitmqtest.Start(t)
	client := rabbitmqtest.NewClient(t, broker.URL)
	queue := publishertest.Unique("q")
	client.Declare(queue, nil)
	broker.Control("add_user", "reader", "s3cret")
	broker.Control("set_permissions", "reader", "", "", ".*")
	as := func(password string) *rabbitmq.Publisher {
		u, err := url.Parse(broker.URL)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword("reader", password)
		return publishertest.Closing(t, newPublisher(t, rabbitmq.Config{URL: u.String()}))
	}
	p, channel := as("s3cret"), postdate.Channel("rabbitmq:"+queue)
	for _, r := range p.Publish(context.Background(), channel, publishertest.Batch("m", 20)) {
		if r.Outcome != publisher.Refused || !strings.HasPrefix(r.Reason, "403 ACCESS_REFUSED") {
			t.Fatalf("%v: %s", r.Outcome, r.Reason)
		}
	}
	p = as("wr0ng")
	r := p.Publish(context.Background(), channel, publishertest.Batch("m", 1))[0]
	if r.Outcome != publisher.Down || !strings.Contains(r.Reason, "403") || strings.Contains(r.Reason, "wr0ng") {
		t.Errorf("%v: %s", r.Outcome, r.Reason)
	}
	if s := p.State(); s.Phase != publisher.Lost || s.Reason != r.Reason || time.Since(s.Since) > time.Minute {
		t.Errorf("state %+v", s)
	}
}

func TestBadConfigKeepsThePassword(t *testing.T) {
	for _, c := range []rabbitmq.Config{
		{}, {URL: "http://u:s3cret@h"}, {URL: "amqp://u:s3/cret@h"}, {URL: "amqp://u:s3cret@h:port/"}, {URL: "amqp://u:s3%cret@h"}, {URL: "amqp://u:s3 cret@h"},
		{URL: "amqp://u:s3cret@h", Window: -1}, {URL: "amqp://u:s3cret@h", Window: 10_001}, {URL: "amqp://u:s3cret@h", PublishTimeout: -1},
	} {
		p, err := rabbitmq.New(c)
		if postdate.KindOf(err) != postdate.KindInvalid || err == nil {
			t.Fatalf("%+v: %v %v", c, p, err)
		}
		if strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cret") {
			t.Errorf("the error tells the password: %v", err)
		}
	}
}

// Without a broker, New succeeds, Publish returns Down as soon as that is known, and Close does
// not wait.
func TestNoBroker(t *testing.T) {
	registry := prometheus.NewRegistry()
	p := newPublisher(t, rabbitmq.Config{URL: "amqp://u:s3cret@127.0.0.1:1/", Metrics: registry})
	for _, r := range p.Publish(context.Background(), "rabbitmq:q", publishertest.Batch("m", 3)) {
		if r.Outcome != publisher.Down || !strings.Contains(r.Reason, "RabbitMQ cannot be reached: dial: connect: connection refused") || strings.Contains(r.Reason, "s3cret") {
			t.Errorf("%v: %s", r.Outcome, r.Reason)
		}
	}
	if families, err := registry.Gather(); err != nil || len(families) < 4 {
		t.Errorf("%d metrics: %v", len(families), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
	if s := p.State(); s.Phase != publisher.Closed {
		t.Errorf("state %v", s.Phase)
	}
}
