package poller

import (
	"cmp"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/stats"
)

// View is a snapshot of what the machine holds, for people.
type View struct {
	Overdue map[int]postdate.Time // per bucket: the earliest due message in hand that is not settled
	Hand    int                   // messages in memory
	Held    int                   // buckets whose messages may go out: none while the lease has ended
	Down    int                   // channels that take nothing, though nobody paused them
	At      postdate.Now

	FirstDown []stats.DownChannel // the first of those, by name: at most [stats.DownMax]
}

// LongestOverdue is how long the earliest due message in hand that is not settled has been due.
func (v View) LongestOverdue() (most time.Duration) {
	for _, since := range v.Overdue {
		most = max(most, v.At.Wall.Sub(since))
	}
	return most
}

// Token is the token under which a bucket is worked on, or 0.
func (m *Machine) Token(bucket int) uint64 {
	if b := m.buckets[bucket]; b != nil {
		return b.hold.Token
	}
	return 0
}

// View looks at every bucket and channel, so it is too slow for every step.
func (m *Machine) View(now postdate.Now) View {
	v := View{Overdue: map[int]postdate.Time{}, Hand: m.hand, At: now}
	if m.leased(now) {
		v.Held = len(m.buckets)
	}
	for _, b := range m.buckets {
		if first := b.firstDue(); first <= now.Wall {
			v.Overdue[b.hold.Bucket] = first
		}
	}
	var first []*outlet
	for _, o := range m.outlets {
		if o.down() {
			v.Down++
			first = addFirst(first, o)
		}
	}
	for _, o := range first {
		tenant, channel := o.name.Split()
		reason := postdate.Cut(o.site.reason, postdate.LastErrorBytesMax)
		v.FirstDown = append(v.FirstDown, stats.DownChannel{Tenant: tenant, Channel: channel, Reason: reason})
	}
	return v
}

// addFirst adds o to the first outlets by name, if it is one. Most are not: there may be very many.
func addFirst(first []*outlet, o *outlet) []*outlet {
	n := len(first)
	if n == stats.DownMax && o.name >= first[n-1].name {
		return first
	}
	at, _ := slices.BinarySearchFunc(first, o, func(a, b *outlet) int { return cmp.Compare(a.name, b.name) })
	return slices.Insert(first, at, o)[:min(n+1, stats.DownMax)]
}

// firstDue is when the earliest message that is not settled may be due, as far as is known; Far if
// everything is settled. It does not go by up to where the bucket is claimed: that may lie long ago.
func (b *owned) firstDue() postdate.Time {
	first := min(b.due, b.firstLate())
	if it := b.oldest.first(); it != nil {
		first = min(first, it.rec.AttemptTime)
	}
	if b.read.Before(b.record.Claimed) {
		first = min(first, b.read.Time)
	}
	for route, claimed := range b.record.Behind {
		if since := max(claimed.Time, b.behind[route]); since > 0 { // else it is not known
			first = min(first, since)
		}
	}
	return first
}

// down says whether the channel takes nothing. A paused one is not tried, so nobody knows.
func (o *outlet) down() bool { return o.site.down && !o.paused() }

// ChannelView is what the machine knows about one channel, at all priorities.
type ChannelView struct {
	Route    postdate.Route
	Down     bool   // takes nothing at present, though nobody paused it
	Paused   bool   // by an operator
	InHand   int    // messages in memory
	InFlight int    // of these, with the broker
	Parked   bool   // some bucket of this node may have messages parked for it
	Reason   string // the broker's last words that were no confirm; "": none since the channel was last at rest
	ReasonAt postdate.Time
}

// Channels lists the channels known to the machine, by name.
func (m *Machine) Channels() []ChannelView {
	all := make([]ChannelView, 0, len(m.outlets))
	for _, o := range m.outlets {
		all = append(all, ChannelView{
			Route: o.name, Down: o.down(), Paused: o.paused(), InFlight: o.flying(),
			Reason: o.lastError, ReasonAt: o.errorAt, InHand: o.sum(inHand),
			Parked: o.sum(func(c *channel) int { return c.parkedIn.len() }) > 0,
		})
	}
	slices.SortFunc(all, func(a, b ChannelView) int { return cmp.Compare(a.Route, b.Route) })
	return all
}
