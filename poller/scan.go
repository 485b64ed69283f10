package poller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// owned is what the machine knows about one bucket that it owns.
type owned struct {
	hold      store.Hold
	claims    uint64                    // the number of the last claim that was sent
	record    bucket.Partition          // as the last claim left it that is known to be durable
	unheard   []unheard                 // claims that had no answer
	unheardTo bucket.Position           // up to where those may have claimed
	dropped   map[postdate.Key]*channel // what was dropped when the lease ended, and was not read again yet
	inherited bucket.Partition          // as earlier owners left it: what they may have published is in doubt

	// read: every PENDING message up to this position was seen, except those of channels that
	// are behind and those that were inserted later.
	read bucket.Position
	// due is the earliest known attempt time at or after read; Far if there is none.
	due postdate.Time
	// late is the position before read from which on there may be unseen messages; nowhere if
	// none are known. Scans go on from there to read. again is where such messages turned up
	// meanwhile, before late or after it. With one position for all, a series that catches up, and
	// arms one occurrence after the other in the past, would call the scans back each time; and what
	// turns up behind a backlog that is in hand already would wait until the scans have passed that.
	late  bucket.Position
	again spans
	// leftOut is the first message that a scan left out and that no whole sweep has passed
	// since; nowhere if there is none. leftOutAgain is the first one left out since the present
	// sweep began; it becomes leftOut when that sweep ends.
	leftOut, leftOutAgain bucket.Position
	sweepAt               time.Duration
	// sweeping: a sweep has begun. It continues as a scan of what is late, up to read.
	sweeping bool
	turn     int // grows with each choice, and says which kind of scan comes first

	parkedFor rotation[*channel] // channels for which it may have parked messages
	overdue   []*overdue         // what fills the scans
	// behind holds the channels and tenants in whose behindIn it is, and up to when nothing of them
	// was due that is not claimed.
	behind map[postdate.Route]postdate.Time

	lane         *lane
	horizon      postdate.Time // as Horizon said last
	touched      bool          // it is in Machine.touched
	busy         bool          // it is in agenda.busy
	inDue        int           // 1 + its place in agenda.byDue; 0: it is not there
	inSweep      int           // and in agenda.bySweep
	polling      bool          // a claim is under way
	nudged       spans         // since it began
	unparks      bool          // unparks go through, as far as is known since it came to its lane
	unparkAt     postdate.Time // the last attempt time that was given to parked messages
	findFailedAt time.Duration // when asking what is parked in it failed; 0: that went through, or was not done yet

	hand   map[postdate.Key]*Item
	oldest attemptHeap // the hand by attempt time
	// letGo holds what was settled during the claim under way: the scan may have read it before
	// it was settled.
	letGo map[postdate.Key]postdate.State
	// chosen holds the occurrences that skips went on to, until they are read: they begin, however
	// late they are by then. Else a slow store and a short interval, or a backlog that is longer than
	// MisfireAfter, could skip for ever.
	chosen map[postdate.Key]postdate.Time
	// armed holds the occurrences in the range in doubt that settlements of this owner armed, until they
	// are read: nobody else can have begun them.
	armed map[postdate.Key]postdate.Time

	leaving
	lost bool
}

// nowhere is a position after every message.
var nowhere = bucket.Position{Time: postdate.Far}

// poll is a claim that is under way, and the reason for its scan.
type poll struct {
	bucket *owned
	kind   scanKind
	only   *channel // for scanBehind of one channel
	of     *tenant  // for scanBehind of all that a tenant has
	claim  store.Claim
	counts int // messages that may be in doubt by it, beside those of claims without an answer
	lapses int // Machine.lapses when it began
}

type scanKind uint8

const (
	scanOn     scanKind = iota // go on where the last one ended
	scanLate                   // what turned up before that
	scanAgain                  // what turned up while scanLate goes on
	scanSweep                  // from the very first message
	scanBehind                 // what is not claimed yet of one channel or tenant
)

// gained starts work on buckets. What lies between checkpoint and claimed is in doubt. That
// everything up to the checkpoint is settled is only a hint, so the first scan is a sweep, or one follows
// soon where something is behind.
func (m *Machine) gained(now postdate.Now, partitions []bucket.Partition) {
	for _, p := range partitions {
		if b := m.buckets[p.Bucket]; b != nil {
			m.lose([]store.Hold{b.hold})
		}
		b := &owned{
			hold: store.Hold{Bucket: p.Bucket, Token: p.Token}, claims: p.Claims, record: p, inherited: p,
			read: bucket.UpTo(p.Checkpoint), due: now.Wall,
			late: nowhere, leftOut: nowhere, leftOutAgain: nowhere,
			sweepAt: now.Mono,
			hand:    map[postdate.Key]*Item{}, letGo: map[postdate.Key]postdate.State{}, lane: m.common,
			chosen:  map[postdate.Key]postdate.Time{},
			armed:   map[postdate.Key]postdate.Time{},
			dropped: map[postdate.Key]*channel{},
			behind:  map[postdate.Route]postdate.Time{},
		}
		m.buckets[p.Bucket] = b
		m.find = append(m.find, p.Bucket)
		m.noteBehind(b, 0)
		m.touch(b)
	}
}

// lose forgets buckets. A publish in flight is settled if it is confirmed, because that is a
// fact; the rest is up to the next owner.
func (m *Machine) lose(holds []store.Hold) {
	for _, hold := range holds {
		b := m.buckets[hold.Bucket]
		if b == nil || b.hold.Token != hold.Token {
			continue
		}
		b.lost = true
		of := b.lane
		delete(of.buckets, b)
		b.lane = m.common // what is a fact is written all the same
		m.closeLane(of)
		m.touch(b)
		m.dropWaiting(b)
		delete(m.buckets, hold.Bucket)
		for _, c := range b.parkedFor.members() {
			m.unparkedAll(c, b)
		}
		m.retries.remove(b)
		m.forgetBehind(b)
		m.forgetUnheard(b, 0)
		m.forgetDropped(b)
	}
}

// idle says whether everything claimed is settled, as far as is known.
func (b *owned) idle() bool {
	return len(b.hand) == 0 && b.late == nowhere && !b.read.Before(b.record.Claimed)
}

// settledUpTo is the checkpoint of the next claim: as far as is known, everything up to it is
// settled.
func (b *owned) settledUpTo() postdate.Time {
	t := b.handledUpTo()
	for _, p := range b.record.Behind {
		t = min(t, p.Time-1)
	}
	return max(t, 0)
}

// handledUpTo is the checkpoint with which a bucket is handed over: as far as is known,
// everything up to it is settled or was never claimed.
func (b *owned) handledUpTo() postdate.Time {
	t := min(b.read.Time, b.firstLate(), b.leftOut.Time, b.record.Claimed.Time)
	if it := b.oldest.first(); it != nil {
		t = min(t, it.rec.AttemptTime)
	}
	return max(t-1, 0)
}

// leased reports whether it is certain that no other node has taken a bucket yet.
func (m *Machine) leased(now postdate.Now) bool { return now.Mono < m.leaseUntil-m.c.LeaseMargin }

// believe ends the lease if the wall clock was set since the last renewal, or ran on while the
// machine slept and the monotonic clock stood still: by such a clock a message may seem due
// when it is not. It returns the reading to use.
func (m *Machine) believe(now postdate.Now) postdate.Now {
	if m.leaseUntil == 0 {
		return now // none was judged yet, and nothing is done by it
	}
	off := now.Wall.Sub(m.ifNotSet(now).Wall)
	if by := off - m.setBy; max(by, -by) > m.c.JumpMax {
		m.leaseUntil, m.setAt, m.setBy = min(m.leaseUntil, now.Mono), now.Mono, off
		m.emit(fence.ClockSet{By: by})
	}
	return m.reading(now)
}

// reading returns now or, until a renewal that began after the wall clock was set has checked
// it, the reading of a clock that was not set.
func (m *Machine) reading(now postdate.Now) postdate.Now {
	if m.setAt != 0 {
		return m.ifNotSet(now)
	}
	return now
}

// ifNotSet is the reading of a wall clock that was not set since it was last found good.
func (m *Machine) ifNotSet(now postdate.Now) postdate.Now {
	return m.judged.Later(now.Mono - m.judged.Mono)
}

// extendLease takes in a renewal. If the lease had already ended, somebody may have taken a
// bucket and given it back before the renewal was written, so nothing that was claimed earlier
// is published on the strength of that claim. A renewal that began before the clock was set
// says nothing about the clock.
func (m *Machine) extendLease(now postdate.Now, ev fence.LeaseUntil) {
	if ev.Read.Mono < m.setAt {
		return
	}
	if m.leaseUntil != 0 && now.Mono >= m.leaseUntil {
		m.lapses++
		m.droppedAt = now.Mono
		for _, number := range slices.Sorted(maps.Keys(m.buckets)) {
			m.reread(m.buckets[number])
		}
	}
	m.leaseUntil, m.judged, m.setAt, m.setBy = max(m.leaseUntil, ev.Mono), ev.Read, 0, 0
}

// anyDue reports whether some bucket of the common lane has something to do. The first one ends
// the wait for others to share the call.
func (m *Machine) anyDue(now postdate.Now) bool {
	a := &m.agenda
	if len(a.byDue.list) > 0 && a.byDue.list[0].due <= now.Wall.Add(m.c.Ahead-m.c.Gather) ||
		len(a.bySweep.list) > 0 && a.bySweep.list[0].sweepAt <= now.Mono {
		return true
	}
	return slices.ContainsFunc(a.busy, (*owned).wanting)
}

// allowed is what else a call may have: sweeps of buckets in which something is behind, up to lastSweep in
// their order, or all if that is nil; and whether a scan of what is behind.
type allowed struct {
	lastSweep *owned
	catchUp   bool
}

// choose picks what to read of a bucket next, if anything.
func (m *Machine) choose(now postdate.Now, b *owned, may *allowed) (poll, bool) {
	// If the wall clock was set back, claimed may lie far ahead. Messages that are not due for
	// a long time must stay out of the hand.
	to, checkpoint := bucket.UpTo(now.Wall.Add(m.c.Ahead)), b.settledUpTo()
	if b.resting() {
		if now.Mono >= m.goneBy(b) {
			return poll{}, false
		}
		to, checkpoint = to.Earliest(b.record.Claimed), b.handledUpTo() // finish what is claimed, and begin nothing
	}
	p := poll{bucket: b, lapses: m.lapses, claim: store.Claim{
		Bucket: b.hold.Bucket,
		Claim:  bucket.Claim{Token: b.hold.Token, Checkpoint: checkpoint, To: to, Behind: b.record.Behind},
	}}
	b.turn++
	turn := b.turn
	if turn%scanTurns == scanTurns-1 && b.onlyLowBehind() && m.random()*lowPart >= 1 {
		turn++ // what comes in may be more urgent
	}
	for i := range scanTurns {
		if m.chooseKind(now, b, &p, (turn+i)%scanTurns, may) {
			return p, true
		}
	}
	return poll{}, false
}

// onlyLowBehind reports whether nothing behind in a bucket is of another priority than low.
func (b *owned) onlyLowBehind() bool {
	for route := range b.record.Behind {
		if route.IsAll() || route.Priority() != postdate.PriorityLow {
			return false
		}
	}
	return true
}

// scanTurns is how many kinds of scan of a bucket take turns: what is new, late, and behind. What is
// late again has every other turn of what is late. A sweep takes no turn: it comes first, and continues
// as a scan of what is late.
const scanTurns = 3

// chooseKind makes p a sweep if one is due, else the scan whose turn it is, if it is needed.
func (m *Machine) chooseKind(now postdate.Now, b *owned, p *poll, turn int, may *allowed) bool {
	scan := &p.claim.Scan
	// With others: sweeps that fall due together cost one round trip.
	if b.sweepDue(now.Mono+m.c.SweepEvery/4) && may.sweep(b) {
		p.kind = scanSweep
		if b.idle() && p.claim.Checkpoint != b.record.Checkpoint {
			// The checkpoint is written once, and nothing new is claimed with it, so that later
			// sweeps have nothing to write.
			p.claim.To = p.claim.To.Earliest(b.record.Claimed)
		}
		return true
	}
	switch turn {
	case 0:
		p.kind, scan.After = scanOn, b.read
		// A bucket that is being handed over is read to the end of what is claimed, which may
		// lie ahead of this node's clock. Then its checkpoint is written.
		rest := b.resting() && (b.idle() || b.read.Before(b.record.Claimed) && p.claim.To == b.record.Claimed)
		return b.due < p.claim.To.Time || rest
	case 1:
		p.kind, scan.After = scanLate, b.late
		if len(b.again) > 0 && b.turn%2 == 0 {
			p.kind, scan.After = scanAgain, b.again.takeTurn()
		}
		return b.late != nowhere
	default:
		return may.catchUp && !b.resting() && m.catchUp(now, b, p)
	}
}

// sweep reports whether a sweep of b may begin in this call. If not, it begins in one of the next.
func (a *allowed) sweep(b *owned) bool {
	return len(b.record.Behind) == 0 || a.lastSweep == nil || bySweep(b, a.lastSweep) <= 0
}

// bySweep orders buckets by how long a sweep of them has been due.
func bySweep(a, b *owned) int {
	return cmp.Or(cmp.Compare(a.sweepAt, b.sweepAt), cmp.Compare(a.hold.Bucket, b.hold.Bucket))
}

// lastSweep returns the last of the given buckets that may be swept in a lane's next call, in their order,
// or nil if all may. These are about as many as fell due and were not in the calls before, and it notes
// that these are.
func (m *Machine) lastSweep(now postdate.Now, l *lane, buckets []*owned) *owned {
	each := m.c.SweepEvery / time.Duration(max(len(m.buckets), 1)) // between one sweep that falls due and the next
	l.sweepsFrom = max(l.sweepsFrom, now.Mono-m.c.SweepEvery/sweepsPart)
	most := max(m.sweepsMin, int((now.Mono-l.sweepsFrom)/each))
	due := slices.DeleteFunc(slices.Clone(buckets), func(b *owned) bool {
		return len(b.record.Behind) == 0 || b.polling || b.lost || !b.sweepDue(now.Mono+m.c.SweepEvery/4)
	})
	slices.SortFunc(due, bySweep)
	due = slices.Compact(due) // some are given twice
	l.sweepsFrom = min(l.sweepsFrom+time.Duration(min(most, len(due)))*each, now.Mono)
	if len(due) <= most {
		return nil
	}
	return due[most-1]
}

// sweepDue reports whether a sweep is due by a given time: none is while one goes on.
func (b *owned) sweepDue(by time.Duration) bool {
	return by >= b.sweepAt && !b.sweeping && !b.resting()
}

// scanned notes what a scan has seen, and takes what it found into the hand.
func (m *Machine) scanned(now postdate.Now, p poll, r *store.ClaimResult) {
	b := p.bucket
	if r.To != (bucket.Position{}) { // else nothing was written
		p.claim.To = r.To
		record, err := b.record.Claim(p.claim.Claim)
		if err != nil {
			panic("poller: " + err.Error()) // the store took it
		}
		b.record = record
		if record.Claimed.Before(b.unheardTo) {
			b.keepBehind(&p)
		}
		m.noteBehind(b, b.read.Time)
	}
	m.heard(&p, r)
	if p.kind == scanSweep {
		b.leftOutAgain = nowhere
	}
	if r.LeftOut != (bucket.Position{}) {
		b.leftOut, b.leftOutAgain = b.leftOut.Earliest(r.LeftOut), b.leftOutAgain.Earliest(r.LeftOut)
	}
	switch p.kind {
	case scanBehind:
		if r.Ended.Before(r.To) { // others came in meanwhile: what follows is claimed, and not read
			b.missed(spanFrom(r.Ended))
		}
	case scanSweep, scanLate:
		b.sweeping = b.sweeping || p.kind == scanSweep
		b.again = p.leaves(r)
		if p.kind == scanSweep && !p.passed(r, b.late) {
			b.again.add(spanFrom(b.late)) // it does not wait until the sweep comes there
		}
		b.late = nowhere
		b.readTo(r)
	case scanAgain:
		b.again = p.leaves(r)
		if p.passed(r, b.late) {
			b.late = nowhere // the scans of it go on from here
		}
		if b.late == nowhere || p.reached(r) {
			b.readTo(r)
		}
	case scanOn:
		b.readTo(r)
	}
	if p.kind != scanBehind {
		m.noteOverdue(now, b, r)
	}
	if b.sweeping && b.late == nowhere { // it has come to its end
		b.sweeping, b.sweepAt, b.leftOut = false, now.Mono+m.c.SweepEvery, b.leftOutAgain
	}
	again := b.again // what is late again follows what was late, or is ahead if the wall clock was set back
	b.again = nil
	for _, s := range again {
		b.missed(s)
	}
	for i := range r.Due {
		m.take(now, p, &r.Due[i])
	}
	if p.kind != scanBehind && r.Complete && b.late == nowhere {
		m.forgetDropped(b) // what was not read again is gone, or lies ahead of a clock that was set back
	}
}

// passed says whether a scan has passed a position.
func (p *poll) passed(r *store.ClaimResult, at bucket.Position) bool {
	return !at.Before(p.claim.Scan.After) && !r.Ended.Before(at)
}

// reached says whether a scan has come to where its bucket is read to, or to where it could.
func (p *poll) reached(r *store.ClaimResult) bool {
	return r.Complete || !r.Ended.Before(p.bucket.read)
}

// leaves returns what a scan leaves of what is late again.
func (p *poll) leaves(r *store.ClaimResult) spans {
	ended := r.Ended
	if p.reached(r) {
		ended = nowhere // what follows is read in its turn
	}
	return p.bucket.again.without(p.claim.Scan.After, ended)
}

// readTo notes how far a scan got.
func (b *owned) readTo(r *store.ClaimResult) {
	switch {
	case r.Complete:
		// It may end before read, if the wall clock was set back. What lies between is read
		// again when its time comes.
		b.read, b.due = r.Ended, r.Next
		if late := b.late; b.read.Before(late) {
			b.late = nowhere
			b.missed(spanFrom(late))
		}
	case r.Ended.Before(b.read):
		b.missed(spanFrom(r.Ended)) // it had gone back, and goes on from there
	default:
		b.read, b.due = r.Ended, r.Ended.Time
	}
}
