package poller

import (
	"maps"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// Claims of any channel leave a channel without room behind: its due messages stay unclaimed in
// the store, and the bucket's record says up to where it is claimed. When it has room again, it
// catches up through claims of this channel alone.

// behindMax and behindBytesMax bound how many channels a bucket's record names as behind, and
// how many bytes their names take. Messages of further channels are read and parked, and claims
// wait for that, for at most a second.
const (
	behindMax      = 16
	behindBytesMax = 4 << 10
)

// leaveBehind makes a claim of any channel leave behind the channels that are behind already,
// and those without room. It reports whether the claim may begin: it may not if it would claim
// more of an overfull channel for which the record has no place left.
func (m *Machine) leaveBehind(now postdate.Now, p *poll) bool {
	if !m.looked {
		m.lookForFull(now)
	}
	b := p.bucket
	p.claim.Behind = b.record.Behind
	if len(m.full) == 0 {
		return true
	}
	behind, bytes := map[postdate.Route]bucket.Position{}, 0
	for name, at := range b.record.Behind {
		behind[name] = at
		bytes += len(name)
	}
	p.claim.Behind = behind
	for _, c := range m.full {
		switch _, is := behind[c.route]; {
		case is:
		case len(behind) < behindMax && bytes+len(c.route) <= behindBytesMax:
			behind[c.route] = b.record.Claimed
			bytes += len(c.route)
		case c.overfull(now.Mono):
			return !b.record.Claimed.Before(p.claim.To)
		case len(behind) == behindMax: // nor are those that follow overfull
			return true
		}
	}
	return true
}

// noteBehind notes which channels a bucket's record names as behind.
func (m *Machine) noteBehind(b *owned) {
	if len(b.record.Behind) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(b.record.Behind)) {
		if _, noted := b.behind[name]; noted {
			continue
		}
		m.fallBehind(m.channelOf(name), b)
		b.behind[name] = struct{}{}
	}
}

// catchingUpIn picks buckets in which a channel can catch up. It looks at no more buckets than the
// channel has room for messages; the next call goes on from there.
func (m *Machine) catchingUpIn(now postdate.Now, c *channel, most int) (all []*owned) {
	upTo := bucket.UpTo(now.Wall.Add(m.c.Ahead))
	for range min(len(c.behindIn), m.roomOf(now, c)) {
		if len(all) == most {
			break
		}
		b := c.behindIn[0]
		c.behindIn = c.behindIn[1:]
		if _, behind := b.record.Behind[c.route]; !behind {
			delete(b.behind, c.route)
			continue
		}
		c.behindIn = append(c.behindIn, b)
		if _, _, ok := m.lag(b, c, upTo); ok && !b.polling && b.lane == m.common {
			all = append(all, b)
		}
	}
	return all
}

// lag is the range of time in which a channel that is behind in a bucket can catch up now. ok is
// false if there is none.
func (m *Machine) lag(b *owned, c *channel, upTo bucket.Position) (from, to bucket.Position, ok bool) {
	from, behind := b.record.Behind[c.route]
	to = upTo.Earliest(b.record.Claimed)
	// If the wall clock was set back, claimed lies ahead of it, and each millisecond adds a
	// little more to claim: wait until a whole Gather has come together.
	near := to != b.record.Claimed && to.Time-from.Time < postdate.Time(m.c.Gather.Milliseconds())
	return from, to, behind && from.Before(to) && !near
}

// catchUp makes p a scan of a channel that is behind in b and has room, if there is one.
// Several such channels take turns. If the channel also has parked messages, chance decides
// which come first.
func (m *Machine) catchUp(now postdate.Now, b *owned, p *poll) bool {
	names := slices.Sorted(maps.Keys(b.record.Behind))
	for i := range names {
		c := m.channels[names[(b.turn/scanTurns+i)%len(names)]]
		from, to, ok := m.lag(b, c, p.claim.To)
		switch {
		case !ok, !m.hasRoom(now, c):
		case c.parkedIn.len() > 0 && !c.paused() && m.random() < 0.5:
		default:
			p.kind, p.only, p.claim.Scan.After, p.claim.To = scanBehind, c, from, to
			return true
		}
	}
	return false
}

// forgetBehind removes a lost bucket from the buckets in which channels are behind.
func (m *Machine) forgetBehind(b *owned) {
	for name := range b.behind {
		c := m.channels[name]
		c.behindIn = slices.DeleteFunc(c.behindIn, func(o *owned) bool { return o == b })
		if len(c.behindIn) == 0 {
			t := c.site.tenant
			t.behind = slices.DeleteFunc(t.behind, func(o *channel) bool { return o == c })
			m.forget(c)
		}
	}
}
