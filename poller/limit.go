package poller

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// limit is what an operator set for a channel. A token bucket enforces the rate: tokens come
// evenly, and those of up to rateBurst can gather.
type limit struct {
	set    store.ChannelSettings
	tokens float64
	at     time.Duration // when tokens was right
	freeAt time.Duration // when there is a token again, where there was none
}

// rateBurst is how much of a rate may go out in one burst.
const rateBurst = 100 * time.Millisecond

// setLimits takes in the settings of channels. Messages parked while a channel was paused
// become due when the pause ends, as if the channel had been down.
func (m *Machine) setLimits(now postdate.Now, all []store.ChannelSettings) {
	for name, l := range m.limits {
		if l.set.Paused {
			m.resumed[name] = now.Wall // if it is not paused again
		}
	}
	limits := make(map[postdate.Route]*limit, len(all))
	for _, s := range all {
		l := m.limits[s.Route]
		if l == nil {
			l = &limit{}
		}
		l.set = s
		limits[s.Route] = l
	}
	m.limits = limits
	for _, name := range slices.Sorted(maps.Keys(m.outlets)) {
		o := m.outlets[name]
		if l := limits[name]; l != o.limit || l != nil {
			o.limit = l
			m.lookSoon(o.site)
		}
	}
}

func (o *outlet) paused() bool { return o.limit != nil && o.limit.set.Paused }

// why is the reason for parking the channel's messages.
func (o *outlet) why() string {
	if o.paused() {
		return "the channel is paused"
	}
	return o.site.reason
}

// soon is how far ahead of a rate messages are taken into the hand. Until then they can be
// cancelled.
const soon = 250 * time.Millisecond

// limited is how many messages the rate lets out within soon.
func (o *outlet) limited(now time.Duration) int {
	if o.limit == nil || o.limit.set.MaxPerSecond <= 0 {
		return math.MaxInt
	}
	return int(min(o.limit.tokensAt(now)+o.limit.set.MaxPerSecond*soon.Seconds(), 1<<30))
}

// tokensAt is how many tokens there are at a time.
func (l *limit) tokensAt(now time.Duration) float64 {
	most := max(1, l.set.MaxPerSecond*rateBurst.Seconds())
	return min(most, l.tokens+(now-l.at).Seconds()*l.set.MaxPerSecond)
}

// until is how long it takes for the given number of tokens to come, at most a day.
func (l *limit) until(tokens float64) time.Duration {
	return time.Duration(min(tokens/l.set.MaxPerSecond, 86_400)*float64(time.Second)) + 1
}

// roomAt is when the rate lets the next message into the hand; 0 if it lets one in now.
func (o *outlet) roomAt(now time.Duration) time.Duration {
	if o.limited(now) > 0 {
		return 0
	}
	return now + o.limit.until(1-o.limit.tokensAt(now)) - soon
}

// allowed says how many of n messages may go out now, and takes their tokens.
func (o *outlet) allowed(now postdate.Now, n int) int {
	l := o.limit
	if l == nil {
		return n
	}
	if l.set.MaxInFlight > 0 {
		n = min(n, max(l.set.MaxInFlight-o.flying(), 0))
	}
	if l.set.MaxPerSecond <= 0 || n == 0 {
		return n
	}
	l.tokens, l.at = l.tokensAt(now.Mono), now.Mono
	n = min(n, int(l.tokens))
	l.tokens -= float64(n)
	if l.tokens < 1 {
		l.freeAt = now.Mono + l.until(1-l.tokens)
	}
	return n
}
