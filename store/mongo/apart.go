package mongo

import (
	"context"
	"slices"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// This file settles what the statements of settle.go do not: series that are to end, which nobody knows
// before a statement matches fewer, and what changes two messages at once.

// endSeries settles those of the messages that are series and are to end. It returns the others, and how
// many it settled. id is the mark that must stand; nil: any, or none.
func (s *Store) endSeries(ctx context.Context, some []*store.Settlement,
	id *bson.ObjectID) (others []*store.Settlement, matched int64, err error) {
	var keys keyed
	for _, p := range some {
		if p.Occurrence != 0 {
			keys.add(p.Key)
		}
	}
	if len(keys.ids) == 0 {
		return some, 0, nil
	}
	found, err := s.read(ctx, &keys, stateFields)
	if err != nil {
		return nil, 0, unknown("settling", err) // others may be settled
	}
	var ending []*store.Settlement
	for _, p := range some {
		d := found[idOf(p.Key)]
		if p.Occurrence != 0 && d != nil && d.damaged == nil && d.Ending && d.Status == int(postdate.Pending) &&
			d.Version == int64(p.Version) && d.Occurrence == p.Occurrence && (id == nil || d.Mark.is(*id)) {
			ending = append(ending, p)
		} else {
			others = append(others, p)
		}
	}
	if len(ending) == 0 {
		return others, 0, nil
	}
	matched, err = s.change(ctx, changesOf(ending, true, id)...)
	switch {
	case err != nil:
	case matched == int64(len(ending)):
		s.countEnded(ending)
	default:
		s.doubt()
	}
	return others, matched, err
}

// Trigger implements store.Messages.
func (s *Store) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64,
	occurrence postdate.Time) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var keys keyed
	keys.add(series)
	var extra postdate.Message
	err := s.within(ctx, func(ctx context.Context) error {
		return s.transaction(ctx, func(ctx context.Context) error {
			d, err := s.readWithin(ctx, keys.filter())
			if err != nil {
				return err
			}
			if err := checkAt(series, d, ifVersion, store.CheckGoingOn); err != nil {
				return err
			}
			o := outcome{noted: postdate.Series{}.Triggered(occurrence).History[0]}
			t := targetOf(d)
			t.version = ifVersion
			if _, err := s.changeOne(ctx, change{targets: []target{t}, update: o.additions()}); err != nil {
				return err
			}
			rec := d.record()
			extra = rec.Alone(occurrence)
			state := postdate.NewState(&extra, ifVersion)
			created, err := s.insertIfNew(ctx, documentOf(&extra, &state))
			if err == nil && !created {
				return store.ErrChanged(extra.Key)
			}
			return err
		})
	})
	if err = writeError("triggering", err); err != nil {
		s.doubtIf(err)
		return err
	}
	s.count(s.pendingChange(extra.Tenant, extra.Channel, len(extra.Payload), 1))
	return nil
}

// changesAnother says whether a settlement may change a second message: it makes a series' occurrence a
// message of its own, counts in the series that such a message failed, or leaves one for a failure channel.
func changesAnother(p *store.Settlement) bool {
	if p.Leaves() {
		return true
	}
	if _, alone := p.Key.OfSeries(); alone {
		return p.How == store.SettleFailed
	}
	return p.Detaches()
}

// settleAllApart makes the settlements that change another message as well, each in a transaction, where
// the mark id still stands. It returns how many it made.
func (s *Store) settleAllApart(ctx context.Context, some []*store.Settlement,
	id bson.ObjectID) (settled int64, err error) {
	if len(some) == 0 {
		return 0, nil
	}
	s.sawSession(ctx)
	var count atomic.Int64
	err = s.sideBySide(ctx, len(some), func(ctx context.Context, i int) error {
		settle := s.detach
		switch {
		case some[i].Leaves():
			settle = s.fail
		case some[i].How == store.SettleFailed:
			settle = s.failAlone
		}
		done, err := settle(ctx, some[i], id)
		if done {
			count.Add(1)
		}
		return err
	})
	return count.Load(), err
}

// detach advances a series, and makes its present occurrence a message of its own, unless that is there.
// done is false if it changed nothing.
func (s *Store) detach(ctx context.Context, p *store.Settlement, id bson.ObjectID) (done bool, err error) {
	var counts []store.Change
	err = s.transaction(ctx, func(ctx context.Context) error {
		var rec *postdate.Record
		rec, counts, err = s.settleMarked(ctx, p, id)
		if done = rec != nil; err != nil || !done {
			return err
		}
		state, ok := p.Alone(rec.State)
		if !ok {
			return nil
		}
		alone := rec.Alone(rec.Occurrence)
		d := documentOf(&alone, &state)
		d.Log = logOf(p.AloneLog())
		created, err := s.insertIfNew(ctx, d)
		if created {
			counts = append(counts, s.pendingChange(rec.Tenant, rec.Channel, len(rec.Payload), 1))
		}
		return err
	})
	if err == nil {
		s.count(counts...)
	}
	return done && err == nil, err
}

// settleMarked makes a settlement in a transaction, where the mark id still stands. It returns the message from before,
// and what ceases to be pending; nil if it changed nothing.
func (s *Store) settleMarked(ctx context.Context, p *store.Settlement, id bson.ObjectID) (was *postdate.Record,
	counts []store.Change, err error) {
	d, err := s.readMarked(ctx, p, id)
	if err != nil || d == nil {
		return nil, nil, err
	}
	o := outcomeOf(p, d.Ending)
	done, err := s.changeOne(ctx, o.change([]target{settlementTarget(p)}, &id))
	if err != nil || !done {
		return nil, nil, err
	}
	rec := d.record()
	if o.next.Status.Final() {
		counts = append(counts, s.pendingChange(rec.Tenant, rec.Channel, len(rec.Payload), -1))
	}
	return &rec, counts, nil
}

// readMarked reads a message in a transaction; nil if it is no longer that of the settlement, or the mark id
// is gone.
func (s *Store) readMarked(ctx context.Context, p *store.Settlement, id bson.ObjectID) (*document, error) {
	filter := append(settlementTarget(p).shardKey(), append(whereAt(p.Occurrence),
		doc("version", int64(p.Version), "mark.id", id)...)...)
	return s.readWithin(ctx, filter)
}

// readWithin reads the message that a filter names, but for a series' history, in a transaction; nil if none matches.
func (s *Store) readWithin(ctx context.Context, filter bson.D) (*document, error) {
	cursor, err := s.messages.Find(ctx, filter, options.Find().SetHint(indexID).SetProjection(doc("series", 0)))
	if err != nil {
		return nil, err
	}
	found, err := readAll(ctx, cursor)
	switch {
	case err != nil || len(found) == 0:
		return nil, err
	case found[0].damaged != nil:
		return nil, errDamaged(found[0])
	}
	return found[0], nil
}

// insertIfNew inserts a message in a transaction, unless its id is taken.
func (s *Store) insertIfNew(ctx context.Context, d *document) (created bool, err error) {
	ids, filter := s.messages, doc("_id", d.ID, "bucket", d.Bucket)
	if s.sharded {
		ids, filter = s.registry, doc("_id", d.ID)
	}
	cursor, err := ids.Find(ctx, filter, options.Find().SetHint(indexID).SetProjection(doc("_id", 1)))
	if err != nil {
		return false, err
	}
	taken := cursor.Next(ctx)
	if err := cursor.Err(); err != nil || taken {
		return false, err
	}
	if s.sharded {
		if _, err := s.registry.InsertOne(ctx, registered{d.ID}); err != nil {
			return false, err
		}
	}
	_, err = s.messages.InsertOne(ctx, d)
	return err == nil, orphaned(err)
}

// failAlone settles the failure of a message that was an occurrence, and counts that in its series, if
// the series owns its version. done is false if it changed nothing.
func (s *Store) failAlone(ctx context.Context, p *store.Settlement, id bson.ObjectID) (done bool, err error) {
	count, err := s.failedIn(ctx, p)
	if err != nil {
		return false, err
	}
	o := outcomeOf(p, false)
	err = s.transaction(ctx, func(ctx context.Context) (err error) {
		fails := o.change([]target{settlementTarget(p)}, &id)
		first := fails
		first.where = append(slices.Clone(fails.where), bson.E{Key: "redriven", Value: nil})
		if done, err = s.changeOne(ctx, first); err == nil && !done { // it is counted already
			done, err = s.changeOne(ctx, fails)
			return err
		}
		if err != nil || len(count.targets) == 0 {
			return err
		}
		_, err = s.changeOne(ctx, count)
		return err
	})
	if done = done && err == nil; done {
		s.countEnded([]*store.Settlement{p})
	}
	return done, err
}

// whereOwns matches series that own a version, as postdate.State.Owns says.
func whereOwns(version uint64) bson.D {
	first := doc("$subtract", bson.A{number("version"), number("changes")})
	return doc("version", doc("$gte", int64(version)), "$expr", doc("$lte", bson.A{first, int64(version)}))
}

// number is a field of a message as a number: one that somebody damaged must not stop a statement.
func number(field string) bson.D {
	return doc("$cond", bson.A{doc("$isNumber", "$"+field), "$" + field, 0})
}

// changeOne makes a change of one message in a transaction, and says whether the message matched.
func (s *Store) changeOne(ctx context.Context, c change) (matched bool, err error) {
	t := c.targets[0]
	filter := doc("_id", idOf(t.key), "bucket", t.key.Bucket)
	if s.sharded {
		filter = t.shardKey()
	}
	if t.version != 0 {
		filter = append(filter, bson.E{Key: "version", Value: int64(t.version)})
	}
	r, err := s.messages.UpdateOne(ctx, append(filter, c.where...), c.update, options.UpdateOne().SetHint(indexID))
	return err == nil && r.MatchedCount == 1, err
}
