package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// settleTries bounds how often a settlement whose marks were overtaken is tried before the
// owner is asked to repeat it.
const settleTries = 8

// settleRest bounds the pause before such a try: some times what one takes.
const settleRest = 250 * time.Millisecond

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
	changes := changesOf(some, false, nil)
	tries := 0
	matched, err := s.changeBy(ctx, func() []change {
		tries++
		return changes
	})
	if err != nil {
		return err
	}
	if matched < int64(len(some)) {
		if some, _, err = s.endSeries(ctx, some, nil); err != nil {
			return err
		}
	}
	switch {
	case matched == int64(len(some)):
		s.countSettled(some)
	case (matched > 0 || tries > 1) && slices.ContainsFunc(some, final):
		s.doubt() // nobody knows which ones
	}
	return nil
}

// settleOthers makes the settlements that only the present owner may make.
func (s *Store) settleOthers(ctx context.Context, some []*store.Settlement) error {
	pause := time.Millisecond
	for range settleTries {
		done, err := s.trySettle(ctx, some)
		if err != nil || done {
			return err
		}
		if slices.ContainsFunc(some, final) {
			s.doubt() // it may have ended some
		}
		if !rest(ctx, pause) { // two that settle the same could overtake each other for ever
			break
		}
		pause = min(4*pause, settleRest)
	}
	return postdate.E(postdate.KindUnknown, "settling: others changed the messages again and again: repeat it")
}

// trySettle takes settlements through mark, look and finish. done is false if a mark was
// overtaken.
func (s *Store) trySettle(ctx context.Context, some []*store.Settlement) (done bool, err error) {
	type group struct {
		reschedules, token uint64
		occurrence         postdate.Time
		apart              bool
	}
	groups := map[group][]target{}
	var all keyed
	for _, p := range some {
		all.add(p.Key)
		g := group{reschedules(p.Version), p.Token, p.Occurrence, p.Leaves()}
		groups[g] = append(groups[g], settlementTarget(p))
	}
	id, marked, err := s.setMarks(ctx, func(id bson.ObjectID) (changes []change) {
		for g, targets := range groups {
			changes = append(changes, change{
				targets: targets,
				// a later owner's mark stands
				where: append(whereAt(g.occurrence),
					doc("mark.token", doc("$not", doc("$gt", int64(g.token))))...),
				update: doc("$set", doc("mark", mark{ID: id, Token: int64(g.token), Apart: g.apart})),
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
	var some, apart []*store.Settlement
	for _, p := range present {
		if changesAnother(p) {
			apart = append(apart, p)
		} else {
			some = append(some, p)
		}
	}
	finished, err := s.change(ctx, append(changesOf(some, false, &id), unmark(stale, id))...)
	if err != nil {
		return false, err
	}
	settled, err := s.settleAllApart(ctx, apart, id)
	if err != nil {
		return false, unknown("settling", err) // others may be settled
	}
	if finished += settled; finished < marked {
		var ended int64
		if some, ended, err = s.endSeries(ctx, some, &id); err != nil {
			return false, err
		}
		finished += ended
	}
	switch done = finished == marked; {
	case !done:
	case int(marked) == len(present)+len(stale): // each was pending
		s.countSettled(some)
	case slices.ContainsFunc(some, final):
		s.doubt()
	}
	return done, nil
}

// final says whether a settlement ends its message for ever.
func final(p *store.Settlement) bool { return outcomeOf(p, false).next.Status.Final() }

// settlementTarget is the target of a settlement: exactly the version that was published.
func settlementTarget(p *store.Settlement) target {
	return target{key: p.Key, execution: p.ExecutionTime, version: p.Version}
}

// outcome is what settling makes of messages, and how often they were rescheduled.
type outcome struct {
	was, next postdate.State   // was: as far as it matters; next: without what stays
	noted     postdate.Outcome // of the occurrence of a series that advances
	logged    postdate.Attempt // of a message that is no series; zero: nothing was attempted
}

// outcomeOf is the outcome of a settlement; ending says whether it is of a series that is to end.
func outcomeOf(p *store.Settlement, ending bool) outcome {
	was := postdate.State{Status: postdate.Pending, Version: reschedules(p.Version), Occurrence: p.Occurrence,
		Ending: ending}
	o := outcome{was: was, next: p.State(was)}
	if p.Advances() {
		o.noted = p.Series(was, postdate.Series{}).History[0]
	}
	if log := p.Log(nil); len(log) > 0 {
		o.logged = log[0]
	}
	return o
}

// changesOf makes one change for all messages that reach the same state. id is the mark that must
// stand; nil: any, or none.
func changesOf(some []*store.Settlement, ending bool, id *bson.ObjectID) (changes []change) {
	groups := map[outcome][]target{}
	for _, p := range some {
		o := outcomeOf(p, ending)
		groups[o] = append(groups[o], settlementTarget(p))
	}
	for o, targets := range groups {
		c := o.change(targets, id)
		if o.logged != (postdate.Attempt{}) && o.next.Status == postdate.Pending {
			// Only these match again when they are repeated, and an attempt is logged once.
			logged := o
			logged.logged = postdate.Attempt{}
			again := logged.change(targets, id)
			again.where = append(again.where, bson.E{Key: "attemptLog", Value: attempt(o.logged)})
			c.where = append(c.where, bson.E{Key: "attemptLog", Value: doc("$ne", attempt(o.logged))})
			changes = append(changes, again)
		}
		changes = append(changes, c)
	}
	return changes
}

// whereAt matches PENDING messages; of series, those whose present occurrence is the given one.
func whereAt(occurrence postdate.Time) bson.D {
	if occurrence == 0 {
		return doc("status", int(postdate.Pending), "occurrence", nil)
	}
	return doc("status", int(postdate.Pending), "occurrence", occurrence)
}

// change writes store.Settlement.State, and for series store.Settlement.Series.
func (o *outcome) change(targets []target, id *bson.ObjectID) change {
	set, unset := bson.D{}, doc("mark", "")
	put := func(name string, value any, there bool) {
		if there {
			set = append(set, bson.E{Key: name, Value: value})
		} else {
			unset = append(unset, bson.E{Key: name, Value: ""})
		}
	}
	next, pending := &o.next, o.next.Status == postdate.Pending
	put("attempts", next.Attempts, next.Attempts != 0)
	put("possibleDuplicate", true, next.PossibleDuplicate)
	put("lastError", next.LastError, next.LastError != "")
	put("parked", true, next.Parked)
	put("downSince", next.DownSince, next.DownSince != 0)
	put("due", next.AttemptTime, pending)
	if pending {
		set = append(set, bson.E{Key: "attemptTime", Value: next.AttemptTime})
	} else {
		set = append(set, doc("status", int(next.Status), "settledAt", next.SettledAt)...)
	}
	where := whereAt(o.was.Occurrence)
	if id != nil {
		where = append(where, bson.E{Key: "mark.id", Value: *id})
	}
	if o.was.Occurrence != 0 {
		where = append(where, bson.E{Key: "ending", Value: doc("$ne", true)})
	}
	if o.was.Ending {
		where[len(where)-1].Value = true
		put("ending", nil, false)
	}
	if next.Occurrence != o.was.Occurrence {
		set = append(set, bson.E{Key: "occurrence", Value: next.Occurrence})
	}
	update := doc("$unset", unset)
	if len(set) > 0 {
		update = append(update, bson.E{Key: "$set", Value: set})
	}
	return change{targets: targets, where: where, update: append(update, o.additions()...)}
}

// additions are what the update adds to the log of attempts or, of a series that advances, to what became of it.
func (o *outcome) additions() bson.D {
	if o.logged != (postdate.Attempt{}) {
		return pushed("attemptLog", attempt(o.logged), postdate.AttemptLogMax)
	}
	if o.noted == (postdate.Outcome{}) {
		return nil
	}
	var counts bson.D
	by := postdate.Series{}.Add(o.noted)
	for name, n := range map[string]int64{"series.fired": by.Fired, "series.failed": by.Failed,
		"series.skipped": by.Skipped, "run": int64(o.next.Run - o.was.Run)} {
		if n != 0 {
			counts = append(counts, bson.E{Key: name, Value: n})
		}
	}
	return append(doc("$inc", counts), pushed("series.history", noted(o.noted), postdate.HistoryMax)...)
}

// pushed adds an entry to a list of a message, of which only the latest stay.
func pushed(field string, entry any, latest int) bson.D {
	return doc("$push", doc(field, doc("$each", bson.A{entry}, "$slice", -latest)))
}
