package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// settleTries bounds how often a settlement whose marks were overtaken is made
// again before the owner is asked to repeat it.
const settleTries = 8

// Settle implements store.Due: one statement for all messages that come to the same
// state, and one command for all statements. A delivery is a fact and is written at
// once; anything else goes by mark, look and finish, because a former owner's
// settlement must not arrive after its successor has read the message.
func (s *Store) Settle(ctx context.Context, settlements []store.Settlement) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	for _, round := range rounds(len(settlements), func(i int) postdate.Key { return settlements[i].Key }) {
		var delivered, others []*store.Settlement
		for _, i := range round {
			if p := &settlements[i]; p.How == store.SettleDelivered {
				delivered = append(delivered, p)
			} else {
				others = append(others, p)
			}
		}
		var steps []func(ctx context.Context) error
		if len(delivered) > 0 {
			steps = append(steps, func(ctx context.Context) error { return s.settleDelivered(ctx, delivered) })
		}
		if len(others) > 0 {
			steps = append(steps, func(ctx context.Context) error { return s.settleOthers(ctx, others) })
		}
		if len(steps) == 0 {
			continue
		}
		if err := s.all(ctx, steps...); err != nil {
			return writeError("settling", err)
		}
	}
	return nil
}

func (s *Store) settleDelivered(ctx context.Context, some []*store.Settlement) error {
	var statements []driver.WriteModel
	for state, versions := range byOutcome(some) {
		statements = append(statements, outcomeStatement(versions, state, nil))
	}
	_, err := s.bulk(ctx, statements)
	return err
}

// settleOthers settles what only the present owner may.
func (s *Store) settleOthers(ctx context.Context, some []*store.Settlement) error {
	for range settleTries {
		done, err := s.trySettle(ctx, some)
		if err != nil || done {
			return err
		}
	}
	return postdate.E(postdate.KindUnknown, "settling: others changed the messages again and again: repeat it")
}

// trySettle takes settlements through mark, look and finish. done is false where a
// mark was overtaken.
func (s *Store) trySettle(ctx context.Context, some []*store.Settlement) (done bool, err error) {
	id := bson.NewObjectID()
	type group struct {
		reschedules, token uint64
	}
	groups := map[group]*published{}
	var all keyed
	for _, p := range some {
		all.add(p.Key)
		g := group{reschedules(p.Version), p.Token}
		if groups[g] == nil {
			groups[g] = &published{}
		}
		groups[g].add(p)
	}
	var statements []driver.WriteModel
	for g, versions := range groups {
		statements = append(statements, driver.NewUpdateManyModel().SetHint(indexID).
			SetFilter(append(versions.filter(), doc("mark.token", doc("$not", doc("$gt", int64(g.token))))...)). // a later owner's mark stands
			SetUpdate(doc("$set", doc("mark", mark{ID: id, Token: int64(g.token)}))))
	}
	marked, err := s.bulk(ctx, statements)
	if err != nil || marked == 0 {
		return marked == 0, err
	}
	records, err := s.lookAt(ctx, all.buckets)
	if err != nil {
		return false, unknown("settling", err)
	}
	var present []*store.Settlement
	var stale keyed
	for _, p := range some {
		record, err := recordOf(records, p.Key.Bucket)
		if err != nil {
			return false, err
		}
		if maySettle(record, p.Token) {
			present = append(present, p)
		} else {
			stale.add(p.Key)
		}
	}
	return s.finishSettle(ctx, id, marked, present, &stale)
}

// finishSettle writes the states of messages whose mark id still stands, and
// removes it from those that are not the owner's any more.
func (s *Store) finishSettle(ctx context.Context, id bson.ObjectID, marked int64, present []*store.Settlement, stale *keyed) (done bool, err error) {
	var statements []driver.WriteModel
	for state, versions := range byOutcome(present) {
		statements = append(statements, outcomeStatement(versions, state, &id))
	}
	if len(stale.ids) > 0 {
		statements = append(statements, driver.NewUpdateManyModel().SetHint(indexID).
			SetFilter(append(stale.filter(), bson.E{Key: "mark.id", Value: id})).SetUpdate(doc("$unset", doc("mark", ""))))
	}
	finished, err := s.bulk(ctx, statements)
	return finished == marked, err
}

// bulk sends statements that change nothing where they are repeated, and tells how
// many messages they matched: fewer where a repetition was needed.
func (s *Store) bulk(ctx context.Context, statements []driver.WriteModel) (matched int64, err error) {
	if len(statements) == 0 {
		return 0, nil
	}
	err = s.repeat(ctx, func(ctx context.Context) error {
		r, err := s.messages.BulkWrite(ctx, statements, options.BulkWrite().SetOrdered(false))
		if err == nil {
			matched = r.MatchedCount
		}
		return err
	})
	return matched, err
}

// published gathers versions that were published, each as often rescheduled as the
// others, for one statement.
type published struct {
	keyed
	versions []int64
}

func (v *published) add(p *store.Settlement) {
	v.keyed.add(p.Key)
	v.versions = append(v.versions, int64(p.Version))
}

// filter matches those that are PENDING still.
func (v *published) filter() bson.D {
	return append(v.keyed.filter(), doc("status", int(postdate.Pending), "version", anyOf(v.versions))...)
}

// outcome is a state that messages come to by settling, and how often they were
// rescheduled.
type outcome struct {
	how               store.Settling
	reschedules       uint64
	at, attemptTime   postdate.Time
	downSince         postdate.Time
	attempts          int
	possibleDuplicate bool
	reason            string
}

// byOutcome gathers the messages that come to the same state.
func byOutcome(some []*store.Settlement) map[outcome]*published {
	groups := map[outcome]*published{}
	for _, p := range some {
		o := outcome{p.How, reschedules(p.Version), p.At, p.AttemptTime, p.DownSince, p.Attempts, p.PossibleDuplicate, p.Reason}
		switch p.How { // what does not become part of the state does not part messages
		case store.SettleRetry:
			o.at, o.downSince = 0, 0
		case store.SettlePark:
			o.at = 0
		default:
			o.attemptTime, o.downSince = 0, 0
		}
		if groups[o] == nil {
			groups[o] = &published{}
		}
		groups[o].add(p)
	}
	return groups
}

// outcomeStatement writes store.Settlement.State. id is the mark that must stand;
// nil: whatever stands.
func outcomeStatement(versions *published, o outcome, id *bson.ObjectID) driver.WriteModel {
	set, unset := bson.D{}, doc("mark", "")
	put := func(name string, value any, there bool) {
		if there {
			set = append(set, bson.E{Key: name, Value: value})
		} else {
			unset = append(unset, bson.E{Key: name, Value: ""})
		}
	}
	put("attempts", o.attempts, o.attempts != 0)
	put("possibleDuplicate", true, o.possibleDuplicate)
	put("lastError", o.reason, o.reason != "")
	put("parked", true, o.how == store.SettlePark)
	put("downSince", o.downSince, o.downSince != 0)
	put("due", o.attemptTime, o.how == store.SettleRetry || o.how == store.SettlePark)
	switch o.how {
	case store.SettleRetry, store.SettlePark:
		set = append(set, bson.E{Key: "attemptTime", Value: o.attemptTime})
	case store.SettleDelivered:
		set = append(set, doc("status", int(postdate.Delivered), "settledAt", o.at)...)
	case store.SettleFailed:
		set = append(set, doc("status", int(postdate.DeliveryFailed), "settledAt", o.at)...)
	}
	filter := versions.filter()
	if id != nil {
		filter = append(filter, bson.E{Key: "mark.id", Value: *id})
	}
	update := doc("$unset", unset)
	if len(set) > 0 {
		update = append(update, bson.E{Key: "$set", Value: set})
	}
	return driver.NewUpdateManyModel().SetHint(indexID).SetFilter(filter).SetUpdate(update)
}
