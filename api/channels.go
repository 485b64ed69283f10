package api

import (
	"context"
	"math"
	"reflect"
	"strconv"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Channels lets operators list channels and change their settings.
type Channels interface {
	// List lists a tenant's channels in the whole cluster, those whose names come after a name.
	List(ctx context.Context, tenant, after string) (ChannelList, error)
	// Change applies f to what is set for a tenant's messages to a channel, for all nodes, and
	// returns the new settings.
	Change(ctx context.Context, route postdate.Route, f func(*store.ChannelSettings)) (store.ChannelSettings, error)
}

// ChannelList is a part of a tenant's channels.
type ChannelList struct {
	Channels []Channel // by name
	More     bool      // there are others after the last
	Missing  []string  // nodes that did not answer, by name
}

// Channel is one channel of a tenant, in the whole cluster.
type Channel struct {
	store.ChannelSettings
	Down     bool // on some node it takes no messages at present, and is probed
	InHand   int  // messages in the nodes' memory
	InFlight int  // of these, at the broker
	Parked   bool // some of its messages wait in the store until it is up again

	LastError     string // the broker's latest words that were no confirm; "": none
	LastErrorAt   postdate.Time
	LastErrorNode string // the node that got it

	PerSecond *float64            // what brokers confirmed in the last minute; nil: not known
	Pending   *store.PendingCount // in the whole store; nil: not known
	Exact     bool                // Pending is no estimate
}

// The upper bounds of the settings.
const (
	rateMax     = 1e6
	inFlightMax = 1_000_000
)

// channelsLimitMax is how many channels a page has at most, and if the client gives no limit.
const channelsLimitMax = 10_000

// channelBody is the body that changes a channel's settings.
type channelBody struct {
	Channel      string   `json:"channel"`
	Paused       *bool    `json:"paused"`
	MaxPerSecond *float64 `json:"maxPerSecond"`
	MaxInFlight  *int     `json:"maxInFlight"`

	FailureChannel channelName `json:"failureChannel"`
}

var channelFields = fieldsOf(reflect.TypeFor[channelBody]())

func (s *Server) getChannels(ctx *fasthttp.RequestCtx) *Problem {
	args, p := query(ctx, "limit", "cursor")
	if p != nil {
		return p
	}
	tenant := s.tenantOf(ctx)
	limit, p := limitOf(args, channelsLimitMax, channelsLimitMax)
	if p != nil {
		return p
	}
	after := ""
	if args.Has("cursor") {
		var err error
		if after, err = parseChannelCursor(tenant, string(args.Peek("cursor"))); err != nil {
			return parameterProblem("cursor", err)
		}
	}
	storeCtx := s.calls.begin()
	list, err := s.config.Channels.List(storeCtx, tenant, after)
	if err != nil {
		return s.failed(ctx, "list channels", err, "")
	}
	b := append(begin(ctx), `{"channels":[`...)
	next := ""
	for i := range list.Channels {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendChannel(b, &list.Channels[i])
		last := i+1 == len(list.Channels)
		if last && list.More || !last && (i+1 == limit || len(b) > listBytesMax) {
			next = string(list.Channels[i].Route.Channel())
			break
		}
	}
	b = appendTextList(append(b, ']'), "missing", list.Missing)
	if next != "" {
		b = appendMember(b, "nextCursor", channelCursor(tenant, next))
	}
	return finish(ctx, fasthttp.StatusOK, append(b, '}'))
}

func (s *Server) patchChannel(ctx *fasthttp.RequestCtx) *Problem {
	var body channelBody
	if p := s.singleBody(ctx, &body, contentTypeJSON, "application/merge-patch+json"); p != nil {
		return p
	}
	c := s.checker(ctx)
	channel, p := body.check(&c)
	if p != nil {
		return p
	}
	storeCtx := s.calls.begin()
	set, err := s.config.Channels.Change(storeCtx, postdate.RouteOf(s.tenantOf(ctx), channel), body.apply)
	if err != nil {
		return s.failed(ctx, "change a channel", err, "")
	}
	s.audit.did(ctx, "a channel was changed", "tenant", s.tenantOf(ctx), "channel", channel.Shown(),
		"paused", set.Paused, "maxPerSecond", set.MaxPerSecond, "maxInFlight", set.MaxInFlight,
		"failureChannel", set.FailureChannel.Shown())
	return finish(ctx, fasthttp.StatusOK, append(appendSettings(append(begin(ctx), '{'), &set), '}'))
}

// check validates the body and returns its channel.
func (b *channelBody) check(c *checker) (channel postdate.Channel, p *Problem) {
	if channel, p = c.channel(b.Channel, "/channel"); p != nil {
		return "", p
	}
	if _, p = c.failureChannel(b.FailureChannel, channel); p != nil {
		return "", p
	}
	switch {
	case b.Paused == nil && b.MaxPerSecond == nil && b.MaxInFlight == nil && !b.FailureChannel.given:
		return "", fieldProblem("", invalid("nothing to change: give paused, maxPerSecond, maxInFlight or "+
			"failureChannel"))
	case b.MaxPerSecond != nil && (math.IsNaN(*b.MaxPerSecond) || *b.MaxPerSecond < 0 || *b.MaxPerSecond > rateMax):
		return "", fieldProblem("/maxPerSecond", invalid("maxPerSecond must be between 0 (no limit) and %d",
			int(rateMax)))
	case b.MaxInFlight != nil && (*b.MaxInFlight < 0 || *b.MaxInFlight > inFlightMax):
		return "", fieldProblem("/maxInFlight", invalid("maxInFlight must be between 0 (no limit of its own) and %d",
			inFlightMax))
	}
	return channel, nil
}

func (b *channelBody) apply(s *store.ChannelSettings) {
	if b.Paused != nil {
		s.Paused = *b.Paused
	}
	if b.MaxPerSecond != nil {
		s.MaxPerSecond = *b.MaxPerSecond
	}
	if b.MaxInFlight != nil {
		s.MaxInFlight = *b.MaxInFlight
	}
	if b.FailureChannel.given {
		s.FailureChannel = postdate.Channel(b.FailureChannel.text)
	}
}

func appendChannel(b []byte, c *Channel) []byte {
	b = appendSettings(append(b, '{'), &c.ChannelSettings)
	state := "up"
	switch {
	case c.Paused:
		state = "paused"
	case c.Down:
		state = "down"
	}
	b = appendMember(b, "state", state)
	b = append(b, `,"inHand":`...)
	b = strconv.AppendInt(b, int64(c.InHand), 10)
	b = append(b, `,"inFlight":`...)
	b = strconv.AppendInt(b, int64(c.InFlight), 10)
	b = append(b, `,"parked":`...)
	b = strconv.AppendBool(b, c.Parked)
	if c.PerSecond != nil {
		b = appendRounded(append(b, `,"deliveredPerSecond":`...), *c.PerSecond)
	}
	if c.Pending != nil {
		b = appendNumber(b, "pending", c.Pending.All)
		b = appendNumber(b, "due", c.Pending.Due)
		b = strconv.AppendBool(append(b, `,"exact":`...), c.Exact)
	}
	if c.LastError != "" {
		b = appendMember(b, "lastError", c.LastError)
		b = appendTime(b, "lastErrorAt", c.LastErrorAt)
		b = appendMember(b, "lastErrorNode", c.LastErrorNode)
	}
	return append(b, '}')
}

func appendSettings(b []byte, s *store.ChannelSettings) []byte {
	b = append(b, `"channel":`...)
	b = appendText(b, string(s.Route.Channel()))
	b = append(b, `,"paused":`...)
	b = strconv.AppendBool(b, s.Paused)
	b = append(b, `,"maxPerSecond":`...)
	b = strconv.AppendFloat(b, s.MaxPerSecond, 'g', -1, 64)
	b = append(b, `,"maxInFlight":`...)
	b = strconv.AppendInt(b, int64(s.MaxInFlight), 10)
	if s.FailureChannel != "" {
		b = appendMember(b, "failureChannel", string(s.FailureChannel))
	}
	return b
}

// noChannels is the default: no channel is known and none can be changed.
type noChannels struct{}

func (noChannels) List(context.Context, string, string) (list ChannelList, err error) {
	return list, nil
}

func (noChannels) Change(context.Context, postdate.Route,
	func(*store.ChannelSettings)) (store.ChannelSettings, error) {
	return store.ChannelSettings{}, postdate.E(postdate.KindUnavailable, "this node keeps no settings of channels")
}
