package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/postdate/postdate"
)

// Every error of the driver becomes one of three outcomes here. A write is surely
// not done only where no server can have begun it: none was found, or the server
// refused it in words. Everything else (a lost connection, a timeout, a primary
// that stepped down in between, a majority that did not answer) is unknown.

// writeError is what became of a write that failed. An error that has its outcome keeps it.
func writeError(what string, err error) error {
	if err == nil {
		return nil
	}
	var known *postdate.Error
	switch {
	case errors.As(err, &known):
		return known
	case full(err):
		return postdate.E(postdate.KindFull, "%s: MongoDB has no room: make some; nothing is lost (%w)", what, err)
	case notSent(err):
		return unreachable(what, err)
	case refused(err):
		return postdate.E(postdate.KindInternal, "%s: MongoDB refused it: %w", what, err)
	}
	return postdate.E(postdate.KindUnknown, "%s: MongoDB did not say whether it is done: %w", what, err)
}

// readError is a read that failed: it changed nothing.
func readError(what string, err error) error {
	if err == nil {
		return nil
	}
	return unreachable(what, err)
}

func unreachable(what string, err error) error {
	return postdate.E(postdate.KindUnavailable, "%s: MongoDB cannot be reached or has no primary: try again (%w)", what, err)
}

// notSent says that no server was found, or none had a connection free: the
// driver shows such an error only where no earlier try of its own went out.
func notSent(err error) bool {
	var selection topology.ServerSelectionError
	var pool topology.WaitQueueTimeoutError
	return errors.As(err, &selection) || errors.As(err, &pool) || cleared(err)
}

// cleared says that a connection was not to be had because another one had just failed.
func cleared(err error) bool {
	var pool interface{ Retryable() bool }
	return errors.As(err, &pool) && pool.Retryable()
}

// codesFull are the server's words for a full disk.
var codesFull = []int{14031}

func full(err error) bool {
	var s driver.ServerError
	if !errors.As(err, &s) {
		return false
	}
	for _, code := range codesFull {
		if s.HasErrorCode(code) {
			return true
		}
	}
	return false
}

// refused says that the server answered that it does not do this, and that asking
// again is of no use.
func refused(err error) bool {
	var s driver.ServerError
	if !errors.As(err, &s) || again(err) {
		return false
	}
	var bulk driver.BulkWriteException
	if errors.As(err, &bulk) {
		return bulk.WriteConcernError == nil && len(bulk.WriteErrors) > 0
	}
	var one driver.WriteException
	if errors.As(err, &one) {
		return one.WriteConcernError == nil && len(one.WriteErrors) > 0
	}
	return !s.HasErrorLabel("NetworkError") && !driver.IsTimeout(err)
}

// codesAgain are the server's words for a primary that is none any more, a
// majority that was not reached, and a read that waited in vain for one.
var codesAgain = []int{
	6, 7, 89, 91, 112, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436, 64, 50, 202, 246,
}

// again says that the same command may well succeed soon.
func again(err error) bool {
	if driver.IsNetworkError(err) || cleared(err) {
		return true
	}
	var s driver.ServerError
	if !errors.As(err, &s) {
		return false
	}
	if s.HasErrorLabel("RetryableWriteError") {
		return true
	}
	for _, code := range codesAgain {
		if s.HasErrorCode(code) {
			return true
		}
	}
	return false
}

// repeat does f until it succeeds, or fails otherwise than by a change of primary,
// or ctx ends. f is idempotent: a read, or a write that is so by its own filter, of
// which the driver repeats by itself only what writes one document. Each attempt has
// a time of its own: a server that is frozen keeps its connections, and whoever asked
// it would wait to the end, while its successor is long at work.
//
// Where an attempt may have been carried out, a later one's failure does not undo it:
// then the earlier error is returned in place of one that says surely not done.
func (s *Store) repeat(ctx context.Context, f func(ctx context.Context) error) error {
	var unsure error
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := s.once(ctx, f)
		if err == nil || !again(err) && !driver.IsTimeout(err) || !rest(ctx, pause) {
			return afterAll(unsure, err)
		}
		if unsure == nil && !notSent(err) {
			unsure = err
		}
	}
}

// afterAll is the error of the last attempt, seen in the light of an earlier one whose
// outcome is unknown (nil: there was none). The errors of a batch are of single items,
// and say what they say.
func afterAll(unsure, err error) error {
	var batch driver.BulkWriteException
	if err == nil || unsure == nil || errors.As(err, &batch) || !notSent(err) && !full(err) && !refused(err) {
		return err
	}
	return unsure
}

// once gives one attempt its time.
func (s *Store) once(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.c.Attempt)
	defer cancel()
	return f(ctx)
}

// rest pauses for about d, and says whether there is time to go on.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// unknown is the failure of a read that was to tell what a write did.
func unknown(what string, err error) error {
	if err == nil {
		return nil
	}
	return postdate.E(postdate.KindUnknown, "%s: MongoDB did not say whether it is done: %w", what, err)
}
