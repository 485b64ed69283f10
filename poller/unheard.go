package poller

import (
	"maps"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// A claim without an answer may have been written. Until the answer to a later claim says more,
// what it may have claimed takes up room, and the channels that it left behind stay behind.
// Messages that were dropped when the lease ended take up room until they are read again, but
// no longer than stuckAfter.

// unheard stands for claims of a bucket that had no answer and may have been written.
type unheard struct {
	only *channel // of one channel; nil: of any
	of   *tenant  // of any of one tenant; nil: of any tenant
	n    int      // messages that they may have claimed and that nothing has returned since
}

// notHeard notes that a claim had no answer, or none that can be used. The channels that it
// left behind stay behind until the known record has come as far as this claim: a claim that
// did not name them would claim them up to there.
func (m *Machine) notHeard(p *poll) {
	b := p.bucket
	// All unheard claims of one sort began at the same place, so the largest one counts. One
	// message of each bucket is not counted, so that buckets whose claims fail leave room for
	// the others, however many there are.
	before := b.unheardOf(p.only, p.of)
	n := max(before, p.claim.Scan.Limit-1)
	b.unheard = slices.DeleteFunc(b.unheard, func(u unheard) bool { return u.only == p.only && u.of == p.of })
	b.unheard = append(b.unheard, unheard{p.only, p.of, n})
	m.expectOf(p.only, n-before)
	b.unheardTo = b.unheardTo.Latest(p.claim.To)
	for name, at := range p.claim.Behind {
		b.stayBehind(name, at)
	}
	m.noteBehind(b, b.read.Time)
}

// heard takes in what the answer to a claim says about earlier claims without one. Each claim
// says anew how far a channel that is behind is claimed. How far the others are claimed is
// known once the record has come as far as those claims. Until then, the number of messages
// that this answer brought is subtracted.
func (m *Machine) heard(p *poll, r *store.ClaimResult) {
	b := p.bucket
	// A claim is not written if nothing is due, and then nothing is in doubt up to its end.
	known, ofAny := r.To == (bucket.Position{}) || !b.record.Claimed.Before(b.unheardTo), b.unheardOf(nil, nil)
	switch {
	case known:
		ofAny = 0
	case p.kind == scanOn:
		ofAny -= len(r.Due)
	}
	m.forgetUnheard(b, ofAny)
}

// keepBehind keeps behind the channels that a claim left behind and that the record no longer
// names. They have caught up with what is known to be claimed, but an earlier claim without an
// answer may have moved claimed further.
func (b *owned) keepBehind(p *poll) {
	for name, to := range p.claim.Places() {
		b.stayBehind(name, to)
	}
}

// stayBehind keeps a channel behind if the record no longer names it, or does not name it yet.
func (b *owned) stayBehind(name postdate.Route, to bucket.Position) {
	if _, is := b.record.Behind[name]; is {
		return
	}
	behind := map[postdate.Route]bucket.Position{name: to}
	maps.Copy(behind, b.record.Behind) // claims share the record's map: it is never changed
	b.record.Behind = behind
}

// unheardOf is how many messages unanswered claims may have claimed: of channel c, or of any
// channel if c is nil, of tenant t, or of any tenant if t is nil.
func (b *owned) unheardOf(c *channel, t *tenant) (n int) {
	for _, u := range b.unheard {
		if u.only == c && u.of == t {
			n = u.n
		}
	}
	return n
}

// countUnheard adds what claims without an answer may have claimed in b to what is expected, or
// with sign -1 takes it off: asking for the same again needs no room.
func (m *Machine) countUnheard(b *owned, sign int) {
	for _, u := range b.unheard {
		m.expectOf(u.only, sign*u.n)
	}
}

// forgetUnheard forgets b's claims without an answer, except for ofAny messages of any channel.
func (m *Machine) forgetUnheard(b *owned, ofAny int) {
	before := b.unheard
	m.countUnheard(b, -1)
	b.unheard = nil
	if ofAny > 0 {
		b.unheard = []unheard{{n: ofAny}}
	}
	m.countUnheard(b, 1)
	for _, u := range before {
		if u.only != nil {
			m.forget(u.only)
		}
	}
}

// reread drops what is in hand and not with a broker, so that it is claimed and read again.
func (m *Machine) reread(b *owned) {
	for _, it := range b.items() {
		if it.stage == stageWaiting || it.stage == stageReady {
			b.missed(spanOf(it.rec.AttemptTime))
			b.dropped[it.rec.Key] = it.channel
			it.channel.dropped++
			m.drop(it)
		}
	}
	m.touch(b)
}

// readAgain notes that a message was read again, if it had been dropped.
func (m *Machine) readAgain(b *owned, key postdate.Key) {
	if c := b.dropped[key]; c != nil {
		delete(b.dropped, key)
		c.dropped--
		m.forget(c)
	}
}

// forgetDropped forgets a bucket's messages that were dropped and not read again.
func (m *Machine) forgetDropped(b *owned) {
	for _, c := range slices.SortedFunc(maps.Values(b.dropped), byRoute) {
		c.dropped--
		m.forget(c)
	}
	clear(b.dropped)
}

// forgetStuck forgets what was dropped and not read again in time.
func (m *Machine) forgetStuck(now postdate.Now) {
	if m.droppedAt == 0 || now.Mono < m.droppedAt+stuckAfter {
		return
	}
	for _, number := range slices.Sorted(maps.Keys(m.buckets)) {
		m.forgetDropped(m.buckets[number])
	}
	m.droppedAt = 0
}
