package node

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/publisher/inbox"
	"github.com/postdate/postdate/publisher/kafka"
	"github.com/postdate/postdate/publisher/rabbitmq"
	"github.com/postdate/postdate/publisher/webhook"
	"github.com/postdate/postdate/store"
)

// channels finds a channel's publisher by the name of its broker.
type channels struct {
	publishers map[string]publisher.Publisher
	inbox      *inbox.Publisher
	fencer     publisher.Fencer // fences former owners at its broker; nil if there is none
	log        *slog.Logger
	warned     sync.Map // missing brokers that the log has mentioned
}

// openChannels makes the publishers. taken is called when another node has taken a bucket at
// its broker.
func openChannels(c Config, f files, s store.Store, deliverer store.Deliverer, now func() postdate.Time,
	taken func(bucket int), r prometheus.Registerer) (*channels, error) {
	box := inbox.New(s, deliverer, now, c.Log)
	ch := &channels{publishers: map[string]publisher.Publisher{"inbox": box}, inbox: box, log: c.Log}
	if c.RabbitMQ != "" {
		secure, err := c.rabbitMQTLS()
		if err != nil {
			return nil, err
		}
		p, err := rabbitmq.New(rabbitmq.Config{URL: c.RabbitMQ, TLS: secure, Log: c.Log, Metrics: r})
		if err != nil {
			return nil, err
		}
		ch.publishers["rabbitmq"] = p
	}
	hooks := c.Webhook.config()
	hooks.Deployment, hooks.Metrics, hooks.Connections = s.Name(), r, f.webhooks
	w, err := webhook.New(hooks)
	if err != nil {
		return nil, err
	}
	ch.publishers["https"], ch.publishers["http"] = w, w
	if len(c.Kafka.Seeds) > 0 {
		config, err := c.Kafka.secureConfig()
		if err != nil {
			return nil, err
		}
		config.Log, config.Metrics = c.Log, r
		config.TransactionPrefix = transactionPrefix(s.Name())
		config.OnFenced = taken
		p, err := kafka.New(config)
		if err != nil {
			return nil, err
		}
		ch.publishers["kafka"] = p
		if c.Kafka.Fenced {
			ch.fencer = p
		}
	}
	return ch, nil
}

func (ch *channels) publish(ctx context.Context, channel postdate.Channel,
	batch []postdate.Delivery) []publisher.Result {
	p := ch.publishers[channel.Broker()]
	if p == nil { // it was configured when the message was scheduled, or is configured on another node
		why := ch.missing(channel)
		if _, warned := ch.warned.LoadOrStore(channel.Broker(), true); !warned {
			ch.log.Warn("messages wait for a broker that this node does not have: they fail after retry.maxParked",
				"error", why)
		}
		return publisher.All(len(batch), publisher.Result{Outcome: publisher.Down, Reason: why.Error()})
	}
	return p.Publish(ctx, channel, batch)
}

func (ch *channels) check(channel postdate.Channel) error {
	p := ch.publishers[channel.Broker()]
	if p == nil {
		return ch.missing(channel)
	}
	return p.Check(channel)
}

func (ch *channels) missing(channel postdate.Channel) error {
	names := slices.Sorted(maps.Keys(ch.publishers))
	hint := ""
	if flag := brokers[channel.Broker()]; flag != "" {
		hint = "; start it with " + flag
	} else if meant := nearestBroker(channel.Broker()); meant != "" {
		hint = "; did you mean " + meant + ":?"
	}
	return postdate.E(postdate.KindInvalid, "channel %q names a broker that this node does not have (it has %s)%s",
		channel.Shown(), strings.Join(names, ", "), hint)
}

// brokers names the flag by which a node gets each broker; "" if every node has it. The schemes of
// URLs are not among them: they are never missing.
var brokers = map[string]string{"inbox": "", "kafka": "--kafka", "rabbitmq": "--rabbitmq"}

// kinds are what channels begin with.
var kinds = append([]string{"http", "https"}, slices.Sorted(maps.Keys(brokers))...)

// nearestBroker returns the broker that was probably meant, or "".
func nearestBroker(name string) string {
	switch strings.ToLower(name) {
	case "amqp", "amqps":
		return "rabbitmq"
	}
	return api.Nearest(name, slices.Sorted(maps.Keys(brokers)))
}

func (ch *channels) close(ctx context.Context) (err error) {
	for name, p := range ch.publishers {
		if name != "http" { // the same as https
			err = errors.Join(err, p.Close(ctx))
		}
	}
	return err
}
