package store

import (
	"math"
	"math/bits"

	"github.com/postdate/postdate"
)

// PendingChannelsMax is how many channels a Pending names: those that have most.
const PendingChannelsMax = 1_000

// Pending has how many of a tenant's messages are PENDING, by channel.
type Pending struct {
	Channels map[postdate.Channel]PendingCount
	Exact    bool // false: they are estimates, and a channel that has few may be missing
	More     bool // beyond PendingChannelsMax there are other channels
}

// PendingCount counts the PENDING messages of one channel.
type PendingCount struct {
	All int64 // also those of paused series
	Due int64 // of these, those whose time has come: they may wait for their channel
}

// Of is how many a channel has. Of one that is not named it is not known if there are more than are named, or may be:
// what other tenants have can hide all from an estimate.
func (p *Pending) Of(channel postdate.Channel) (n PendingCount, known bool) {
	n, named := p.Channels[channel]
	return n, named || p.Exact && !p.More
}

// PendingQuery asks for all of a tenant's PENDING messages, whatever they wait for. The first slot has those whose time
// has come by now. Of the others, each slot ends sixteen times as far off as the one before, so that a store that reads
// only the beginnings of slots finds what is due soon and what is due in years.
func PendingQuery(tenant string, now postdate.Time) UpcomingQuery {
	return UpcomingQuery{Tenant: tenant, To: postdate.Far + 1, later: now + 1} // paused series lie at Far
}

// Wants says whether the query asks for messages that wait for this.
func (q *UpcomingQuery) Wants(waits Waits) bool { return waits == ForTime || q.later != 0 }

// pendingStep is how long the first slot after the due one is.
const pendingStep postdate.Time = 60_000

func pendingSlotOf(at, later postdate.Time) int {
	if at < later {
		return 0
	}
	return 1 + (bits.Len64(uint64((at-later)/pendingStep))+3)/4
}

func pendingBegin(slot int, later postdate.Time) postdate.Time {
	const most = 44 // bits; more would be beyond Far
	switch bits := 4 * (slot - 2); {
	case slot == 0:
		return 0
	case slot == 1:
		return later
	case bits > most:
		return postdate.Far + 1
	default:
		return later + pendingStep<<bits
	}
}

// Pending is what was found for a PendingQuery, by channel.
func (f *Forecast) Pending() Pending {
	all, due := map[postdate.Channel]float64{}, map[postdate.Channel]float64{}
	for part, n := range f.found {
		all[part.channel] += n
		if part.waits == ForChannel || part.waits == ForTime && part.slot == 0 {
			due[part.channel] += n
		}
	}
	p := Pending{Channels: map[postdate.Channel]PendingCount{}, Exact: f.Exact, More: len(all) > PendingChannelsMax}
	for _, channel := range f.top(PendingChannelsMax) {
		p.Channels[channel] = PendingCount{int64(math.Round(all[channel])), int64(math.Round(due[channel]))}
	}
	return p
}
