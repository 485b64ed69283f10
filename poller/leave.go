package poller

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// leaving is the state of a hand-over. The bucket rests: nothing new is claimed, what is due
// goes out, and what its channel does not take is parked. It goes when nothing is in doubt any
// more. An unanswered publish does not keep it resting: after DrainStep it works on for its
// other channels until the answer comes or DrainMax is over, and then rests again.
type leaving struct {
	leaveBy   time.Duration         // from then on no answer is waited for; 0: it is not to be handed over
	restUntil time.Duration         // it rests until then at most
	blocked   map[*channel]struct{} // those waited for while it works on; nil: it rests
}

func (l *leaving) resting() bool { return l.leaveBy != 0 && l.blocked == nil }

// worksFor reports whether the bucket begins new messages of a channel: not while it rests, nor
// of a channel that it waits for, so what it parked of that channel stays parked.
func (l *leaving) worksFor(c *channel) bool {
	_, blocked := l.blocked[c]
	return !l.resting() && !blocked
}

// drain begins to hand buckets over.
func (m *Machine) drain(now postdate.Now, holds []store.Hold) {
	var drained []store.Hold
	for _, hold := range holds {
		b := m.buckets[hold.Bucket]
		switch {
		case b == nil || b.hold.Token != hold.Token:
			drained = append(drained, hold) // it is not here any more
		case b.leaveBy == 0:
			b.leaveBy = now.Mono + m.c.DrainMax
			m.leaving = append(m.leaving, b)
			m.rest(now, b)
		}
	}
	if len(drained) > 0 {
		m.emit(fence.Drained{Holds: drained})
	}
}

// rest lets a bucket finish what is claimed, and begin nothing new.
func (m *Machine) rest(now postdate.Now, b *owned) {
	b.restUntil, b.blocked = now.Mono+m.c.DrainStep, nil
	m.touch(b)
}

// finishDrains gives up the buckets that have nothing in flight any more.
func (m *Machine) finishDrains(now postdate.Now) {
	var drained []store.Hold
	m.leaving = slices.DeleteFunc(m.leaving, func(b *owned) bool {
		leaves := !b.lost && !b.polling && m.leave(now, b)
		if leaves {
			drained = append(drained, b.hold)
		}
		return leaves || b.lost
	})
	if len(drained) > 0 {
		m.lose(drained)
		m.emit(fence.Drained{Holds: drained})
	}
}

// leave takes the next step of a hand-over, and says whether it is done.
func (m *Machine) leave(now postdate.Now, b *owned) (drained bool) {
	if !b.resting() && (now.Mono >= b.leaveBy || !b.waitsFor(b.blocked)) {
		m.rest(now, b)
	}
	switch {
	case b.resting() && b.idle() && b.record.Checkpoint >= b.handledUpTo():
		return true
	case now.Mono >= b.leaveBy:
		m.abandon(now, b)
		if now.Mono >= m.goneBy(b) { // the rest is in doubt for the next owner
			m.dropWaiting(b)
			return len(b.hand) == 0
		}
	case b.resting() && now.Mono >= b.restUntil:
		b.blocked = b.unanswered()
		m.touch(b)
	}
	return false
}

// goneBy is the time from which on a bucket waits only for the store.
func (m *Machine) goneBy(b *owned) time.Duration { return b.leaveBy + 2*m.c.DrainStep }

// unanswered lists the channels that have yet to answer for a message of b; nil if all have.
func (b *owned) unanswered() (of map[*channel]struct{}) {
	for _, it := range b.hand {
		if it.stage == stagePublishing {
			if of == nil {
				of = map[*channel]struct{}{}
			}
			of[it.channel] = struct{}{}
		}
	}
	return of
}

// waitsFor reports whether one of these channels has yet to answer for a message of b.
func (b *owned) waitsFor(of map[*channel]struct{}) bool {
	for _, it := range b.hand {
		if _, among := of[it.channel]; among && it.stage == stagePublishing {
			return true
		}
	}
	return false
}

// abandon stops waiting for publishes without an answer. They may have arrived, so the bucket's
// next owner publishes them again, with the mark.
func (m *Machine) abandon(now postdate.Now, b *owned) {
	for _, it := range b.items() {
		if it.stage == stagePublishing {
			m.doubt(it)
			m.retry(now, it, publisher.Result{Reason: "its bucket went to another node before the broker answered"})
		}
	}
}

// parkLeaving parks those ready messages of a channel for which yes is true, because their buckets leave:
// nobody has to wait for them, and the next owner does not have them in doubt.
func (m *Machine) parkLeaving(now postdate.Now, c *channel, yes func(*Item) bool) {
	if len(m.leaving) == 0 {
		return
	}
	c.ready = slices.DeleteFunc(c.ready, func(it *Item) bool {
		leaves := yes(it)
		if leaves {
			m.park(now, it, it.rec.LastError, it.rec.DownSince)
		}
		return leaves
	})
}

// staysBehind says that a message is not begun before its bucket goes. Its channel has yet to answer, or it
// is an occurrence that was read because the one before it went out: a series would keep the bucket with one
// after another.
func staysBehind(it *Item) bool {
	_, blocked := it.bucket.blocked[it.channel]
	return blocked || it.atRest && it.bucket.resting()
}
