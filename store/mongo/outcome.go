package mongo

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/topology"

	"github.com/postdate/postdate"
)

// This file turns every error of the driver into one of three outcomes. A write is surely not
// done only if no server can have begun it: none was found, or the server refused it
// explicitly. Everything else (a lost connection, a timeout, a primary that stepped down in
// between, a majority that did not answer) is unknown.

// writeError is the outcome of a write that failed. An error that has its outcome keeps it.
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
	return unknown(what, err)
}

// readError is the outcome of a read that failed: it changed nothing.
func readError(what string, err error) error {
	if err == nil {
		return nil
	}
	return unreachable(what, err)
}

func unreachable(what string, err error) error {
	return postdate.E(postdate.KindUnavailable, "%s: MongoDB cannot be reached or has no primary: try again (%w)",
		what, err)
}

// notSent says that no server was found, or none had a free connection. The driver shows such
// an error only if no earlier try of its own went out.
func notSent(err error) bool {
	var selection topology.ServerSelectionError
	var pool topology.WaitQueueTimeoutError
	return errors.As(err, &selection) || errors.As(err, &pool) || cleared(err)
}

// cleared says that there was no connection because another one had failed shortly before.
func cleared(err error) bool {
	var pool interface{ Retryable() bool }
	return errors.As(err, &pool) && pool.Retryable()
}

// codeFull is the server's error code for a full disk.
const codeFull = 14031

func full(err error) bool { return isCode(err, codeFull) }

// refused says that the server answered that it will not do this, and that asking again is
// useless.
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

// codesAgain are the server's error codes for a deposed primary, a majority that was not
// reached, and a read that waited for a majority in vain.
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
	return s.HasErrorLabel("RetryableWriteError") || slices.ContainsFunc(codesAgain, s.HasErrorCode)
}

// repeat runs f until it succeeds, or fails for a reason that is not temporary, or ctx ends. f is
// idempotent: a read, or a write that its own filter makes so; of such writes the driver itself
// repeats only those of one document. Each attempt has a time limit of its own: a frozen server
// keeps its connections, and a caller would wait for it to the end while its successor has long
// been at work.
//
// If an attempt may have been carried out, the failure of a later one does not undo it: then
// the earlier error is returned in place of one that says surely not done.
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

// afterAll is the error of the last attempt, in view of an earlier one whose outcome is unknown
// (nil: there was none). The errors of a batch belong to single items, and stay as they are.
func afterAll(unsure, err error) error {
	var batch driver.BulkWriteException
	if err == nil || unsure == nil || errors.As(err, &batch) || !notSent(err) && !full(err) && !refused(err) {
		return err
	}
	return unsure
}

// once runs one attempt within its time limit.
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

// unknown is the error of a write of which nothing tells whether it is done.
func unknown(what string, err error) error {
	if err == nil {
		return nil
	}
	return postdate.E(postdate.KindUnknown, "%s: MongoDB did not say whether it is done: %w", what, err)
}
