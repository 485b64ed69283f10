package rabbitmq

import (
	"strings"
	"unicode/utf8"

	"github.com/postdate/postdate"
	amqpheader "github.com/postdate/postdate/internal/amqp"
)

// target says where a channel's messages go.
type target struct {
	exchange string // "": the default exchange, which routes to the queue named by the key
	key      string
}

// parseTarget reads a channel. Without a slash its target is a queue. Otherwise the first slash
// separates the exchange from the routing key, which may be empty (a fanout exchange needs
// none) and may contain slashes. An empty exchange is the default one, so rabbitmq:/a/b is the
// queue a/b.
func parseTarget(channel postdate.Channel) (target, error) {
	exchange, key, slash := strings.Cut(channel.Target(), "/")
	if !slash {
		exchange, key = "", exchange
	}
	switch {
	case exchange == "" && key == "":
		return target{}, postdate.E(postdate.KindInvalid,
			"channel %q names no queue: write rabbitmq:queue or rabbitmq:exchange/routing.key", channel)
	case len(exchange) > amqpheader.ShortBytesMax:
		return target{}, postdate.E(postdate.KindInvalid, "channel %q: the exchange is %d bytes long, "+
			"and RabbitMQ allows %d", channel, len(exchange), amqpheader.ShortBytesMax)
	case len(key) > amqpheader.ShortBytesMax:
		return target{}, postdate.E(postdate.KindInvalid, "channel %q: the queue or routing key is %d bytes long, "+
			"and RabbitMQ allows %d", channel, len(key), amqpheader.ShortBytesMax)
	case !utf8.ValidString(exchange) || !utf8.ValidString(key):
		return target{}, postdate.E(postdate.KindInvalid, "channel %q is not UTF-8", channel)
	}
	return target{exchange: exchange, key: key}, nil
}

// ExchangeAndKey returns where a channel's messages go, as [Publisher.Check] takes it; "" for both if it is refused.
func ExchangeAndKey(channel postdate.Channel) (exchange, key string) {
	to, _ := parseTarget(channel)
	return to.exchange, to.key
}
