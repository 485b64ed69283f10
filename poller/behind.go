package poller

import (
	"maps"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// A channel that has no room is behind: claims of any channel leave it behind, and what is
// due of it stays unclaimed in the store. The bucket's record says up to where it is claimed.
// When it has room again, it catches up by claims of it alone.

// behindMax and behindBytesMax bound how many channels a bucket's record names as behind,
// and how many bytes their names take. Messages of further ones are read and parked, and claims
// wait for that, for a second at most.
const (
	behindMax      = 16
	behindBytesMax = 4 << 10
)

// leaveBehind has a claim of any channel leave behind what is behind already, and what has no
// room. It says whether the claim may begin: not where it would claim more of a channel that
// the record cannot name as well, and that is overfull.
func (m *Machine) leaveBehind(now postdate.Now, p *poll) bool {
	if !m.looked {
		m.lookForFull(now)
	}
	b := p.bucket
	p.claim.Behind = b.record.Behind
	if len(m.full) == 0 {
		return true
	}
	behind, bytes := map[postdate.Channel]bucket.Position{}, 0
	for name, at := range b.record.Behind {
		behind[name] = at
		bytes += len(name)
	}
	p.claim.Behind = behind
	for _, c := range m.full {
		switch _, is := behind[c.name]; {
		case is:
		case len(behind) < behindMax && bytes+len(c.name) <= behindBytesMax:
			behind[c.name] = b.record.Claimed
			bytes += len(c.name)
		case c.overfull(now.Mono):
			return !b.record.Claimed.Before(p.claim.To)
		case len(behind) == behindMax: // nor are those that follow overfull
			return true
		}
	}
	return true
}

// noteBehind notes which channels a bucket's record says to be behind.
func (m *Machine) noteBehind(b *owned) {
	if len(b.record.Behind) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(b.record.Behind)) {
		if _, noted := b.behind[name]; noted {
			continue
		}
		c := m.channelOf(name)
		if len(c.behindIn) == 0 {
			m.behind = append(m.behind, c)
		}
		c.behindIn = append(c.behindIn, b)
		b.behind[name] = struct{}{}
	}
}

// catchingUp takes up to most buckets of the common lane in which channels are behind that
// have room now, each channel's in turn.
func (m *Machine) catchingUp(now postdate.Now, most int) (all []*owned) {
	m.behind = slices.DeleteFunc(m.behind, func(c *channel) bool {
		if len(all) >= most || !m.hasRoom(now, c) {
			return false
		}
		for range min(len(c.behindIn), m.roomOf(now, c)) {
			b := c.behindIn[0]
			c.behindIn = c.behindIn[1:]
			if _, behind := b.record.Behind[c.name]; !behind {
				delete(b.behind, c.name)
				continue
			}
			if !b.polling && b.lane == m.common && len(all) < most {
				all = append(all, b)
			}
			c.behindIn = append(c.behindIn, b)
		}
		if len(c.behindIn) > 0 {
			return false
		}
		c.behindIn = nil
		m.forget(c)
		return true
	})
	return all
}

// catchUp makes p a scan of a channel that is behind in b and has room, if there is one;
// of several each gets its turn. Where messages of it are parked as well, chance says which
// come first.
func (m *Machine) catchUp(now postdate.Now, b *owned, p *poll) bool {
	to := p.claim.To.Earliest(b.record.Claimed)
	names := slices.Sorted(maps.Keys(b.record.Behind))
	for i := range names {
		c := m.channels[names[(b.turn/scanTurns+i)%len(names)]]
		at := b.record.Behind[c.name]
		// Where the wall clock was set back, claimed lies ahead of the clock, and there is a
		// little more to claim with each millisecond: wait until a whole Gather has come together.
		near := to != b.record.Claimed && to.Time-at.Time < postdate.Time(m.c.Gather.Milliseconds())
		switch {
		case !at.Before(to), near, !m.hasRoom(now, c):
		case c.parkedIn.len() > 0 && !c.paused() && m.random() < 0.5:
		default:
			p.kind, p.only, p.claim.Scan.After, p.claim.To = scanBehind, c, at, to
			return true
		}
	}
	return false
}

// forgetBehind takes a bucket that was lost out of those in which channels are behind.
func (m *Machine) forgetBehind(b *owned) {
	for name := range b.behind {
		c := m.channels[name]
		c.behindIn = slices.DeleteFunc(c.behindIn, func(o *owned) bool { return o == b })
		if len(c.behindIn) == 0 {
			m.behind = slices.DeleteFunc(m.behind, func(o *channel) bool { return o == c })
			m.forget(c)
		}
	}
}
