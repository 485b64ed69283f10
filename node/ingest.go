package node

import (
	"context"
	"errors"

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

// validateIngest says what is wrong with the sources.
func (c Config) validateIngest() error {
	tenants := map[string]string{} // by source
	etf1 := map[string]string{}    // source by tenant
	for _, text := range c.Ingest {
		o, err := ingest.ParseOrigin(text)
		if err != nil {
			return err
		}
		_, twice := tenants[o.Source()]
		tenants[o.Source()] = o.Tenant
		switch {
		case o.Broker == "rabbitmq" && c.RabbitMQ == "":
			return invalid("--ingest %s: there is no RabbitMQ to take from: start the node with --rabbitmq", text)
		case o.Broker == "kafka" && len(c.Kafka.Seeds) == 0:
			return invalid("--ingest %s: there is no Kafka to take from: start the node with --kafka", text)
		case twice:
			return invalid("--ingest %s: another --ingest takes from %s too, and each message goes to one of them: "+
				"leave one out", text, o.Source())
		case o.Form == ingest.FormEtf1 && etf1[o.Tenant] != "":
			return invalid("--ingest %s: the schedules of %s are of the tenant %s, too, and those of one key would "+
				"replace each other: give each topic a tenant of its own, like acme@etf1+%s", text, etf1[o.Tenant],
				o.Tenant, o.Source())
		case o.Form == ingest.FormEtf1:
			etf1[o.Tenant] = o.Source()
		}
	}
	for source, tenant := range tenants {
		if other, ok := tenants[source+ingest.RejectedSuffix]; ok && other != tenant {
			return invalid("--ingest %s@%s: what is rejected from %s is of the tenant %s: "+
				"no other tenant may take it", other, source+ingest.RejectedSuffix, source, tenant)
		}
	}
	return nil
}

// openSources starts to take schedules from brokers.
func (n *Node) openSources() error {
	metrics := ingest.NewMetrics(n.metrics)
	for _, text := range n.c.Ingest {
		o, err := ingest.ParseOrigin(text)
		if err != nil {
			return err
		}
		taker, err := ingest.NewTaker(ingest.Config{
			Messages: n.quota.Hold(n.store), Now: n.wall, Passed: n.passed, Scheduled: n.scheduled, Log: n.c.Log,
			Metrics: metrics, Tracer: n.traces.tracerOf(), Source: o.Source(), Tasks: o.Form == ingest.FormTask,
			Etf1: o.Form == ingest.FormEtf1, Retention: n.c.Retention,
			Intake: api.Intake{
				Buckets: n.store.Buckets(), Tenant: o.Tenant,
				PayloadBytesMax: n.c.PayloadBytesMax, CheckChannel: n.channels.check,
			},
		})
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

func (n *Node) openSource(o ingest.Origin, taker *ingest.Taker) (source, error) {
	if o.Broker == "rabbitmq" {
		secure, err := n.c.rabbitMQTLS()
		if err != nil {
			return nil, err
		}
		return rabbitmqsource.Start(n.life, rabbitmqsource.Config{
			URL: n.c.RabbitMQ, TLS: secure, Queue: o.Name, Channel: o.Channel, Taker: taker, Log: n.c.Log,
		})
	}
	config, err := n.c.Kafka.secureConfig()
	if err != nil {
		return nil, err
	}
	return kafkasource.Start(n.life, kafkasource.Config{
		Connect: config.Connect(), Topic: o.Name, Channel: o.Channel, Taker: taker, Log: n.c.Log,
		Group: consumerGroup(n.store.Name()), Compacted: o.Form == ingest.FormEtf1,
	})
}

// closeSources stops taking schedules.
func (n *Node) closeSources(ctx context.Context) (err error) {
	for _, s := range n.sources {
		err = errors.Join(err, s.Close(ctx))
	}
	return err
}
