package poller

import (
	"cmp"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// span is where unseen messages may be: after one position, and up to another.
type span struct{ after, to bucket.Position }

// spanOf is the span of a millisecond.
func spanOf(t postdate.Time) span { return span{bucket.Position{Time: t}, bucket.UpTo(t)} }

// spanFrom is a span without an end of its own: scans follow it to where the bucket is read to.
func spanFrom(p bucket.Position) span { return span{p, nowhere} }

// spanSince is the same, from a millisecond on.
func spanSince(t postdate.Time) span { return spanFrom(bucket.Position{Time: t}) }

// spans wait for scans, in turn.
type spans []span

// spansMax bounds how many spans wait in a bucket. What comes when there are so many goes into the last one.
const spansMax = 16

// add adds a span, if it is not there already.
func (s *spans) add(n span) {
	switch {
	case slices.Contains(*s, n):
	case len(*s) < spansMax:
		*s = append(*s, n)
	default:
		last := &(*s)[spansMax-1]
		last.after, last.to = last.after.Earliest(n.after), last.to.Latest(n.to)
	}
}

// takeTurn returns where the first span begins, whose next turn comes after those of the others.
func (s spans) takeTurn() bucket.Position {
	first := s[0]
	copy(s, s[1:])
	s[len(s)-1] = first
	return first.after
}

// without returns what is left of the spans when a scan that began after one position has ended at another.
func (s spans) without(after, ended bucket.Position) spans {
	for i := range s {
		if !s[i].after.Before(after) {
			s[i].after = s[i].after.Latest(ended)
		}
	}
	return slices.DeleteFunc(s, func(o span) bool { return !o.after.Before(o.to) })
}

// firstLate is the earliest time at which there may be messages that are late; Far if there are none.
func (b *owned) firstLate() postdate.Time {
	t := b.late.Time
	for _, s := range b.again {
		t = min(t, s.after.Time)
	}
	return t
}

// nudge notes that a bucket may have unseen messages.
func (m *Machine) nudge(number int, s span) {
	b := m.buckets[number]
	switch {
	case b == nil:
	case b.polling:
		b.nudged.add(s) // the scan may have passed it already
	default:
		b.turnedUp(s)
		m.touch(b)
	}
}

// heardNudges takes in the nudges that came during a claim, the earliest first: its scan may find the others, too.
func (m *Machine) heardNudges(b *owned) {
	nudged := b.nudged
	b.nudged = nil
	slices.SortFunc(nudged, func(a, b span) int { return cmp.Compare(a.after.Time, b.after.Time) })
	for _, s := range nudged {
		b.turnedUp(s)
	}
	m.touch(b) // also where none came: it goes back to the agenda
}

// turnedUp notes that something turned up in a span, which begins with a millisecond. What begins exactly at read is
// still ahead of the scans.
func (b *owned) turnedUp(s span) {
	if s.after.Before(b.read) { // also where a page ended within that millisecond
		b.missed(s)
		return
	}
	b.due = min(b.due, s.after.Time)
}

// missed notes that scans may have passed messages in a span unseen, also what begins exactly at read: it may come
// before read moves. If the span is ahead of read, the scan that goes on from read finds them; a scan of what is late
// moves read, so it must not begin there. While scans of what is late go on, they keep their place, and the span waits
// for those of what is late again.
func (b *owned) missed(s span) {
	switch {
	case b.read.Before(s.after):
		b.due = min(b.due, s.after.Time)
	case b.late == nowhere:
		b.late = s.after
	case b.late != s.after: // else the two go on as one
		b.again.add(s)
	}
}
