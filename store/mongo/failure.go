package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// fail settles a failure that leaves a message for its failure channel, and makes that message, unless it is there.
// If what failed was an occurrence of a series, its failure is counted there. done is false if it changed nothing.
func (s *Store) fail(ctx context.Context, p *store.Settlement, id bson.ObjectID) (done bool, err error) {
	count, err := s.failedIn(ctx, p)
	if err != nil {
		return false, err
	}
	var counts []store.Change
	var damaged *postdate.Error
	err = s.transaction(ctx, func(ctx context.Context) error {
		var rec *postdate.Record
		rec, counts, err = s.settleMarked(ctx, p, id)
		done = rec != nil
		if errors.As(err, &damaged) || err != nil || !done {
			return err
		}
		if left, ok := p.Failed(rec); ok {
			created, err := s.insertIfNew(ctx, documentOf(&left.Message, &left.State))
			if err != nil {
				return err
			}
			if created {
				counts = append(counts, s.pendingChange(left.Tenant, left.Channel, len(left.Payload), 1))
			}
		}
		if len(count.targets) > 0 {
			_, err = s.changeOne(ctx, count)
		}
		return err
	})
	if damaged != nil && damaged.Kind == postdate.KindInternal { // it must not hold up others
		return s.failDamaged(ctx, p, id)
	}
	if err == nil {
		s.count(counts...)
	}
	return done && err == nil, err
}

// failDamaged settles the failure of a message that cannot be read, which leaves none.
func (s *Store) failDamaged(ctx context.Context, p *store.Settlement, id bson.ObjectID) (done bool, err error) {
	without := p.WithReason("it did not go to its failure channel, because its message is damaged")
	without.FailureChannel = ""
	matched, err := s.change(ctx, changesOf([]*store.Settlement{without}, false, &id)...)
	s.doubt() // nobody knows how much was pending
	return matched == 1, err
}

// failedIn is the change that counts a failure in the series that the occurrence was of. It has no target if what
// failed was none.
func (s *Store) failedIn(ctx context.Context, p *store.Settlement) (count change, err error) {
	series, is := p.Key.OfSeries()
	if !is {
		return change{}, nil
	}
	var keys keyed
	keys.add(series)
	targets, err := s.targets(ctx, &keys)
	if err != nil {
		return change{}, unknown("settling", err) // others may be settled
	}
	return change{
		targets: targets,
		where:   whereOwns(p.Version),
		update:  bson.A{doc("$set", doc("series.failed", doc("$add", bson.A{number("series.failed"), int64(1)})))},
	}, nil
}
