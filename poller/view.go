package poller

import (
	"cmp"
	"slices"

	"github.com/postdate/postdate"
)

// View is a snapshot of what the machine holds, for people.
type View struct {
	Overdue map[int]postdate.Time // per bucket: the earliest due message in hand that is not settled
	Hand    int                   // messages in memory
	Down    int                   // channels that take nothing
	At      postdate.Now
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
	for _, b := range m.buckets {
		if first := b.settledUpTo() + 1; first <= now.Wall && (!b.idle() || len(b.record.Behind) > 0) {
			v.Overdue[b.hold.Bucket] = first
		}
	}
	for _, o := range m.outlets {
		if o.site.down {
			v.Down++
		}
	}
	return v
}

// ChannelView is what the machine knows about one channel, at all priorities.
type ChannelView struct {
	Route    postdate.Route
	Down     bool // takes nothing at present
	Paused   bool // by an operator
	InHand   int  // messages in memory
	InFlight int  // of these, with the broker
	ParkedIn int  // 0: no bucket of this node may have messages parked for it
	Reason   string
}

// Channels lists the channels known to the machine, by name.
func (m *Machine) Channels() []ChannelView {
	all := make([]ChannelView, 0, len(m.outlets))
	for _, o := range m.outlets {
		all = append(all, ChannelView{
			Route: o.name, Down: o.site.down, Paused: o.paused(), InFlight: o.flying(), Reason: o.lastError,
			InHand:   o.sum(func(c *channel) int { return c.hand }),
			ParkedIn: o.sum(func(c *channel) int { return c.parkedIn.len() }),
		})
	}
	slices.SortFunc(all, func(a, b ChannelView) int { return cmp.Compare(a.Route, b.Route) })
	return all
}
