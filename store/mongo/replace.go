package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Replace implements store.Messages, in the same three steps as Cancel.
func (s *Store) Replace(ctx context.Context, next, was postdate.Record) (present postdate.Record, err error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if len(next.Payload) > payloadMax {
		return postdate.Record{}, errTooLarge(len(next.Payload))
	}
	r := replacing{withdrawal: s.withdrawal(), next: &next, was: &was}
	for pause := time.Millisecond; ; pause = min(2*pause, waitMax) {
		var rec postdate.Record
		var decided bool
		err := s.within(ctx, func(ctx context.Context) (err error) {
			rec, decided, err = r.try(ctx)
			return err
		})
		s.doubtIf(err)
		if err != nil || decided {
			return rec, err
		}
		if !rest(ctx, pause) {
			return postdate.Record{}, unreachable("replacing", ctx.Err())
		}
	}
}

// replacing is one call of Replace.
type replacing struct {
	*withdrawal
	next, was *postdate.Record
}

// try takes the message through mark, look and finish. decided is false if it is to be tried
// again.
func (r *replacing) try(ctx context.Context) (rec postdate.Record, decided bool, err error) {
	var keys keyed
	keys.add(r.next.Key)
	targets, err := r.s.targets(ctx, &keys)
	if err == nil {
		err = r.markAll(ctx, targets, doc("version", int64(r.was.Version)))
	}
	if err != nil {
		return rec, false, unreachable("replacing", err) // a mark alone changes nothing
	}
	found, records, err := r.look(ctx, &keys, nil)
	if err != nil {
		return rec, false, unreachable("replacing", err)
	}
	d := found[idOf(r.next.Key)]
	switch {
	case d == nil:
		return rec, false, store.ErrNotFound(r.next.Key)
	case d.damaged != nil:
		return rec, false, errDamaged(d)
	}
	p, err := recordOf(records, r.next.Bucket)
	if err != nil {
		return rec, false, err
	}
	v, present := judge(p, d.sighting(), r.id), d.record()
	if v == verdictFinish && present.Same(r.was) {
		return r.finish(ctx, d)
	}
	if d.Mark.is(r.id) && d.Status == int(postdate.Pending) {
		if err := r.release(ctx, []target{targetOf(d)}); err != nil {
			r.s.c.Log.Warn("the mark of a replace that came too late could not be removed: it goes with the next claim",
				"error", err)
		}
	}
	switch {
	case d.Status != int(postdate.Pending):
		return present, false, store.ErrTooLate(r.next.Key, d.state())
	case !present.Same(r.was):
		return rec, false, store.ErrChanged(r.next.Key)
	case v == verdictTooLate:
		return present, false, store.ErrTooLate(r.next.Key, d.state())
	}
	r.wait(d)
	return rec, false, nil
}

// finish puts the new version in place of the old one, if the mark still stands and the message is still
// what it was. Without regard to the mark, a series can be paused, triggered, told to end by a cancel that is too
// late for its present occurrence, and count a failure.
func (r *replacing) finish(ctx context.Context, old *document) (rec postdate.Record, decided bool, err error) {
	next := documentOf(&r.next.Message, &r.next.State)
	next.Series = seriesOf(&r.next.Series)
	r.next.Log = store.ReplacedLog(&r.next.Message, old.record().Log)
	next.Log = logOf(r.next.Log)
	same := doc("mark.id", r.id, "status", int(postdate.Pending), "version", old.Version)
	if s := &r.was.Series; r.was.Occurrence != 0 {
		same = append(same, doc("ending", nil, "paused", orNothing(r.was.Paused), "series.fired", orNothing(s.Fired),
			"series.failed", orNothing(s.Failed))...)
	}
	if r.s.sharded {
		decided, err = r.s.moveSharded(ctx, old, next, same)
	} else {
		var keys keyed
		keys.add(r.next.Key)
		err = r.s.once(ctx, func(ctx context.Context) error {
			result, err := r.s.messages.ReplaceOne(ctx, append(keys.filter(), same...), next,
				options.Replace().SetHint(indexID))
			decided = err == nil && result.MatchedCount == 1
			return err
		})
	}
	if err == errOrphan {
		_ = r.release(ctx, []target{targetOf(old)}) // else the next try waits for this one's mark
	}
	if err != nil {
		return rec, false, writeError("replacing", err)
	}
	if decided {
		r.s.count(r.s.pendingChange(old.Tenant, old.route().Channel(), old.payloadBytes(), -1),
			r.s.pendingChange(r.next.Tenant, r.next.Channel, len(r.next.Payload), 1))
	}
	return *r.next, decided, nil
}

// orNothing is what a filter says of a field that is left out if it is zero.
func orNothing[T comparable](value T) any {
	var zero T
	if value == zero {
		return nil
	}
	return value
}
