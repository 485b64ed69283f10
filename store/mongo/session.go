package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
)

// within runs f in a causally consistent session: each of its reads sees what its writes wrote,
// and all that this process saw before. No read can come from a deposed primary: that one lacks
// what a majority has acknowledged since, and waits for it in vain.
func (s *Store) within(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	session, err := s.client.StartSession(options.Session().SetCausalConsistency(true))
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	if seen := s.latest(); seen.T != 0 {
		if err := session.AdvanceOperationTime(&seen); err != nil {
			return err
		}
	}
	err = f(driver.NewSessionContext(ctx, session))
	if at := session.OperationTime(); at != nil {
		s.saw(*at)
	}
	return err
}

// reading is within for an f that only reads: f may run more than once.
func (s *Store) reading(ctx context.Context, f func(ctx context.Context) error) error {
	return s.within(ctx, func(ctx context.Context) error { return s.repeat(ctx, f) })
}

// bound gives a call without a deadline the store's own.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.c.Timeout)
}

func (s *Store) latest() bson.Timestamp {
	s.seenMu.Lock()
	defer s.seenMu.Unlock()
	return s.seen
}

func (s *Store) saw(at bson.Timestamp) {
	s.seenMu.Lock()
	defer s.seenMu.Unlock()
	if at.After(s.seen) {
		s.seen = at
	}
}

// all runs f in parallel, each in a session of its own (one session serves one
// command at a time), and returns the first error.
func (s *Store) all(ctx context.Context, fs ...func(ctx context.Context) error) error {
	if len(fs) == 1 {
		return s.within(ctx, fs[0])
	}
	errs := make(chan error, len(fs))
	for _, f := range fs {
		go func() { errs <- s.within(ctx, f) }()
	}
	var first error
	for range fs {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// sawSession lets the sessions begun next see what the session of ctx wrote.
func (s *Store) sawSession(ctx context.Context) {
	if session := driver.SessionFromContext(ctx); session != nil {
		if at := session.OperationTime(); at != nil {
			s.saw(*at)
		}
	}
}

// transaction runs f in a transaction, and starts over if another transaction was in the way.
// Its reads are of one snapshot: behind a mongos they could otherwise see a chunk both before
// and after it moved (SERVER-77506).
//
// Once its commit has gone out, no failure says that it was not done: the driver repeats a
// commit whose answer was lost, and shows only how the last try ended.
func (s *Store) transaction(ctx context.Context, f func(ctx context.Context) error) error {
	committing := false
	_, err := driver.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) {
		err := f(ctx)
		committing = err == nil
		return nil, err
	}, options.Transaction().SetReadConcern(readconcern.Snapshot()))
	if err != nil && committing {
		return unknown("committing", err)
	}
	return err
}
