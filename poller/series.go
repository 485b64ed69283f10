package poller

import (
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
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
	rec := it.rec
	it.chosen = takeOut(it.bucket.chosen, rec)
	it.atRest = it.bucket.resting() && !it.doubt
	alone := rec.Alone(rec.Occurrence)
	it.Delivery.Message, it.Begins = &alone, rec.NotBefore()
	rule, err := recurrence.Parse(*rec.Recurrence, rec.CreatedAt)
	if err != nil {
		return // skipReady reads it again, for its words
	}
	it.rule, it.Begins = rule, max(rule.Due(rec.ScheduleID, rec.Occurrence), it.Begins)
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
		keep(it.bucket.chosen, rec.Key, next.Occurrence)
		m.settleAs(it, store.Settlement{How: store.SettleSkip, Next: next, Reason: rec.LastError})
		return true
	})
}

// keptMax bounds what a bucket keeps of chosen occurrences, and of armed ones: of a series that is cancelled
// before its occurrence is read, nobody takes it out.
const keptMax = 10_000

// keep notes an occurrence until it is read.
func keep(kept map[postdate.Key]postdate.Time, series postdate.Key, occurrence postdate.Time) {
	if len(kept) >= keptMax {
		clear(kept)
	}
	kept[series] = occurrence
}

// takeOut says whether the present occurrence of a series was kept, and forgets it.
func takeOut(kept map[postdate.Key]postdate.Time, rec *postdate.Record) bool {
	occurrence, is := kept[rec.Key]
	delete(kept, rec.Key)
	return is && occurrence == rec.Occurrence
}

// arm notes the occurrence that a settlement armed, if it lies in the range that was in doubt when the bucket
// was gained.
func (b *owned) arm(it *Item, next store.Next) {
	key := it.rec.Key
	if b.inherited.InDoubt(it.rec.Route(), bucket.PositionOf(key, next.AttemptTime)) {
		keep(b.armed, key, next.Occurrence)
	}
}
