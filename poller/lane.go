package poller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

const (
	// callsMax is how many claim calls, and how many settle calls, a lane may have under way.
	callsMax = 4
	// callSlow is how long an unanswered call holds back the next one, in which what comes
	// meanwhile gathers.
	callSlow = 100 * time.Millisecond
	// catchUpMax is how many buckets of the common lane catch up in one call. The others stay free for
	// what comes next.
	catchUpMax = 32
	// sweepsPart: a call begins at most this part of a node's sweeps, and sweepsMin in any case, of buckets in
	// which something is behind. They have to pass over that, and the others in the call wait.
	sweepsPart = 4
	sweepsMin  = 4
	// splitMax is the most lanes among which the buckets of a failed call are divided.
	splitMax = 64
	// lanesMax bounds how many lanes there are.
	lanesMax = 1_024
	// retryMax is the longest pause between two tries of a failing lane.
	retryMax = 2 * time.Second
	// joinMax is the longest time for which a lane that is well again begins no call; usually
	// that is as long as its last successful call took. Under load, some call would otherwise
	// always be under way, and the lane would never join the common one.
	joinMax = 5 * time.Second
)

// lane is a group of buckets whose store calls share one fate. Each bucket begins in the common
// lane. The buckets of a failed call are divided among lanes of their own, so that an
// unreachable part of the store stops only the buckets that lie there. A lane whose calls
// succeed again joins the common one.
type lane struct {
	buckets map[*owned]struct{} // nil for the common lane: all that are in no other
	pause   time.Duration       // between two tries, while it fails
	joinBy  time.Duration       // after a call that went through: it begins none until then, to join the others

	claims      int           // under way
	claimAt     time.Duration // when the last one began
	nextClaim   time.Duration // when the next one may begin, after a failure
	behindFirst bool          // of the common lane: the next one takes first what is behind
	sweepsFrom  time.Duration // what fell due before was swept, or is no longer counted

	settle   []settling    // what is to be settled and not under way
	settles  int           // under way
	settleAt time.Duration // when the last one began
	// when the next one may begin, after a failure; 0: there was none, or a call went through
	// since
	nextSettle time.Duration
}

// claiming is a claim call that is under way, settlingCall a settle call.
type (
	claiming struct {
		lane  *lane
		began time.Duration
		polls []poll
	}
	settlingCall struct {
		lane  *lane
		began time.Duration
		items []settling
	}
)

// mayCall reports whether another call may begin, given how many are under way, when the last
// one began, and the time before which none may begin.
func mayCall(now time.Duration, under int, last, next time.Duration) bool {
	return now >= next && (under == 0 || under < callsMax && now >= last+callSlow)
}

// wake asks to be woken when the lane may make calls that it must not make yet.
func (l *lane) wake(w *waker, c Config) {
	w.mono(max(l.nextClaim, l.joinBy))
	if l.claims > 0 && l.claims < callsMax {
		w.mono(l.claimAt + callSlow)
	}
	if len(l.settle) > 0 {
		w.mono(max(l.nextSettle, l.joinBy, l.settleAt+c.SettleGather))
		if l.settles > 0 && l.settles < callsMax {
			w.mono(l.settleAt + callSlow)
		}
	}
}

// failed divides the buckets of a failed call among lanes of their own. A lane that is already
// apart pauses for longer, and is divided once none of its calls is under way. next returns the
// field of a lane that says when such a call may begin again.
func (m *Machine) failed(now postdate.Now, l *lane, buckets []*owned, next func(*lane) *time.Duration) {
	if l != m.common {
		l.pause = min(2*l.pause, retryMax)
		*next(l) = now.Mono + l.pause
		if l.claims > 0 || l.settles > 0 {
			return
		}
		buckets = slices.Collect(maps.Keys(l.buckets))
	}
	buckets = slices.DeleteFunc(buckets, func(b *owned) bool { return b.lane != l }) // it is apart already
	slices.SortFunc(buckets, byNumber)
	parts := min(len(buckets), splitMax, lanesMax-len(m.apart))
	switch {
	case l != m.common && parts <= 1:
		return
	case len(buckets) > 0 && parts == 0:
		*next(l) = now.Mono + m.c.RetryAfter
		return
	}
	lanes := make([]*lane, parts)
	for i := range lanes {
		lanes[i] = &lane{buckets: map[*owned]struct{}{}, pause: m.c.RetryAfter}
		*next(lanes[i]) = now.Mono + m.c.RetryAfter
	}
	for i, b := range buckets {
		to := lanes[i%parts]
		b.lane, b.unparks = to, false
		to.buckets[b] = struct{}{}
		delete(l.buckets, b)
		m.touch(b)
	}
	m.apart = append(m.apart, lanes...)
	m.moveSettlements(l)
	m.closeLane(l)
	for _, to := range lanes {
		m.closeLane(to)
	}
}

func byNumber(a, b *owned) int { return a.hold.Bucket - b.hold.Bucket }

// stuck reports whether a lane that is apart must claim nothing because its settlements keep
// failing: what is published and not settled takes its channels' room from other buckets. The
// lane claims nothing while a settle of it is under way, or while more settlements wait than
// its part of a quarter of DoubtMax, which all lanes that are apart share.
func (m *Machine) stuck(l *lane) bool {
	return l.nextSettle != 0 && l.pause > m.c.RetryAfter &&
		(l.settles > 0 || len(l.settle) > m.c.DoubtMax/4/len(m.apart))
}

// moveSettlements moves what waits in a lane to the lanes of its buckets.
func (m *Machine) moveSettlements(l *lane) {
	waiting := l.settle
	l.settle = nil
	for _, s := range waiting {
		s.queue()
	}
}

// succeeded notes that a call of a lane went through. The lane joins the common one once no
// other call of it is under way.
func (m *Machine) succeeded(now postdate.Now, l *lane, began time.Duration) {
	if l == m.common {
		return
	}
	l.nextClaim, l.nextSettle, l.joinBy = 0, 0, now.Mono+min(now.Mono-began, joinMax)
	m.join(l)
}

// closeLane ends a lane that will make no more successful calls: it has no buckets, or only
// lost ones and nothing to settle.
func (m *Machine) closeLane(l *lane) {
	for b := range l.buckets {
		if !b.lost || len(l.settle) > 0 {
			return
		}
	}
	m.join(l)
}

// join moves what is left of a lane to the common one, unless a call of it is under way.
func (m *Machine) join(l *lane) {
	if l == m.common || l.claims > 0 || l.settles > 0 {
		return
	}
	for _, b := range slices.SortedFunc(maps.Keys(l.buckets), byNumber) {
		b.lane = m.common
		m.touch(b)
	}
	m.moveSettlements(l)
	m.apart = slices.DeleteFunc(m.apart, func(o *lane) bool { return o == l })
}

// startClaims claims for every bucket that has something to read, with one call per lane.
func (m *Machine) startClaims(now postdate.Now) {
	if !m.leased(now) {
		return
	}
	m.forgetStuck(now)
	m.looked = false
	_, _, most := m.room()
	if l := m.common; most > 0 && mayCall(now.Mono, l.claims, l.claimAt, l.nextClaim) {
		m.claim(now, l, m.choices(now, l.behindFirst, most))
	}
	for _, l := range m.apart {
		if !m.stuck(l) && mayCall(now.Mono, l.claims, l.claimAt, max(l.nextClaim, l.joinBy)) {
			m.claim(now, l, slices.SortedFunc(maps.Keys(l.buckets), func(a, b *owned) int {
				return cmp.Or(cmp.Compare(a.due, b.due), byNumber(a, b))
			}))
		}
	}
}

// choices picks the buckets of the common lane for a call: those that have something due, and those
// in which a channel is behind. What comes first has its way where there is room for few.
func (m *Machine) choices(now postdate.Now, behindFirst bool, most int) []*owned {
	anyDue := m.anyDue(now)
	if behindFirst || !anyDue {
		behind := m.catchingUp(now, min((most+1)/2, catchUpMax))
		if len(behind) == 0 && !anyDue {
			return nil
		}
		return append(behind, m.dueBuckets(now, most)...)
	}
	due := m.dueBuckets(now, most)
	return append(due, m.catchingUp(now, min(most-len(due), catchUpMax))...)
}

// dueBuckets takes buckets from the agenda. Sweeps that fall due together share one round trip.
func (m *Machine) dueBuckets(now postdate.Now, most int) []*owned {
	return m.agenda.take(most, now.Wall.Add(m.c.Ahead), now.Mono+m.c.SweepEvery/4)
}

// claim makes one call for those of the given buckets that have something to read, as many as
// there is room for.
func (m *Machine) claim(now postdate.Now, l *lane, buckets []*owned) {
	var polls []poll
	room, bytes, most := m.room()
	roomAny := m.roomOfAny()
	ofAny, of := 0, map[*channel]int{} // polls that may bring messages of any channel, and of one
	may := allowed{lastSweep: m.lastSweep(now, l, buckets)}
	for _, b := range buckets {
		if b.polling || b.lost {
			continue
		}
		m.touch(b) // it was taken from the agenda
		if len(polls) >= most {
			continue
		}
		m.countUnheard(b, -1)
		may.catchUp = l != m.common || len(polls)-ofAny < catchUpMax
		p, ok := m.choose(now, b, &may)
		ofOne := ok && p.only != nil &&
			p.only.sum(func(c *channel) int { return of[c] }) < m.roomOf(now, p.only)
		m.countUnheard(b, 1)
		switch {
		case ok && p.only == nil && ofAny < roomAny && m.leaveBehind(now, &p):
			ofAny++
		case ofOne:
			of[p.only]++
		default:
			continue
		}
		b.polling = true
		polls = append(polls, p)
	}
	if len(polls) == 0 {
		return
	}
	claims, brings := make([]store.Claim, len(polls)), map[*channel]int{}
	for i := range polls {
		p := &polls[i]
		b, c := p.bucket, &p.claim
		limit := min(room/len(polls), m.c.PageMax)
		if p.only == nil {
			limit = min(limit, roomAny/ofAny)
		} else {
			limit = min(limit, m.limitOf(now, p.only, of, brings))
		}
		// A channel that is behind catches up to claimed and no further, so claimed must move
		// on even if nothing else is due.
		c.IfDue = len(c.Behind) == 0 && c.Checkpoint == b.record.Checkpoint
		if l != m.common {
			limit = 1 // to see whether it goes through: while it hangs it keeps one message's room from the others
		}
		c.Scan.Limit, c.Scan.BytesMax = max(limit, 1), max(bytes/len(polls), 1)
		if l == m.common {
			p.counts = max(c.Scan.Limit-b.unheardOf(p.only, p.of), 0)
		}
		b.claims++
		c.Number = b.claims
		claims[i] = *c
	}
	for i := range polls {
		m.expect(&polls[i], 1)
	}
	l.claims++
	l.claimAt = now.Mono
	l.behindFirst = !l.behindFirst
	m.calls++
	m.claimings[m.calls] = &claiming{l, now.Mono, polls}
	m.fileTouched() // the horizons come before the scan
	m.emit(Claim{m.calls, claims})
}

// claimed handles the results of a claim call and of its scans.
func (m *Machine) claimed(now postdate.Now, ev Claimed) {
	call := m.claimings[ev.Call]
	delete(m.claimings, ev.Call)
	call.lane.claims--
	var failed []*owned
	var fenced []store.Hold
	for i := range call.polls {
		p := &call.polls[i]
		b := p.bucket
		b.polling = false
		m.expect(p, -1)
		if b.lost {
			continue
		}
		switch err := ev.Results[i].Err; {
		case err == nil && p.lapses != m.lapses:
			// The bucket may have had another owner since: claim again.
			m.notHeard(p)
		case err == nil:
			m.scanned(now, *p, &ev.Results[i])
		case postdate.KindOf(err) == postdate.KindFenced:
			fenced = append(fenced, b.hold)
			continue
		default:
			// The claim surely failed, or its outcome is unknown. Nothing of it is used, so
			// what is known of the bucket has not changed, and the same is asked again.
			failed = append(failed, b)
			m.notHeard(p)
		}
		clear(b.letGo)
		m.heardNudges(b)
	}
	if len(fenced) > 0 {
		m.lose(fenced)
		m.emit(fence.Fenced{Holds: fenced})
	}
	if len(failed) > 0 {
		m.failed(now, call.lane, failed, func(l *lane) *time.Duration { return &l.nextClaim })
		return
	}
	// Otherwise it says nothing of what cannot be settled.
	if l := call.lane; l.settles == 0 && (len(l.settle) == 0 || l.nextSettle == 0) {
		m.succeeded(now, l, call.began)
	}
}
