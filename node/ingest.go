package node

import (
	"context"
	"errors"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/api/ingest"
	kafkasource "github.com/postdate/postdate/api/ingest/kafka"
	rabbitmqsource "github.com/postdate/postdate/api/ingest/rabbitmq"
)

// source is a queue or topic from which schedules are taken.
type source interface {
	// Close takes nothing new, and waits for what is under way until ctx ends.
	Close(ctx context.Context) error
}

// origin is a source as the operator writes it: broker:name[=channel].
type origin struct{ broker, name, channel string }

func parseOrigin(text string) (o origin, err error) {
	var ok bool
	o.broker, o.name, ok = strings.Cut(text, ":")
	o.name, o.channel, _ = strings.Cut(o.name, "=")
	if !ok || o.name == "" || o.broker != "rabbitmq" && o.broker != "kafka" {
		return o, postdate.E(postdate.KindInvalid,
			"--ingest %q is not of the form rabbitmq:QUEUE or kafka:TOPIC, with =CHANNEL behind it where messages do "+
				"not say theirs, like rabbitmq:in=rabbitmq:orders/{routing-key}", text)
	}
	return o, nil
}

// validateIngest says what is wrong with the sources.
func (c Config) validateIngest() error {
	for _, text := range c.Ingest {
		o, err := parseOrigin(text)
		switch {
		case err != nil:
			return err
		case o.broker == "rabbitmq" && c.RabbitMQ == "":
			return postdate.E(postdate.KindInvalid,
				"--ingest %s: there is no RabbitMQ to take from: start the node with --rabbitmq", text)
		case o.broker == "kafka" && len(c.Kafka.Seeds) == 0:
			return postdate.E(postdate.KindInvalid,
				"--ingest %s: there is no Kafka to take from: start the node with --kafka", text)
		}
	}
	return nil
}

// openSources starts to take schedules from brokers.
func (n *Node) openSources() error {
	if len(n.c.Ingest) == 0 {
		return nil
	}
	taker, err := ingest.NewTaker(ingest.Config{
		Messages: n.quota.Hold(n.store), Now: n.wall, Scheduled: n.scheduled, Log: n.c.Log, Metrics: n.metrics,
		Intake: api.Intake{
			Buckets: n.store.Buckets(), Tenant: postdate.DefaultTenant,
			PayloadBytesMax: n.c.PayloadBytesMax, CheckChannel: n.channels.check,
		},
	})
	if err != nil {
		return err
	}
	for _, text := range n.c.Ingest {
		o, err := parseOrigin(text)
		if err != nil {
			return err
		}
		s, err := n.openSource(o, taker)
		if err != nil {
			return postdate.E(postdate.KindOf(err), "--ingest %s: %w", text, err)
		}
		n.sources = append(n.sources, s)
	}
	return nil
}

func (n *Node) openSource(o origin, taker *ingest.Taker) (source, error) {
	if o.broker == "rabbitmq" {
		secure, err := n.c.rabbitMQTLS()
		if err != nil {
			return nil, err
		}
		return rabbitmqsource.Start(n.life, rabbitmqsource.Config{
			URL: n.c.RabbitMQ, TLS: secure, Queue: o.name, Channel: o.channel, Taker: taker, Log: n.c.Log,
		})
	}
	config, err := n.c.Kafka.secureConfig()
	if err != nil {
		return nil, err
	}
	return kafkasource.Start(n.life, kafkasource.Config{
		Connect: config.Connect(), Topic: o.name, Channel: o.channel, Taker: taker, Log: n.c.Log,
		Group: consumerGroup(n.store.Name()),
	})
}

// closeSources stops taking schedules.
func (n *Node) closeSources(ctx context.Context) (err error) {
	for _, s := range n.sources {
		err = errors.Join(err, s.Close(ctx))
	}
	return err
}
