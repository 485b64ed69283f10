package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

const (
	// markLife is how long a mark must be seen to stand before its process counts as gone and
	// the mark is replaced. It bounds a wait; no promise rests on it.
	markLife = time.Second
	// waitMax bounds the pause before another look at a message that somebody else is about to
	// change.
	waitMax = 50 * time.Millisecond
)

// withdrawal is one cancel or replace in progress: mark, look, finish.
type withdrawal struct {
	s       *Store
	id      bson.ObjectID   // of this try's marks
	mine    []bson.ObjectID // of all attempts to set marks
	waiting map[string]waited
}

// waited is somebody else's mark, and since when it has been seen to stand.
type waited struct {
	id    bson.ObjectID
	since time.Time
}

func (s *Store) withdrawal() *withdrawal {
	return &withdrawal{s: s, waiting: map[string]waited{}}
}

// markAll sets marks on those of the messages that are PENDING, match also, and bear no mark,
// or one that is this call's own or stood too long.
func (w *withdrawal) markAll(ctx context.Context, targets []target, also bson.D) error {
	var err error
	w.id, _, err = w.s.setMarks(ctx, func(id bson.ObjectID) []change {
		unmarked := doc("mark", doc("$exists", false))
		if free := slices.Concat(w.mine, w.stale()); len(free) > 0 {
			unmarked = doc("$or", bson.A{unmarked, doc("mark.id", anyOf(free))})
		}
		w.mine = append(w.mine, id)
		return []change{{
			targets: targets,
			where: slices.Concat(doc("status", int(postdate.Pending), "possibleDuplicate", doc("$exists", false)),
				also, unmarked),
			update: doc("$set", doc("mark", mark{ID: id})),
		}}
	})
	return err
}

func (w *withdrawal) stale() (ids []bson.ObjectID) {
	for _, other := range w.waiting {
		if time.Since(other.since) > markLife {
			ids = append(ids, other.id)
		}
	}
	return ids
}

// look reads the messages and their buckets' records, after the marks: in sessions of its own
// that see them.
func (w *withdrawal) look(ctx context.Context, keys *keyed,
	projection any) (found map[string]*document, records map[int]*partition, err error) {
	w.s.sawSession(ctx)
	err = w.s.all(ctx,
		func(ctx context.Context) (err error) {
			found, err = w.s.read(ctx, keys, projection)
			return err
		},
		func(ctx context.Context) (err error) {
			records, err = w.s.lookAt(ctx, keys.buckets)
			return err
		})
	return found, records, err
}

// wait notes the mark that is waited for.
func (w *withdrawal) wait(d *document) {
	if d.Mark == nil || d.Mark.is(w.id) {
		return
	}
	if known, ok := w.waiting[d.ID]; !ok || known.id != d.Mark.ID {
		w.waiting[d.ID] = waited{d.Mark.ID, time.Now()}
	}
}

// release removes the marks of messages that are not to be changed after all. If it fails, they
// stand until somebody else comes across them.
func (w *withdrawal) release(ctx context.Context, targets []target) error {
	_, err := w.s.change(ctx, unmark(targets, w.id))
	return err
}

// recordOf is the record of a message's bucket.
func recordOf(records map[int]*partition, b int) (bucket.Partition, error) {
	p := records[b]
	if p == nil {
		return bucket.Partition{}, postdate.E(postdate.KindInternal, "the store has no record of bucket %d", b)
	}
	return p.record(), nil
}

// stateFields are the fields that make up a state.
var stateFields = doc("bucket", 1, "tenant", 1, "scheduleId", 1, "executionTime", 1, "channel", 1, "status", 1,
	"version", 1, "attemptTime", 1, "parked", 1, "downSince", 1,
	"attempts", 1, "possibleDuplicate", 1, "settledAt", 1, "lastError", 1, "redriven", 1,
	"occurrence", 1, "run", 1, "ending", 1, "paused", 1, "changes", 1, "recurrence", 1, "mark", 1)

// sizedFields are these and the payload's size.
var sizedFields = append(slices.Clone(stateFields), bson.E{Key: "sized", Value: payloadBytesOf})

// Cancel implements store.Messages.
func (s *Store) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.CancelVersions(ctx, store.AnyVersion(keys), at)
}

// CancelVersions implements store.Messages. The look tells the version: nobody makes another one and leaves the mark.
func (s *Store) CancelVersions(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Cancelled {
	results := make([]store.Cancelled, len(some))
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for _, round := range rounds(len(some), func(i int) postdate.Key { return some[i].Key }) {
		c := cancelling{withdrawal: s.withdrawal(), some: some, at: at, results: results, unsure: map[int]bool{},
			gone: map[int]store.Change{}}
		left := round
		for pause := time.Millisecond; len(left) > 0; pause = min(2*pause, waitMax) {
			left = c.try(ctx, left)
			if len(left) > 0 && !rest(ctx, pause) {
				c.fail(left, unreachable("cancelling", ctx.Err()))
				break
			}
		}
		c.count(round)
	}
	return results
}

// cancelling is one call of CancelVersions.
type cancelling struct {
	*withdrawal
	some    []store.Versioned
	at      postdate.Time
	results []store.Cancelled
	unsure  map[int]bool         // items that an earlier try may have cancelled, or told to end
	gone    map[int]store.Change // what no longer is pending, if an item is cancelled
}

// count counts what was cancelled.
func (c *cancelling) count(items []int) {
	var changes []store.Change
	for _, i := range items {
		c.s.doubtIf(c.results[i].Err)
		if c.results[i].Changed {
			changes = store.AddChange(changes, c.gone[i])
		}
	}
	c.s.count(changes...)
}

// fail notes an error of the present try.
func (c *cancelling) fail(items []int, err error) {
	for _, i := range items {
		c.results[i] = store.Cancelled{Err: err}
		if c.unsure[i] {
			c.results[i].Err = unknown("cancelling", err)
		}
	}
}

// try takes the messages through mark, look and finish. It returns those that are still
// undecided.
func (c *cancelling) try(ctx context.Context, items []int) (left []int) {
	err := c.s.within(ctx, func(ctx context.Context) error {
		var keys keyed
		for _, i := range items {
			keys.add(c.some[i].Key)
		}
		targets, err := c.s.targets(ctx, &keys)
		if err == nil {
			err = c.markAll(ctx, targets, nil)
		}
		if err != nil {
			return unreachable("cancelling", err) // a mark alone changes nothing
		}
		found, records, err := c.look(ctx, &keys, sizedFields)
		if err != nil {
			return unreachable("cancelling", err)
		}
		var finish, ending []int
		var release []target
		for _, i := range items {
			d := found[idOf(c.some[i].Key)]
			if d != nil && d.damaged == nil {
				c.gone[i] = c.s.pendingChange(d.Tenant, d.route().Channel(), d.payloadBytes(), -1)
			}
			v, err := c.judge(i, d, records)
			switch {
			case err != nil:
				c.fail([]int{i}, err)
			case v == verdictFinish:
				finish = append(finish, i)
			case v == verdictTooLate && d.goesOn():
				ending = append(ending, i)
			case v == verdictWait:
				c.wait(d)
				left = append(left, i)
			}
			if v != verdictFinish && d != nil && d.Mark.is(c.id) && d.Status == int(postdate.Pending) {
				release = append(release, targetOf(d))
			}
		}
		again, err := c.finish(ctx, finish, found)
		if err != nil {
			c.fail(finish, writeError("cancelling", err))
		}
		left = append(left, again...)
		left = append(left, c.end(ctx, ending, found)...)
		if err := c.release(ctx, release); err != nil {
			c.s.c.Log.Warn("marks of a cancel that came too late could not be removed: they go with the next claim",
				"messages", len(release), "error", err)
		}
		return nil
	})
	if err != nil {
		c.fail(items, writeError("cancelling", err))
		return nil
	}
	return left
}

// judge notes the result of an item that its look decides.
func (c *cancelling) judge(i int, d *document, records map[int]*partition) (verdict, error) {
	key := c.some[i].Key
	switch {
	case d == nil:
		return 0, store.ErrNotFound(key)
	case d.damaged != nil:
		return 0, errDamaged(d)
	}
	if err := c.some[i].Check(d.state()); err != nil {
		return 0, err
	}
	p, err := recordOf(records, key.Bucket)
	if err != nil {
		return 0, err
	}
	v := judge(p, d.sighting(), c.id)
	switch v {
	case verdictTooLate:
		c.results[i] = store.Cancelled{State: d.state(), Err: store.ErrTooLate(key, d.state())}
	case verdictCancelled:
		// The mark stays on a message that its bearer cancelled.
		mine := d.Mark != nil && slices.Contains(c.mine, d.Mark.ID)
		c.results[i] = store.Cancelled{State: d.state(), Changed: mine}
	}
	return v, nil
}

// finish writes CANCELLED where the marks still stand. If not all of them did, it returns all
// items, as it cannot tell which were written.
func (c *cancelling) finish(ctx context.Context, items []int, found map[string]*document) (again []int, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	write := change{
		where: doc("mark.id", c.id, "status", int(postdate.Pending)),
		update: doc("$set", doc("status", int(postdate.Cancelled), "settledAt", c.at),
			"$unset", doc("due", "", "parked", "", "downSince", "")),
	}
	for _, i := range items {
		write.targets = append(write.targets, targetOf(found[idOf(c.some[i].Key)]))
	}
	matched, err := c.s.change(ctx, write)
	if err != nil {
		return nil, err
	}
	if matched != int64(len(items)) {
		for _, i := range items {
			c.unsure[i] = true
		}
		return items, nil // the next look shows which are CANCELLED
	}
	for _, i := range items {
		st := found[idOf(c.some[i].Key)].state()
		c.results[i] = store.Cancelled{State: st.Cancel(c.at), Changed: true}
	}
	return nil, nil
}

// notWithdrawable matches all but what is withdrawable because it is parked.
var notWithdrawable = bson.A{doc("parked", doc("$ne", true)), doc("possibleDuplicate", true)}

// end makes series end with their present occurrences. If not all were still at these, it returns all
// items: the next occurrence of one may be withdrawable.
func (c *cancelling) end(ctx context.Context, items []int, found map[string]*document) (again []int) {
	if len(items) == 0 {
		return nil
	}
	var changes []change
	for _, i := range items {
		d := found[idOf(c.some[i].Key)]
		t := targetOf(d)
		t.version = uint64(d.Version)
		changes = append(changes, change{
			targets: []target{t},
			where:   doc("status", int(postdate.Pending), "occurrence", d.Occurrence, "$or", notWithdrawable),
			update:  doc("$set", doc("ending", true)),
		})
	}
	matched, err := c.s.change(ctx, changes...)
	switch {
	case err != nil:
		c.fail(items, writeError("cancelling", err))
		return nil
	case matched != int64(len(items)):
		for _, i := range items {
			c.unsure[i] = true
		}
		return items
	}
	for _, i := range items {
		st := found[idOf(c.some[i].Key)].state()
		st.Ending = true
		c.results[i] = store.Cancelled{State: st, Err: store.ErrTooLate(c.some[i].Key, st)}
	}
	return nil
}
