package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Replace implements store.Messages, in the same three steps as Cancel.
func (s *Store) Replace(ctx context.Context, m postdate.Message, ifVersion uint64) (postdate.Record, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if len(m.Payload) > payloadMax {
		return postdate.Record{}, errTooLarge(len(m.Payload))
	}
	r := replacing{withdrawal: s.withdrawal(), m: &m, ifVersion: ifVersion}
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
	m         *postdate.Message
	ifVersion uint64
}

// try takes the message through mark, look and finish. decided is false if it is to be tried
// again.
func (r *replacing) try(ctx context.Context) (rec postdate.Record, decided bool, err error) {
	var keys keyed
	keys.add(r.m.Key)
	targets, err := r.s.targets(ctx, &keys)
	if err == nil {
		err = r.markAll(ctx, targets, doc("version", int64(r.ifVersion)))
	}
	if err != nil {
		return rec, false, unreachable("replacing", err) // a mark alone changes nothing
	}
	found, records, err := r.look(ctx, &keys, nil)
	if err != nil {
		return rec, false, unreachable("replacing", err)
	}
	d := found[idOf(r.m.Key)]
	switch {
	case d == nil:
		return rec, false, store.ErrNotFound(r.m.Key)
	case d.damaged != nil:
		return rec, false, errDamaged(d)
	}
	p, err := recordOf(records, r.m.Bucket)
	if err != nil {
		return rec, false, err
	}
	v := judge(p, d.sighting(), r.id)
	if v == verdictFinish {
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
		return d.record(), false, store.ErrTooLate(r.m.Key, d.state())
	case d.Version != int64(r.ifVersion):
		return rec, false, store.ErrChanged(r.m.Key)
	case v == verdictTooLate:
		return d.record(), false, store.ErrTooLate(r.m.Key, d.state())
	}
	r.wait(d)
	return rec, false, nil
}

// finish puts the new version in place of the old one, if the mark still stands.
func (r *replacing) finish(ctx context.Context, old *document) (rec postdate.Record, decided bool, err error) {
	st := postdate.NewState(r.m, r.ifVersion+1)
	next := documentOf(r.m, &st)
	if r.s.sharded {
		decided, err = r.s.moveSharded(ctx, old, next, r.id)
	} else {
		var keys keyed
		keys.add(r.m.Key)
		filter := append(keys.filter(), bson.E{Key: "mark.id", Value: r.id},
			bson.E{Key: "status", Value: int(postdate.Pending)}, bson.E{Key: "version", Value: int64(r.ifVersion)})
		err = r.s.once(ctx, func(ctx context.Context) error {
			result, err := r.s.messages.ReplaceOne(ctx, filter, next, options.Replace().SetHint(indexID))
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
			r.s.pendingChange(r.m.Tenant, r.m.Channel, len(r.m.Payload), 1))
	}
	return postdate.Record{Message: *r.m, State: st}, decided, nil
}
