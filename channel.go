package postdate

import "strings"

// Channel names where a message goes, for example "rabbitmq:orders",
// "rabbitmq:exchange/routing.key", "kafka:topic", "https://example.com/hook"
// or "inbox:name". It contains no broker address and no secret.
type Channel string

// Broker returns the part before the first colon: the name of a configured broker.
func (c Channel) Broker() string {
	broker, _, _ := strings.Cut(string(c), ":")
	return broker
}

// Target returns the part after the first colon: a queue, a topic, a name.
func (c Channel) Target() string {
	_, target, _ := strings.Cut(string(c), ":")
	return target
}

// ParseChannel checks the form of a channel. It does not check that the broker is
// configured: the node does.
func ParseChannel(s string) (Channel, error) {
	broker, target, ok := strings.Cut(s, ":")
	switch {
	case s == "":
		return "", E(KindInvalid, "channel is missing: name one, like rabbitmq:orders or inbox:test")
	case len(s) > ChannelBytesMax:
		return "", E(KindInvalid, "channel is %d bytes long: at most %d are allowed", len(s), ChannelBytesMax)
	case !ok || broker == "" || target == "" || strings.HasPrefix(s, routeMark):
		return "", E(KindInvalid, "channel %q is not of the form broker:target, like rabbitmq:orders or inbox:test", s)
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == '\uFFFD' {
			return "", E(KindInvalid, "channel %q has a control character or is not UTF-8", s)
		}
	}
	if broker == "inbox" {
		if err := checkName("inbox name", target, InboxNameBytesMax); err != nil {
			return "", err
		}
	}
	return Channel(s), nil
}

// Shown returns the channel as logs and metrics show it. Of a URL that is the host: tokens stand
// in paths.
func (c Channel) Shown() string {
	scheme := strings.ToLower(c.Broker())
	if scheme != "https" && scheme != "http" {
		return string(c)
	}
	host, ok := strings.CutPrefix(c.Target(), "//")
	if !ok {
		return scheme
	}
	if end := strings.IndexAny(host, "/?#\\"); end >= 0 {
		host = host[:end]
	}
	return scheme + "://" + host[strings.LastIndexByte(host, '@')+1:]
}
