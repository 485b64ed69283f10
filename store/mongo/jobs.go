package mongo

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// job is a store.Job, in the collection jobs.
type job struct {
	ID        string        `bson:"_id"`            // as that of a message
	Bucket    int           `bson:"bucket"`         // see placeOf
	Open      string        `bson:"open,omitempty"` // the tenant, while the job has not ended
	Version   int64         `bson:"version"`
	Kind      int           `bson:"kind"`
	Label     string        `bson:"label,omitempty"`
	Channel   string        `bson:"channel,omitempty"`
	IDPrefix  string        `bson:"idPrefix,omitempty"`
	From      postdate.Time `bson:"from,omitempty"`
	To        postdate.Time `bson:"to,omitempty"`
	CreatedAt postdate.Time `bson:"createdAt"`
	EndedAt   postdate.Time `bson:"endedAt,omitempty"`
	After     *jobPlace     `bson:"after,omitempty"`
	Done      int64         `bson:"done"`
	Failed    int64         `bson:"failed"`
	LastError string        `bson:"lastError,omitempty"`

	FilterError string `bson:"filterError,omitempty"` // the filter's LastError
}

// placeOf is the bucket in which a job is stored. While one whose filter has a LastError is open, that is a number
// that no node of an earlier version looks for: such a node would change messages with other errors too.
func placeOf(j *store.Job) int {
	if j.Filter.LastError != "" && j.EndedAt == 0 {
		return hiddenPlace(j.Key.Bucket)
	}
	return j.Key.Bucket
}

// hiddenPlace is another place of a bucket's jobs, and the other way round.
func hiddenPlace(bucket int) int { return -1 - bucket }

// jobPlace is a store.ListPosition.
type jobPlace struct {
	ExecutionTime postdate.Time `bson:"executionTime"`
	Bucket        int           `bson:"bucket"`
	ScheduleID    string        `bson:"scheduleId"`
}

func jobOf(j *store.Job) *job {
	d := &job{
		ID: idOf(j.Key), Bucket: placeOf(j), Version: int64(j.Version), Kind: int(j.Kind),
		Label: j.Filter.Label, Channel: string(j.Filter.Channel), IDPrefix: j.Filter.IDPrefix,
		From: j.Filter.From, To: j.Filter.To, CreatedAt: j.CreatedAt, EndedAt: j.EndedAt,
		After: (*jobPlace)(j.After), Done: j.Done, Failed: j.Failed, LastError: j.LastError,
		FilterError: j.Filter.LastError,
	}
	if j.EndedAt == 0 {
		d.Open = j.Key.Tenant
	}
	return d
}

func (d *job) job() store.Job {
	b := d.Bucket
	if b < 0 {
		b = hiddenPlace(b)
	}
	return store.Job{
		Key: keyOf(b, d.ID), Version: uint64(d.Version), Kind: store.JobKind(d.Kind),
		Filter: store.JobFilter{
			Label: d.Label, Channel: postdate.Channel(d.Channel), IDPrefix: d.IDPrefix, From: d.From, To: d.To,
			LastError: d.FilterError,
		},
		CreatedAt: d.CreatedAt, EndedAt: d.EndedAt, After: (*store.ListPosition)(d.After), Done: d.Done,
		Failed: d.Failed, LastError: d.LastError,
	}
}

// CreateJob implements store.Jobs.
func (s *Store) CreateJob(ctx context.Context, j store.Job) error {
	j.Version = 1
	d := jobOf(&j)
	err := s.within(ctx, func(ctx context.Context) error {
		others, err := s.findJobs(ctx, doc("open", j.Key.Tenant), options.Find().SetHint(indexOpen).
			SetLimit(postdate.JobsMax).SetProjection(doc("_id", 1)))
		if err != nil {
			return unreachable("starting a job", err)
		}
		if len(others) == postdate.JobsMax {
			there, err := s.findJobs(ctx, doc("_id", d.ID), options.Find().SetHint(indexID))
			switch {
			case err != nil:
				return unreachable("starting a job", err)
			case len(there) == 0:
				return store.ErrTooManyJobs()
			}
			return nil
		}
		err = s.repeat(ctx, func(ctx context.Context) error {
			_, err := s.jobs.UpdateOne(ctx, doc("_id", d.ID), doc("$setOnInsert", d),
				options.UpdateOne().SetUpsert(true).SetHint(indexID))
			return err
		})
		if driver.IsDuplicateKeyError(err) { // it is there
			return nil
		}
		return err
	})
	return writeError("starting a job", err)
}

// findJobs reads jobs.
func (s *Store) findJobs(ctx context.Context, filter bson.D, how *options.FindOptionsBuilder) (jobs []job, err error) {
	err = s.repeat(ctx, func(ctx context.Context) error {
		cursor, err := s.jobs.Find(ctx, filter, how)
		if err != nil {
			return err
		}
		return cursor.All(ctx, &jobs)
	})
	return jobs, err
}

// Job implements store.Jobs.
func (s *Store) Job(ctx context.Context, key postdate.Key) (store.Job, error) {
	var d job
	err := s.reading(ctx, func(ctx context.Context) error {
		return s.jobs.FindOne(ctx, doc("_id", idOf(key)), options.FindOne().SetHint(indexID)).Decode(&d)
	})
	if err == driver.ErrNoDocuments {
		return store.Job{}, store.ErrNoJob(key)
	}
	return d.job(), readError("reading a job", err)
}

// OpenJobs implements store.Jobs. The index has only jobs that have not ended, so few that it need not begin with
// the bucket.
func (s *Store) OpenJobs(ctx context.Context, buckets []int) (open []store.Job, err error) {
	if len(buckets) == 0 {
		return nil, nil
	}
	places := slices.Clone(buckets)
	for _, b := range buckets {
		places = append(places, hiddenPlace(b))
	}
	var all []job
	err = s.within(ctx, func(ctx context.Context) (err error) {
		all, err = s.findJobs(ctx, doc("open", doc("$exists", true), "bucket", anyOf(places)),
			options.Find().SetHint(indexOpen))
		return err
	})
	for i := range all {
		open = append(open, all[i].job())
	}
	return open, readError("looking for jobs", err)
}

// SetJob implements store.Jobs.
func (s *Store) SetJob(ctx context.Context, j store.Job) (done bool, err error) {
	err = s.within(ctx, func(ctx context.Context) error {
		return s.repeat(ctx, func(ctx context.Context) error {
			r, err := s.jobs.ReplaceOne(ctx, doc("_id", idOf(j.Key), "version", int64(j.Version)-1,
				"open", j.Key.Tenant), jobOf(&j), options.Replace().SetHint(indexID))
			done = err == nil && r.MatchedCount > 0
			return err
		})
	})
	return done && err == nil, writeError("noting how far a job has come", err)
}

// expireJobs deletes the jobs that e selects.
func (s *Store) expireJobs(ctx context.Context, e *store.Expiry) error {
	_, err := s.expireFrom(ctx, s.jobs, "endedAt", e.SettledBefore, e)
	return err
}
