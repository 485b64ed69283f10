package poller

import (
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A message that its channel cannot take now is parked: it waits in the store until the channel
// is back. Parking is not an attempt. For a channel that is down, a message waits as long as
// its retry policy says; time under a pause, a limit or a backlog does not count. So scans also
// return parked messages, when it is time to look at them. Such a message is settled and never
// published: until it is unparked, its cancel answers 200.

// parkOrGiveUp parks a message whose channel is paused or down, or ends it if it has waited
// long enough.
func (m *Machine) parkOrGiveUp(now postdate.Now, it *Item) {
	c := it.channel
	m.noneAhead(now, c)
	since := m.downSince(now, it)
	until := since.Add(it.rec.Retry.Or(m.c.Retry).MaxParked)
	switch {
	case c.paused():
		m.park(now, it, c.why(), 0)
	case until > now.Wall:
		m.park(now, it, c.why(), since)
	case c.site.down && c.site.tried:
		m.giveUp(now, it)
	default: // a probe tells soon
		m.parkUntil(now, it, now.Wall.Add(m.c.ProbeMax), store.Settlement{Reason: it.rec.LastError, DownSince: since})
	}
}

// downSince is when a message began to wait for its channel, which is down. The wait starts
// over at an answer from the channel or the end of a pause, if this node saw it.
func (m *Machine) downSince(now postdate.Now, it *Item) postdate.Time {
	s, since := it.channel.site, it.rec.DownSince
	switch {
	case since != 0:
	case it.rec.Parked && s.down && s.tried:
		since = s.downAt // it was parked before, for something else
	case it.rec.Occurrence != 0 && s.down && s.tried:
		since = max(s.downAt, it.Begins) // it waited behind the occurrences before it
	default:
		since = now.Wall
	}
	return min(max(since, s.answered, m.resumed[it.channel.name]), now.Wall)
}

// noneAhead moves times that were noted for a channel back to now if they lie ahead of it,
// because the clock that showed them was ahead and has been set back.
func (m *Machine) noneAhead(now postdate.Now, c *channel) {
	c.site.answered = min(c.site.answered, now.Wall)
	if at, noted := m.resumed[c.name]; noted {
		m.resumed[c.name] = min(at, now.Wall)
	}
}

// park lets a message wait in the store until its channel is back. since is when its wait for a
// channel that is down began; 0: it waits for something else, for as long as it takes.
func (m *Machine) park(now postdate.Now, it *Item, reason string, since postdate.Time) {
	most := it.rec.Retry.Or(m.c.Retry).MaxParked
	at := since.Add(most)
	if since == 0 {
		at = now.Wall.Add(max(most, m.c.ParkMin))
	}
	m.parkUntil(now, it, at, store.Settlement{Reason: reason, DownSince: since})
}

// parkUntil parks a message until a given time, or until it expires, and then looks at it.
func (m *Machine) parkUntil(now postdate.Now, it *Item, at postdate.Time, s store.Settlement) {
	if it.rec.ExpiresAt != 0 {
		at = min(at, it.rec.ExpiresAt)
	}
	s.How, s.Attempts, s.AttemptTime = store.SettlePark, it.rec.Attempts, max(at, now.Wall+1)
	m.settleAs(it, s)
}

// settleParked settles the ready messages that are parked, which must not be published.
func (m *Machine) settleParked(now postdate.Now, c *channel) {
	if c.looks == 0 {
		return
	}
	c.ready = slices.DeleteFunc(c.ready, func(it *Item) bool {
		switch {
		case !it.rec.Parked:
			return false
		case !c.paused() && !c.site.down && c.site.answered != 0: // it is unparked by and by
			m.park(now, it, it.rec.LastError, 0)
		default:
			m.parkOrGiveUp(now, it)
		}
		return true
	})
}

// giveUp ends a message that has waited for its channel as long as it may.
func (m *Machine) giveUp(now postdate.Now, it *Item) {
	reason := "its channel was down for longer than retry.maxParked, " + it.rec.Retry.Or(m.c.Retry).MaxParked.String()
	if it.doubt {
		reason += "; an earlier attempt may have been delivered"
	}
	reason += "; last error: " + it.channel.site.reason
	m.settleAs(it, store.Settlement{How: store.SettleFailed, At: m.endsAt(now), Attempts: it.rec.Attempts,
		Reason: reason})
}
