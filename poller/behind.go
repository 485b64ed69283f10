package poller

import (
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Claims of any channel leave a channel without room behind: its due messages stay unclaimed in
// the store, and the bucket's record says up to where it is claimed. When it has room again, it
// catches up through claims of this channel alone.
//
// A tenant is left behind with all of its channels, and catches up through claims of its own, if it
// has more channels without room than a record names, or more that is overdue than claims read at
// once, on more than a few channels. So neither holds up another tenant.

// behindMax and behindBytesMax bound how many channels a bucket's record names as behind, and
// how many bytes their names take; tenantsBehindMax bounds how many tenants it names. Messages of
// what has no place are read and parked, and claims wait for that, for at most a second.
const (
	behindMax        = 16
	behindBytesMax   = 4 << 10
	tenantsBehindMax = 16
)

// leaveBehind makes a claim leave behind what has no room, besides what is behind already. It reports
// whether the claim may begin: it may not if it would claim more of an overfull channel for which
// the record has no place left.
func (m *Machine) leaveBehind(now postdate.Now, p *poll) bool {
	if !m.looked {
		m.lookForFull(now)
	}
	b := p.bucket
	full, overdue := m.full, b.overdue
	if p.of != nil { // it takes nothing of others
		full, overdue = []*tenant{p.of}, nil
	}
	if len(full) == 0 && len(overdue) == 0 {
		return true
	}
	s := placesOf(b.record)
	p.claim.Behind = s.behind
	for _, o := range overdue {
		s.leaveOverdue(o)
	}
	for i, t := range full {
		if s.taken && i >= m.overfull { // there may be thousands more
			break
		}
		if !s.leave(now, p, t) {
			return false
		}
	}
	return true
}

// overdueAfter is how long after its time more is due than a scan takes, so that it is left behind.
const overdueAfter = 100 * time.Millisecond

// overdueMax is how many channels a tenant may have for its overdue ones to be left behind one by one,
// rather than all of it: scans find one after the other, and others wait for each.
const overdueMax = 4

// overdue is what a scan found of one tenant: the route of each message.
type overdue struct {
	tenant *tenant
	routes []postdate.Route
}

// noteOverdue notes what a scan found if it did not come to its end, long after that was due, the tenants
// with the most first: other channels and other tenants must not wait for what follows. What is claimed
// already cannot be left behind.
func (m *Machine) noteOverdue(now postdate.Now, b *owned, r *store.ClaimResult) {
	b.overdue = nil
	if r.Complete || now.Wall.Add(-overdueAfter) <= r.Ended.Time || r.Ended.Before(b.record.Claimed) {
		return
	}
	found := map[*tenant]*overdue{}
	for i := range r.Due {
		t := m.tenantOf(r.Due[i].Tenant)
		if found[t] == nil {
			found[t] = &overdue{tenant: t}
			b.overdue = append(b.overdue, found[t])
		}
		found[t].routes = append(found[t].routes, r.Due[i].Route())
	}
	slices.SortStableFunc(b.overdue, func(o, p *overdue) int { return len(p.routes) - len(o.routes) })
}

// places are what a claim says of what is behind.
type places struct {
	claimed                  bucket.Position // of what is not
	behind                   map[postdate.Route]bucket.Position
	channels, bytes, tenants int
	taken                    bool // something had no place
}

func placesOf(record bucket.Partition) *places {
	s := &places{claimed: record.Claimed, behind: map[postdate.Route]bucket.Position{}}
	for route, at := range record.Behind {
		s.add(route, at)
	}
	return s
}

func (s *places) add(route postdate.Route, at bucket.Position) {
	s.behind[route] = at
	if route.IsAll() {
		s.tenants++
		return
	}
	s.channels++
	s.bytes += len(route)
}

// leaveOverdue leaves behind what a scan found of a tenant: its channels if it has few, else all of it.
func (s *places) leaveOverdue(o *overdue) {
	if _, all := s.behind[o.tenant.all]; all {
		return
	}
	for _, route := range o.routes {
		if _, named := s.behind[route]; named {
			continue
		}
		if o.tenant.channels > overdueMax || !s.hasPlace(route) {
			s.leaveAll(o.tenant)
			return
		}
		s.add(route, s.claimed)
	}
}

// hasPlace reports whether the record has a place for a channel's name.
func (s *places) hasPlace(route postdate.Route) bool {
	return s.channels < behindMax && s.bytes+len(route) <= behindBytesMax
}

// leaveAll leaves all of a tenant behind, and reports whether that has a place.
func (s *places) leaveAll(t *tenant) bool {
	if _, is := s.behind[t.all]; is {
		return true
	}
	if s.tenants == tenantsBehindMax {
		return false
	}
	s.add(t.all, s.claimed)
	return true
}

// leave leaves a tenant's channels without room behind, or else all of the tenant.
func (s *places) leave(now postdate.Now, p *poll, t *tenant) (mayBegin bool) {
	for _, c := range t.full {
		at, all := s.behind[t.all]
		if !all {
			at = s.claimed
		}
		_, named := s.behind[c.route]
		switch {
		case named:
		case s.hasPlace(c.route):
			s.add(c.route, at)
		case p.of == nil && s.leaveAll(t):
			return true // the claim takes nothing of it
		case c.overfull(now.Mono):
			return !at.Before(p.claim.To)
		default: // nor are those of its channels that follow overfull
			s.taken = true
			return true
		}
	}
	return true
}

// noteBehind notes what a bucket's record names as behind. since: up to then, nothing of what it names
// newly was due that is not claimed; 0: that is not known.
func (m *Machine) noteBehind(b *owned, since postdate.Time) {
	if len(b.record.Behind) == 0 {
		return
	}
	for _, route := range slices.Sorted(maps.Keys(b.record.Behind)) {
		if _, noted := b.behind[route]; noted {
			continue
		}
		if route.IsAll() {
			t := m.tenantOf(route.Tenant())
			t.behindIn = append(t.behindIn, b)
		} else {
			m.fallBehind(m.channelOf(route), b)
		}
		b.behind[route] = since
	}
}

// catchingUpIn picks buckets in which a channel can catch up. It looks at no more buckets than the
// channel has room for messages; the next call goes on from there.
func (m *Machine) catchingUpIn(now postdate.Now, c *channel, most int) (all []*owned) {
	c.behindIn, all = m.laggingIn(now, c.route, c.behindIn, m.roomOf(now, c), most)
	return all
}

// laggingIn takes from the buckets whose records say that something is behind, in turn, at most that
// many in which it can catch up, looking at no more than looks. It returns those that are left, in
// turn, too.
func (m *Machine) laggingIn(now postdate.Now, route postdate.Route, in []*owned, looks, most int) (left, all []*owned) {
	upTo := bucket.UpTo(now.Wall.Add(m.c.Ahead))
	for range min(len(in), looks) {
		if len(all) >= most {
			break
		}
		b := in[0]
		in = in[1:]
		if _, behind := b.record.Behind[route]; !behind {
			delete(b.behind, route)
			continue
		}
		in = append(in, b)
		if _, _, ok := m.lag(b, route, upTo); ok && !b.polling && b.lane == m.common {
			all = append(all, b)
		}
	}
	return in, all
}

// lag is the range of time in which what is behind in a bucket can catch up now: a channel, with the
// rest of its tenant where all of that is behind, or a tenant. ok is false if there is none.
func (m *Machine) lag(b *owned, route postdate.Route, upTo bucket.Position) (from, to bucket.Position, ok bool) {
	from, behind := b.record.Behind[route]
	last := b.record.Claimed
	if at, all := b.record.Behind[postdate.AllOf(route.Tenant())]; all && !route.IsAll() {
		last = at
	}
	to = upTo.Earliest(last)
	// If the wall clock was set back, claimed lies ahead of it, and each millisecond adds a
	// little more to claim: wait until a whole Gather has come together.
	near := to != last && to.Time-from.Time < postdate.Time(m.c.Gather.Milliseconds())
	return from, to, behind && from.Before(to) && !near
}

// catchUp makes p a scan of what is behind in b and has room, if there is anything. Tenants have turns
// as their weights say, and so do the channels of each. If all of a tenant is behind, every other of its
// turns is for that. If a channel also has parked messages, chance decides which come first.
func (m *Machine) catchUp(now postdate.Now, b *owned, p *poll) bool {
	of, weights := map[*tenant][]postdate.Route{}, 0
	var tenants []*tenant
	for _, route := range slices.Sorted(maps.Keys(b.record.Behind)) {
		if _, _, ok := m.lag(b, route, p.claim.To); !ok || !m.mayCatchUp(now, route) {
			continue
		}
		t := m.tenantOf(route.Tenant())
		if len(of[t]) == 0 {
			tenants = append(tenants, t)
			weights += t.weight
		}
		of[t] = append(of[t], route)
	}
	if len(tenants) == 0 {
		return false
	}
	t, turn := m.pick(tenants, weights), b.turn/scanTurns
	routes := of[t]
	if len(routes) > 1 && routes[0].IsAll() { // which sorts before its channels
		if turn%2 == 0 {
			routes = routes[:1]
		} else {
			routes = routes[1:]
		}
		turn /= 2
	}
	routes = m.ofOnePriority(routes)
	route := routes[turn%len(routes)]
	if p.only = m.channels[route]; p.only == nil {
		p.of = t
	}
	p.kind, p.claim.Only = scanBehind, route
	p.claim.Scan.After, p.claim.To, _ = m.lag(b, route, p.claim.To)
	return true
}

// mayCatchUp reports whether what is behind may catch up: a channel if it has room.
func (m *Machine) mayCatchUp(now postdate.Now, route postdate.Route) bool {
	if route.IsAll() {
		return true
	}
	c := m.channels[route]
	return m.hasRoom(now, c) && (c.parkedIn.len() == 0 || c.paused() || m.random() >= 0.5)
}

// pick picks one of some tenants, each as often as it weighs.
func (m *Machine) pick(tenants []*tenant, weights int) (picked *tenant) {
	if len(tenants) == 1 {
		return tenants[0]
	}
	at := m.random() * float64(weights)
	for _, picked = range tenants {
		if at -= float64(picked.weight); at < 0 {
			break
		}
	}
	return picked
}

// forgetBehind removes a lost bucket from those in which channels and tenants are behind.
func (m *Machine) forgetBehind(b *owned) {
	same := func(o *owned) bool { return o == b }
	for route := range b.behind {
		if route.IsAll() {
			t := m.tenantOf(route.Tenant())
			t.behindIn = slices.DeleteFunc(t.behindIn, same)
			continue
		}
		c := m.channels[route]
		c.behindIn = slices.DeleteFunc(c.behindIn, same)
		if len(c.behindIn) == 0 {
			t := c.site.tenant
			t.behind = slices.DeleteFunc(t.behind, func(o *channel) bool { return o == c })
			m.forget(c)
		}
	}
}
