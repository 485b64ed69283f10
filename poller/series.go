package poller

import (
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// A series is in hand with its present occurrence, which is sent as a message of its own. Whatever settles
// that arms the next occurrence in the same write. The rule gives it from the present one, so no take-over
// skips or repeats any, and a clock does only what the misfire policy says. An occurrence that is to be
// retried becomes a message of its own, so that it holds up nothing. One that was not begun waits with its
// series for the channel, until it is misfired.

// recurs makes an item that of a series' present occurrence.
func (it *Item) recurs() {
	rec, chosen := it.rec, it.bucket.chosen
	it.chosen = chosen[rec.Key] == rec.Occurrence
	delete(chosen, rec.Key)
	it.atRest = it.bucket.resting() && !it.doubt
	alone := rec.Alone(rec.Occurrence)
	it.Delivery.Message, it.Begins = &alone, rec.Occurrence
	rule, err := recurrence.Parse(*rec.Recurrence, rec.CreatedAt)
	if err != nil {
		return // skipReady reads it again, for its words
	}
	it.rule, it.Begins = rule, rule.Due(rec.ScheduleID, rec.Occurrence)
}

// following is how the series goes on after its present occurrence.
func (it *Item) following() store.Next {
	next, ok := it.rule.Next(it.rec.Occurrence, it.rec.Run)
	return it.nextAt(next, ok)
}

func (it *Item) nextAt(at postdate.Time, ok bool) store.Next {
	if !ok {
		return store.Next{Over: true}
	}
	return store.Next{Occurrence: at, AttemptTime: it.rule.Due(it.rec.ScheduleID, at)}
}

// skipReady settles ready occurrences that are not to be begun: those that are misfired, as their rules
// say, and those whose series are ending or paused. One that may have been begun is sent all the same, unless its
// series is ending.
func (m *Machine) skipReady(now postdate.Now, c *channel) {
	c.ready = slices.DeleteFunc(c.ready, func(it *Item) bool {
		rec := it.rec
		switch {
		case rec.Occurrence == 0:
			return false
		case it.rule == nil:
			_, err := recurrence.Parse(*rec.Recurrence, rec.CreatedAt)
			m.settleAs(it, store.Settlement{How: store.SettleRetry, AttemptTime: now.Wall.Add(m.c.ParkMin),
				Attempts: rec.Attempts, Reason: "its recurrence cannot be read: " + err.Error()})
			return true
		case rec.Ending && it.doubt:
			m.settleAs(it, store.Settlement{How: store.SettleFailed, Attempts: rec.Attempts,
				Reason: "cancelled; an earlier attempt may have been delivered"})
			return true
		case rec.Ending:
			next := it.following()
			next.Skipped = 1
			m.settleAs(it, store.Settlement{How: store.SettleSkip, Next: next})
			return true
		case it.doubt: // it may have begun
			return false
		case rec.Paused:
			m.settleAs(it, store.Settlement{How: store.SettleRest, Reason: rec.LastError})
			return true
		case it.chosen:
			return false
		}
		at, skipped, ok := it.rule.Late(rec.Occurrence, rec.Run, now.Wall)
		if skipped == 0 {
			return false
		}
		next := it.nextAt(at, ok)
		next.Skipped = skipped
		it.bucket.choose(rec.Key, next.Occurrence)
		m.settleAs(it, store.Settlement{How: store.SettleSkip, Next: next, Reason: rec.LastError})
		return true
	})
}

// chosenMax bounds what a bucket remembers of chosen occurrences: of a series that is cancelled before its
// occurrence is read, nobody takes it back.
const chosenMax = 10_000

// choose notes that an occurrence is to begin, however late it is when it is read.
func (b *owned) choose(series postdate.Key, occurrence postdate.Time) {
	if len(b.chosen) >= chosenMax {
		clear(b.chosen)
	}
	b.chosen[series] = occurrence
}
