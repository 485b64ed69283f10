package mongo

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// failedMax is how many messages are changed or deleted by one command, or behind a mongos in one transaction.
const failedMax = 1_000

// redriveFields are the fields that a redrive decides by.
var redriveFields = append(slices.Clone(sizedFields), bson.E{Key: "expiresAt", Value: 1})

// failedOnes is one call of Redrive or Purge.
type failedOnes struct {
	s      *Store
	some   []store.Versioned // with the versions that were seen
	unsure bool              // an earlier try may have written
	at     postdate.Time
	states []store.Redriven
}

// Redrive implements store.Messages: one statement for messages that were rescheduled as often, by version and
// status. What it matched tells how many it changed. If these are not all, another look shows which ones: only a
// redrive makes the next version of what failed.
func (s *Store) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	r := &failedOnes{s: s, some: slices.Clone(some), at: at, states: make([]store.Redriven, len(some))}
	r.eachRound(ctx, "redriving", r.redrive)
	return r.states
}

// Purge implements store.Messages.
func (s *Store) Purge(ctx context.Context, some []store.Versioned) []error {
	p := &failedOnes{s: s, some: slices.Clone(some), states: make([]store.Redriven, len(some))}
	p.eachRound(ctx, "purging", p.purge)
	errs := make([]error, len(some))
	for i := range errs {
		errs[i] = p.states[i].Err
	}
	return errs
}

// eachRound tries rounds of messages, each of which is named once in it, until all are decided.
func (r *failedOnes) eachRound(ctx context.Context, what string,
	try func(ctx context.Context, items []int) (left []int, err error)) {
	ctx, cancel := r.s.bound(ctx)
	defer cancel()
	for _, round := range rounds(len(r.some), func(i int) postdate.Key { return r.some[i].Key }) {
		for items := range slices.Chunk(round, failedMax) {
			r.unsure = false
			for pause := time.Millisecond; len(items) > 0; pause = min(2*pause, waitMax) {
				left := items
				err := r.s.within(ctx, func(ctx context.Context) (err error) {
					left, err = try(ctx, items)
					return err
				})
				if err == nil && len(left) > 0 && !rest(ctx, pause) {
					err = unreachable(what, ctx.Err())
				}
				if err != nil {
					r.fail(left, what, err)
					break
				}
				items = left
			}
		}
	}
}

// fail notes the error of what is not decided.
func (r *failedOnes) fail(items []int, what string, err error) {
	if err = writeError(what, err); r.unsure {
		err = unknown(what, err)
	}
	r.s.doubtIf(err)
	for _, i := range items {
		r.states[i] = store.Redriven{Err: err}
	}
}

// look reads messages, decides what needs no write, and returns the others.
func (r *failedOnes) look(ctx context.Context, items []int, projection bson.D,
	decide func(i int, d *document) (write bool)) (writes []int, err error) {
	var keys keyed
	for _, i := range items {
		keys.add(r.some[i].Key)
	}
	found, err := r.s.read(ctx, &keys, projection)
	if err != nil {
		return nil, unreachable("reading what failed", err)
	}
	for _, i := range items {
		switch d := found[idOf(r.some[i].Key)]; {
		case d == nil:
			r.states[i] = store.Redriven{Err: store.ErrNotFound(r.some[i].Key)}
		case d.damaged != nil:
			r.states[i] = store.Redriven{Err: errDamaged(d)}
		case decide(i, d):
			r.some[i].Version = uint64(d.Version)
			writes = append(writes, i)
		}
	}
	return writes, nil
}

func (r *failedOnes) redrive(ctx context.Context, items []int) (left []int, err error) {
	type group struct {
		reschedules uint64
		at          postdate.Time
	}
	groups := map[group][]target{}
	var counts []store.Change
	writes, err := r.look(ctx, items, redriveFields, func(i int, d *document) bool {
		notBefore := max(d.ExecutionTime, d.Occurrence)
		next, now, err := r.some[i].Redrive(d.state(), notBefore, d.ExpiresAt, r.at)
		r.states[i] = store.Redriven{State: next, Err: err}
		if now {
			g := group{reschedules(uint64(d.Version)), next.AttemptTime}
			groups[g] = append(groups[g], target{d.key(), d.ExecutionTime, uint64(d.Version)})
			counts = append(counts, r.s.pendingChange(d.Tenant, d.route().Channel(), d.payloadBytes(), 1))
		}
		return now
	})
	if err != nil {
		return items, err
	}
	if len(writes) == 0 {
		return nil, nil
	}
	var changes []change
	for g, targets := range groups {
		changes = append(changes, change{
			targets: targets,
			where:   doc("status", int(postdate.DeliveryFailed)),
			update: doc("$inc", doc("version", int64(1)),
				"$set", doc("status", int(postdate.Pending), "attemptTime", g.at, "due", g.at, "redriven", true),
				"$unset", doc("settledAt", "", "attempts", "", "parked", "", "downSince", "", "mark", "")),
		})
	}
	matched, err := r.s.change(ctx, changes...)
	switch {
	case err != nil:
		return writes, err
	case matched != int64(len(writes)):
		r.unsure = true
		r.s.doubt()
		return writes, nil
	}
	r.s.count(counts...)
	return nil, nil
}

func (r *failedOnes) purge(ctx context.Context, items []int) (left []int, err error) {
	var keys keyed
	var versions []int64
	writes, err := r.look(ctx, items, stateFields, func(i int, d *document) bool {
		r.states[i].Err = r.some[i].CheckPurge(d.state())
		if r.states[i].Err == nil {
			keys.add(d.key())
			versions = append(versions, d.Version)
		}
		return r.states[i].Err == nil
	})
	if err != nil {
		return items, err
	}
	if r.unsure { // what is gone now, an earlier try deleted
		for _, i := range items {
			if postdate.KindOf(r.states[i].Err) == postdate.KindNotFound {
				r.states[i].Err = nil
			}
		}
	}
	if len(writes) == 0 {
		return nil, nil
	}
	deleted, err := r.s.deleteAll(ctx, append(keys.filter(),
		doc("version", anyOf(versions), "status", int(postdate.DeliveryFailed))...), len(writes))
	if err != nil {
		return writes, err
	}
	if r.unsure = deleted != len(writes); r.unsure {
		return writes, nil
	}
	return nil, nil
}
