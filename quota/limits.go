// Package quota decides how much each tenant may ask and keep: requests and messages per second, and
// pending messages, their bytes and their channels.
//
// It promises:
//
//   - A tenant schedules no more than its rate lets through: in any time, what the rate gives in
//     that time and one second's worth more, and the call that goes beyond. What is refused for
//     what is pending has used its rate.
//   - It has no more pending than it may: exactly, where one node serves the store; in a cluster
//     nodes may together go beyond by what others scheduled in the last two seconds, and by what
//     [store.Tenants] says that counts may lack. A call with an unknown outcome counts as done for
//     five minutes. While calls are under way, some may be refused that would just fit.
//   - What adds nothing is not refused for what is pending: a smaller payload, and a message that is
//     stored already, for up to 100 of those that a call repeats.
//   - What is refused was surely not done. The error says when to come again, or that it never fits.
//   - Where nobody has limits, it costs one atomic load for each call.
package quota

import (
	"log/slog"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// rateMin and rateMax bound what a rate may be, per second, if it is a limit.
const (
	rateMin = 1e-6
	rateMax = 1e6
)

// CheckRate returns an error if a rate is neither 0 nor within the bounds. name is what it is called.
func CheckRate(name string, perSecond float64) error {
	if perSecond == 0 || perSecond >= rateMin && perSecond <= rateMax {
		return nil
	}
	return postdate.E(postdate.KindInvalid, "%s must be 0 (no limit) or between %s and %s, not %g", name,
		decimal(rateMin), decimal(rateMax), perSecond)
}

// decimal writes a number without an exponent.
func decimal(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// Limits are what a tenant may ask and keep. 0: no limit.
type Limits struct {
	RequestsPerSecond float64
	MessagesPerSecond float64 // scheduled, replaced or moved
	PendingMax        int64   // messages
	BytesMax          int64   // their payloads
	ChannelsMax       int64   // channels that they go to
	Weight            int     // its share of what nodes can do, in relation to others; at least 1
}

// LogValue implements slog.LogValuer: the limits by the names that they have in the API.
func (l Limits) LogValue() slog.Value {
	return slog.GroupValue(slog.Float64("requestsPerSecond", l.RequestsPerSecond),
		slog.Float64("messagesPerSecond", l.MessagesPerSecond), slog.Int64("pendingMax", l.PendingMax),
		slog.Int64("bytesMax", l.BytesMax), slog.Int64("channelsMax", l.ChannelsMax), slog.Int("weight", l.Weight))
}

// none says whether nothing is limited.
func (l Limits) none() bool { return l == Limits{Weight: l.Weight} }

// With returns l, with what an operator set in its place.
func (l Limits) With(s store.TenantSettings) Limits {
	set(&l.RequestsPerSecond, s.RequestsPerSecond)
	set(&l.MessagesPerSecond, s.MessagesPerSecond)
	set(&l.PendingMax, s.PendingMax)
	set(&l.BytesMax, s.BytesMax)
	set(&l.ChannelsMax, s.ChannelsMax)
	set(&l.Weight, s.Weight)
	l.Weight = max(l.Weight, 1)
	return l
}

// set puts *to into *value, if there is one.
func set[T any](value, to *T) {
	if to != nil {
		*value = *to
	}
}

// account is what a tenant has used of its limits.
type account struct {
	limits   Limits
	nodes    int // that share the rates
	requests *rate.Limiter
	messages *rate.Limiter

	ledger
}

// idle says whether a has no more in it than a new one.
func (a *account) idle(now time.Time) bool {
	a.forget(now)
	return a.coming.none() && rested(a.requests, now) && rested(a.messages, now)
}

func rested(l *rate.Limiter, now time.Time) bool {
	return l == nil || l.TokensAt(now) >= float64(l.Burst())
}

// adopt makes l the limits. What was used stays used.
func (a *account) adopt(l Limits, nodes int) {
	if a.limits == l && a.nodes == nodes {
		return
	}
	a.limits, a.nodes = l, nodes
	a.requests = limiterOf(a.requests, l.RequestsPerSecond/float64(nodes))
	a.messages = limiterOf(a.messages, l.MessagesPerSecond/float64(nodes))
}

// limiterOf returns a limiter for a rate, with one second's worth as its burst; nil: no limit. It is
// the old one, if there is one.
func limiterOf(old *rate.Limiter, perSecond float64) *rate.Limiter {
	burst := max(int(perSecond), 1)
	switch {
	case perSecond <= 0:
		return nil
	case old == nil:
		return rate.NewLimiter(rate.Limit(perSecond), burst)
	}
	old.SetLimit(rate.Limit(perSecond))
	old.SetBurst(burst)
	return old
}

// take takes n of a rate at a time, or returns how long to wait. A call that needs more than there is
// left goes through if anything is left, and those that follow wait the longer: else a batch
// larger than the rate would never go through.
func take(l *rate.Limiter, now time.Time, n int) (wait time.Duration) {
	if wait = waitFor(l, now); l == nil || wait > 0 {
		return wait
	}
	for ; n > 0; n -= l.Burst() {
		l.ReserveN(now, min(n, l.Burst()))
	}
	return 0
}

// waitFor is how long it takes until anything is left.
func waitFor(l *rate.Limiter, now time.Time) time.Duration {
	if l == nil {
		return 0
	}
	return timeFor(l, max(1-l.TokensAt(now), 0))
}

// waitMax bounds what is said of a wait: a rate may be so low that the wait is no [time.Duration].
const waitMax = 365 * 24 * time.Hour

// timeFor is how long a rate needs for that many.
func timeFor(l *rate.Limiter, n float64) time.Duration {
	return time.Duration(min(n/float64(l.Limit()), waitMax.Seconds()) * float64(time.Second))
}

// bounded says whether there is a limit of what is pending.
func (l Limits) bounded() bool { return l.PendingMax > 0 || l.BytesMax > 0 || l.ChannelsMax > 0 }

// fits returns an error if more goes beyond what a tenant may have pending; is is what it has. What adds
// nothing fits even where less is allowed by now.
func (l Limits) fits(is, more store.Usage) error {
	switch {
	case l.PendingMax > 0 && more.Messages > 0 && is.Messages+more.Messages > l.PendingMax:
		return full("pendingMax", "has %d messages pending, and may have %d", is.Messages, l.PendingMax)
	case l.BytesMax > 0 && more.Bytes > l.BytesMax:
		return tooLarge(more.Bytes, l.BytesMax)
	case l.BytesMax > 0 && more.Bytes > 0 && is.Bytes+more.Bytes > l.BytesMax:
		return full("bytesMax", "has %d bytes of payload pending, would have %d more, and may have %d",
			is.Bytes, more.Bytes, l.BytesMax)
	case l.ChannelsMax > 0 && more.Channels > 0 && is.Channels+more.Channels > l.ChannelsMax:
		return full("channelsMax", "has messages pending for %d channels, and may have them for %d", is.Channels,
			l.ChannelsMax)
	}
	return nil
}

// fullWait is when to come again if too much is pending: nobody knows when that changes.
const fullWait = 10 * time.Second

// full says that a tenant has as much pending as it may.
func full(limit, says string, args ...any) error {
	e := postdate.E(postdate.KindLimited, "the tenant "+says+" ("+limit+"); surely nothing was done: cancel some, "+
		"wait until some are delivered, or ask an administrator for more", args...)
	e.Limit, e.RetryAfter = limit, fullWait
	return e
}

// tooLarge says that a payload never fits.
func tooLarge(bytes, bytesMax int64) error {
	e := postdate.E(postdate.KindTooLarge, "the payload has %d bytes, and all that the tenant has pending may have %d "+
		"(bytesMax); surely nothing was done: put it elsewhere and send a reference, or ask an administrator for more",
		bytes, bytesMax)
	e.Limit = "bytesMax"
	return e
}

// tooFast says that a rate is used up. what is what the tenant may do, like "send".
func tooFast(limit, what string, perSecond float64, wait time.Duration) error {
	e := postdate.E(postdate.KindLimited,
		"the tenant may %s %s a second (%s); surely nothing was done: come again in %s",
		what, decimal(perSecond), limit, max(wait.Round(time.Millisecond), time.Millisecond))
	e.Limit, e.RetryAfter = limit, wait
	return e
}
