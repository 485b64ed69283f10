package mongo

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// recurrence is a postdate.Recurrence in a message's document.
type recurrence struct {
	Every        time.Duration    `bson:"every,omitempty"` // nanoseconds, as the other durations
	Anchor       postdate.Time    `bson:"anchor,omitempty"`
	Cron         string           `bson:"cron,omitempty"`
	Timezone     string           `bson:"timezone,omitempty"`
	Start        postdate.Time    `bson:"start,omitempty"`
	End          postdate.Time    `bson:"end,omitempty"`
	MaxRuns      int              `bson:"maxRuns,omitempty"`
	Jitter       time.Duration    `bson:"jitter,omitempty"`
	Misfire      postdate.Misfire `bson:"misfire,omitempty"`
	MisfireAfter time.Duration    `bson:"misfireAfter,omitempty"`
	Gap          postdate.Gap     `bson:"gap,omitempty"`
	Overlap      postdate.Overlap `bson:"overlap,omitempty"`
}

// series is what became of a series' occurrences. A statement that settles many series adds to it
// without having read it.
type series struct {
	Fired   int64   `bson:"fired,omitempty"`
	Failed  int64   `bson:"failed,omitempty"`
	Skipped int64   `bson:"skipped,omitempty"`
	History []noted `bson:"history,omitempty"`
}

// noted is a postdate.Outcome.
type noted struct {
	Occurrence postdate.Time   `bson:"occurrence"`
	Status     postdate.Status `bson:"status,omitempty"`
	At         postdate.Time   `bson:"at,omitempty"`
	Attempts   int             `bson:"attempts,omitempty"`
	Skipped    int64           `bson:"skipped,omitempty"`
}

// seriesOf is what is stored of a series' occurrences; nil: nothing became of any.
func seriesOf(s *postdate.Series) *series {
	if s.Fired == 0 && s.Skipped == 0 {
		return nil
	}
	stored := &series{Fired: s.Fired, Failed: s.Failed, Skipped: s.Skipped}
	for _, o := range s.History {
		stored.History = append(stored.History, noted(o))
	}
	return stored
}

func (s *series) series() (all postdate.Series) {
	if s == nil {
		return all
	}
	all = postdate.Series{Fired: s.Fired, Failed: s.Failed, Skipped: s.Skipped}
	for _, n := range s.History {
		all.History = append(all.History, postdate.Outcome(n))
	}
	return all
}

// countMax is more than a series can count. Something near the largest number would stop the statement
// that adds to it, and with that the series beside it.
const countMax = 1 << 60

// checkSeries returns an error if what was read of a series does not fit together. Every projection has
// its recurrence, its occurrence and its run, or none of these.
func (d *document) checkSeries() error {
	r, s := d.Recurrence, d.Series
	switch {
	case (r == nil) != (d.Occurrence == 0):
		return errors.New("of its recurrence and its present occurrence, one is not there")
	case r != nil && (d.Run < 1 || d.Run > countMax):
		return errors.New("its present occurrence has no number that it can have")
	case r != nil && (d.Changes < 0 || d.Changes > countMax):
		return errors.New("nothing was ever changed as often as it says")
	case r != nil && (r.Misfire > postdate.MisfireSkip || r.Gap > postdate.GapSkip || r.Overlap > postdate.OverlapBoth):
		return errors.New("its recurrence has a policy that this version does not know")
	case s != nil && (min(s.Fired, s.Failed, s.Skipped) < 0 || max(s.Fired, s.Failed, s.Skipped) > countMax):
		return errors.New("nothing was ever counted up to what its series says")
	}
	return nil
}

// goesOn says whether it is a series that is not to end with its present occurrence.
func (d *document) goesOn() bool {
	return d.Status == int(postdate.Pending) && d.Occurrence != 0 && !d.Ending
}

// mayBeHeld says whether a settlement may hold it in a transaction: see apart.go.
func (d *document) mayBeHeld() bool {
	_, alone := d.key().OfSeries()
	return alone || d.Occurrence != 0 || d.Mark != nil && d.Mark.Apart
}

// Pause implements store.Messages.
func (s *Store) Pause(ctx context.Context, series postdate.Key, ifVersion uint64) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var keys keyed
	keys.add(series)
	return s.within(ctx, func(ctx context.Context) error {
		targets, err := s.targets(ctx, &keys)
		if err != nil {
			return unreachable("pausing", err)
		}
		matched, err := s.change(ctx, change{
			targets: targets,
			where: doc("status", int(postdate.Pending), "version", int64(ifVersion), "occurrence", doc("$ne", nil),
				"ending", doc("$ne", true)),
			update: doc("$set", doc("paused", true)),
		})
		if err != nil || matched == 1 {
			return writeError("pausing", err)
		}
		found, err := s.read(ctx, &keys, stateFields)
		if err != nil {
			return unknown("pausing", err) // an earlier try of the change may have paused it
		}
		if err := checkAt(series, found[idOf(series)], ifVersion, store.CheckGoingOn); err != nil {
			return err
		}
		return store.ErrChanged(series) // it has come to that version since
	})
}

// checkAt returns an error if d, which was found under the key, is not what check allows at that version.
func checkAt(key postdate.Key, d *document, version uint64,
	check func(key postdate.Key, st postdate.State, version uint64) error) error {
	switch {
	case d == nil:
		return store.ErrNotFound(key)
	case d.damaged != nil:
		return errDamaged(d)
	}
	return check(key, d.state(), version)
}

// Retried implements store.Messages: the ids of the occurrences begin with that of their series.
func (s *Store) Retried(ctx context.Context, series postdate.Key) (keys []postdate.Key, err error) {
	const slash, beyond = "/", "0" // the byte after the slash
	id := idOf(series)
	err = s.within(ctx, func(ctx context.Context) error {
		found, err := s.find(ctx, doc("_id", doc("$gt", id+slash, "$lt", id+beyond), "bucket", series.Bucket,
			"status", int(postdate.Pending)), options.Find().SetHint(indexID).SetProjection(doc("bucket", 1)))
		for _, d := range found {
			if key := keyOf(series.Bucket, d.ID); !key.OfFailure() {
				keys = append(keys, key)
			}
		}
		return err
	})
	return keys, readError("reading what is retried of a series", err)
}
