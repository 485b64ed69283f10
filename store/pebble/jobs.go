package pebble

import (
	"context"
	"encoding/binary"
	"errors"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// CreateJob implements store.Jobs. Like every cancel and deletion, the jobs for those go on when the disk is full.
func (s *Store) CreateJob(ctx context.Context, job store.Job) error {
	if job.Kind != store.JobCancel && job.Kind != store.JobPurge {
		if err := s.admit(ctx); err != nil {
			return err
		}
	}
	job.Version = 1
	return s.underAll(ctx, 1, func(int) (int, int) { return job.Key.Bucket, 0 }, func(w *writer, _, _ int) error {
		if _, there, err := s.job(job.Key); there || err != nil {
			return err
		}
		prefix := openJobKey(nil, job.Key.Tenant, "")
		open, err := s.openJobs(prefix, after(prefix))
		if err != nil {
			return err
		}
		if len(open) >= postdate.JobsMax {
			return store.ErrTooManyJobs()
		}
		w.batch.Set(jobKey(nil, job.Key), appendJob(nil, &job), nil)
		w.batch.Set(openJobKey(nil, job.Key.Tenant, job.Key.ScheduleID), appendBucket(nil, job.Key.Bucket), nil)
		return nil
	})
}

// Job implements store.Jobs.
func (s *Store) Job(_ context.Context, key postdate.Key) (store.Job, error) {
	j, there, err := s.job(key)
	switch {
	case err != nil:
		return j, s.readError(err)
	case !there:
		return j, store.ErrNoJob(key)
	}
	return j, s.awaitSynced()
}

// job reads a job as it is.
func (s *Store) job(key postdate.Key) (j store.Job, there bool, err error) {
	v, closer, err := s.db.Get(jobKey(nil, key))
	if errors.Is(err, lsm.ErrNotFound) {
		return j, false, nil
	}
	if err != nil {
		return j, false, err
	}
	defer closer.Close()
	j, err = readJob(v, key)
	return j, err == nil, err
}

// OpenJobs implements store.Jobs. A job that cannot be read is left out, so that the others go on.
func (s *Store) OpenJobs(_ context.Context, buckets []int) (open []store.Job, err error) {
	keys, err := s.openJobs([]byte{spaceOpenJob}, []byte{spaceOpenJob + 1})
	if err != nil {
		return nil, s.readError(err)
	}
	ours := s.among(buckets)
	for _, key := range keys {
		if key.Bucket >= len(ours) || !ours[key.Bucket] {
			continue
		}
		j, there, err := s.job(key)
		if err != nil {
			s.c.Log.Error("a job cannot be read and is not worked on", "job", key.ScheduleID, "error", err)
		} else if there {
			open = append(open, j)
		}
	}
	return open, s.awaitSynced()
}

// openJobs lists the keys of the jobs that have not ended, between two keys of their space.
func (s *Store) openJobs(from, to []byte) (keys []postdate.Key, err error) {
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return nil, err
	}
	defer iter.Close()
	for ok := iter.First(); ok; ok = iter.Next() {
		if len(iter.Value()) != bucketBytes {
			return nil, errLayout
		}
		key := postdate.Key{Bucket: int(binary.BigEndian.Uint16(iter.Value()))}
		key.Tenant, key.ScheduleID, _ = splitName(iter.Key()[1:])
		keys = append(keys, key)
	}
	return keys, iter.Error()
}

// SetJob implements store.Jobs.
func (s *Store) SetJob(ctx context.Context, job store.Job) (done bool, err error) {
	err = s.underAll(ctx, 1, func(int) (int, int) { return job.Key.Bucket, 0 }, func(w *writer, _, _ int) error {
		old, there, err := s.job(job.Key)
		if err != nil || !there || old.EndedAt != 0 || old.Version+1 != job.Version {
			return err
		}
		w.batch.Set(jobKey(nil, job.Key), appendJob(nil, &job), nil)
		if job.EndedAt != 0 {
			w.batch.Delete(openJobKey(nil, job.Key.Tenant, job.Key.ScheduleID), nil)
			w.batch.Set(endedKey(nil, spaceEndedJob, job.EndedAt, job.Key), nil, nil)
		}
		done = true
		return nil
	})
	return done && err == nil, err
}

// expireJobs deletes the jobs that e selects.
func (s *Store) expireJobs(ctx context.Context, e *store.Expiry) error {
	old, err := s.endedBefore(spaceEndedJob, e, e.SettledBefore)
	if err != nil {
		return s.readError(err)
	}
	decide := func(w *writer, from, to int) error {
		for _, j := range old[from:to] {
			w.batch.Delete(jobKey(nil, j.key), nil)
			w.batch.Delete(endedKey(nil, spaceEndedJob, j.at, j.key), nil)
		}
		return nil
	}
	return s.underAll(ctx, len(old), func(i int) (int, int) { return old[i].key.Bucket, 0 }, decide)
}

// layoutJobError is the layout of a job whose filter has a LastError. Who does not know it must not take the job for
// one without.
const layoutJobError = 2

func appendJob(b []byte, j *store.Job) []byte {
	form := byte(layout)
	if j.Filter.LastError != "" {
		form = layoutJobError
	}
	b = append(b, form, byte(j.Kind))
	b = binary.AppendUvarint(b, j.Version)
	b = appendText(appendText(appendText(b, j.Filter.Label), string(j.Filter.Channel)), j.Filter.IDPrefix)
	if form == layoutJobError {
		b = appendText(b, j.Filter.LastError)
	}
	b = appendTimes(b, j.Filter.From, j.Filter.To, j.CreatedAt, j.EndedAt)
	b = binary.AppendVarint(binary.AppendVarint(b, j.Done), j.Failed)
	b = appendText(b, j.LastError)
	if j.After != nil {
		b = binary.AppendVarint(appendTimes(b, j.After.ExecutionTime), int64(j.After.Bucket))
		b = appendText(b, j.After.ScheduleID)
	}
	return b
}

func readJob(v []byte, key postdate.Key) (store.Job, error) {
	r := reader{rest: v}
	form := r.byte()
	j := store.Job{Key: key, Kind: store.JobKind(r.byte()), Version: r.uvarint()}
	j.Filter.Label, j.Filter.Channel, j.Filter.IDPrefix = r.text(), postdate.Channel(r.text()), r.text()
	if form == layoutJobError {
		j.Filter.LastError = r.text()
	}
	j.Filter.From, j.Filter.To, j.CreatedAt, j.EndedAt = r.time(), r.time(), r.time(), r.time()
	j.Done, j.Failed, j.LastError = r.varint(), r.varint(), r.text()
	if len(r.rest) > 0 {
		j.After = &store.ListPosition{ExecutionTime: r.time(), Bucket: int(r.varint()), ScheduleID: r.text()}
	}
	r.failed = r.failed || !j.Kind.Valid() || form != layout && (form != layoutJobError || j.Filter.LastError == "")
	return j, r.end()
}
