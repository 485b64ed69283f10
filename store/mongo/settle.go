package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// settleTries bounds how often a settlement whose marks were overtaken is tried before the
// owner is asked to repeat it.
const settleTries = 8

// Settle implements store.Due: one statement for all messages that reach the same state, and
// one command for all statements. A delivery is a fact and is written directly; anything else
// goes through mark, look and finish, because a former owner's settlement must not arrive after
// its successor has read the message.
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
			s.doubt()
			return writeError("settling", err)
		}
	}
	return nil
}

func (s *Store) settleDelivered(ctx context.Context, some []*store.Settlement) error {
	var changes []change
	for o, targets := range byOutcome(some) {
		changes = append(changes, o.change(targets, nil))
	}
	tries := 0
	matched, err := s.changeBy(ctx, func() []change {
		tries++
		return changes
	})
	switch {
	case err != nil:
	case matched == int64(len(some)):
		s.countSettled(some)
	case matched > 0 || tries > 1:
		s.doubt() // nobody knows which ones
	}
	return err
}

// settleOthers makes the settlements that only the present owner may make.
func (s *Store) settleOthers(ctx context.Context, some []*store.Settlement) error {
	for try := range settleTries {
		if try > 0 && slices.ContainsFunc(some, final) {
			s.doubt() // the try before may have ended some
		}
		done, err := s.trySettle(ctx, some)
		if err != nil || done {
			return err
		}
	}
	return postdate.E(postdate.KindUnknown, "settling: others changed the messages again and again: repeat it")
}

// trySettle takes settlements through mark, look and finish. done is false if a mark was
// overtaken.
func (s *Store) trySettle(ctx context.Context, some []*store.Settlement) (done bool, err error) {
	type group struct {
		reschedules, token uint64
	}
	groups := map[group][]target{}
	var all keyed
	for _, p := range some {
		all.add(p.Key)
		g := group{reschedules(p.Version), p.Token}
		groups[g] = append(groups[g], settlementTarget(p))
	}
	id, marked, err := s.setMarks(ctx, func(id bson.ObjectID) (changes []change) {
		for g, targets := range groups {
			changes = append(changes, change{
				targets: targets,
				// a later owner's mark stands
				where:  doc("status", int(postdate.Pending), "mark.token", doc("$not", doc("$gt", int64(g.token)))),
				update: doc("$set", doc("mark", mark{ID: id, Token: int64(g.token)})),
			})
		}
		return changes
	})
	if err != nil || marked == 0 {
		return marked == 0, err
	}
	records, err := s.lookAt(ctx, all.buckets)
	if err != nil {
		return false, unknown("settling", err)
	}
	var present []*store.Settlement
	var stale []target
	for _, p := range some {
		record, err := recordOf(records, p.Key.Bucket)
		if err != nil {
			return false, err
		}
		if record.Holds(p.Token) {
			present = append(present, p)
		} else {
			stale = append(stale, settlementTarget(p))
		}
	}
	return s.finishSettle(ctx, id, marked, present, stale)
}

// finishSettle writes the states of messages whose mark id still stands, and removes it from
// those that are no longer the owner's.
func (s *Store) finishSettle(ctx context.Context, id bson.ObjectID, marked int64, present []*store.Settlement,
	stale []target) (done bool, err error) {
	changes := []change{unmark(stale, id)}
	for o, targets := range byOutcome(present) {
		changes = append(changes, o.change(targets, &id))
	}
	finished, err := s.change(ctx, changes...)
	switch done = err == nil && finished == marked; {
	case !done:
	case int(marked) == len(present)+len(stale): // each was pending
		s.countSettled(present)
	case slices.ContainsFunc(present, final):
		s.doubt()
	}
	return done, err
}

// final says whether a settlement ends its message for ever.
func final(p *store.Settlement) bool {
	return p.How == store.SettleDelivered || p.How == store.SettleFailed
}

// settlementTarget is the target of a settlement: exactly the version that was published.
func settlementTarget(p *store.Settlement) target {
	return target{key: p.Key, execution: p.ExecutionTime, version: p.Version}
}

// outcome is a state that messages reach by settling, and how often they were rescheduled.
type outcome struct {
	how               store.Settling
	reschedules       uint64
	at, attemptTime   postdate.Time
	downSince         postdate.Time
	attempts          int
	possibleDuplicate bool
	reason            string
}

// byOutcome groups the messages that reach the same state.
func byOutcome(some []*store.Settlement) map[outcome][]target {
	groups := map[outcome][]target{}
	for _, p := range some {
		o := outcome{p.How, reschedules(p.Version), p.At, p.Again(), p.DownSince, p.Attempts, p.PossibleDuplicate,
			p.Reason}
		switch p.How { // what is not part of the state does not separate messages
		case store.SettleRetry:
			o.at, o.downSince = 0, 0
		case store.SettlePark:
			o.at = 0
		default:
			o.attemptTime, o.downSince = 0, 0
		}
		groups[o] = append(groups[o], settlementTarget(p))
	}
	return groups
}

// change writes store.Settlement.State. id is the mark that must stand; nil: any, or none.
func (o outcome) change(targets []target, id *bson.ObjectID) change {
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
	where := doc("status", int(postdate.Pending))
	if id != nil {
		where = append(where, bson.E{Key: "mark.id", Value: *id})
	}
	update := doc("$unset", unset)
	if len(set) > 0 {
		update = append(update, bson.E{Key: "$set", Value: set})
	}
	return change{targets: targets, where: where, update: update}
}
