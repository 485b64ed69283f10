package storetest

import (
	"context"
	"runtime"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in how it keeps jobs.
type (
	jobsBeginAnew     struct{ *Mem }
	jobsMixTenants    struct{ *Mem }
	jobsOverwrite     struct{ *Mem }
	jobsRace          struct{ *Mem }
	jobsReopen        struct{ *Mem }
	jobsAreUnbounded  struct{ *Mem }
	jobsCountEnded    struct{ *Mem }
	jobsCountOthers   struct{ *Mem }
	jobsCountAgain    struct{ *Mem }
	jobsOpenElsewhere struct{ *Mem }
	jobsStayOpen      struct{ *Mem }
	jobsForgetAfter   struct{ *Mem }
	jobsForgetTo      struct{ *Mem }
	jobsForgetError   struct{ *Mem }
	jobsStay          struct{ *Mem }
	jobsGoEarly       struct{ *Mem }
	jobsGoEverywhere  struct{ *Mem }
	jobsGoOpen        struct{ *Mem }
)

func (s jobsBeginAnew) CreateJob(ctx context.Context, job store.Job) error {
	s.mu.Lock()
	delete(s.jobs, job.Key)
	s.mu.Unlock()
	return s.Mem.CreateJob(ctx, job)
}

func (s jobsMixTenants) Job(_ context.Context, key postdate.Key) (store.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.jobs {
		if j.Key.ScheduleID == key.ScheduleID {
			return j, nil
		}
	}
	return store.Job{}, store.ErrNoJob(key)
}

func (s jobsOverwrite) SetJob(ctx context.Context, job store.Job) (bool, error) {
	done, err := s.Mem.SetJob(ctx, job)
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.jobs[job.Key]; there {
		s.jobs[job.Key] = job
	}
	return done, err
}

func (s jobsRace) SetJob(ctx context.Context, job store.Job) (bool, error) {
	if was, err := s.Job(ctx, job.Key); err != nil || was.EndedAt != 0 || was.Version+1 != job.Version {
		return false, nil
	}
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.Key] = job
	return true, nil
}

func (s jobsReopen) SetJob(ctx context.Context, job store.Job) (bool, error) {
	s.mu.Lock()
	if old, there := s.jobs[job.Key]; there {
		old.EndedAt = 0
		s.jobs[job.Key] = old
	}
	s.mu.Unlock()
	return s.Mem.SetJob(ctx, job)
}

// createJob creates a job if those that count are fewer than the limit.
func (m *Mem) createJob(job store.Job, counts func(j *store.Job) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, j := range m.jobs {
		if counts(&j) {
			n++
		}
	}
	if n >= postdate.JobsMax {
		return store.ErrTooManyJobs()
	}
	if _, there := m.jobs[job.Key]; !there {
		m.jobs[job.Key] = job
	}
	return nil
}

func (s jobsAreUnbounded) CreateJob(_ context.Context, job store.Job) error {
	return s.createJob(job, func(*store.Job) bool { return false })
}

func (s jobsCountEnded) CreateJob(_ context.Context, job store.Job) error {
	return s.createJob(job, func(j *store.Job) bool { return j.Key.Tenant == job.Key.Tenant && j.Key != job.Key })
}

func (s jobsCountOthers) CreateJob(_ context.Context, job store.Job) error {
	return s.createJob(job, func(j *store.Job) bool { return j.EndedAt == 0 && j.Key != job.Key })
}

func (s jobsCountAgain) CreateJob(_ context.Context, job store.Job) error {
	return s.createJob(job, func(j *store.Job) bool { return j.Key.Tenant == job.Key.Tenant && j.EndedAt == 0 })
}

func (s jobsOpenElsewhere) OpenJobs(ctx context.Context, _ []int) ([]store.Job, error) {
	return s.Mem.OpenJobs(ctx, s.everywhere(store.Expiry{}).Buckets)
}

func (s jobsStayOpen) OpenJobs(ctx context.Context, buckets []int) ([]store.Job, error) {
	open, err := s.Mem.OpenJobs(ctx, buckets)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range buckets {
		for _, j := range s.jobs {
			if j.EndedAt != 0 && j.Key.Bucket == b {
				open = append(open, j)
			}
		}
	}
	return open, err
}

func (s jobsForgetAfter) SetJob(ctx context.Context, job store.Job) (bool, error) {
	job.After = nil
	return s.Mem.SetJob(ctx, job)
}

func (s jobsForgetTo) CreateJob(ctx context.Context, job store.Job) error {
	job.Filter.To = 0
	return s.Mem.CreateJob(ctx, job)
}

func (s jobsForgetError) CreateJob(ctx context.Context, job store.Job) error {
	job.Filter.LastError = ""
	return s.Mem.CreateJob(ctx, job)
}

// expireJobsBy expires what e selects beside jobs, and of these what forget deletes.
func (m *Mem) expireJobsBy(e store.Expiry, forget func()) (int, error) {
	m.mu.Lock()
	kept := m.jobs
	m.jobs = nil
	m.mu.Unlock()
	old, others := m.Expired(e)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.jobs = kept
	forget()
	return len(old) + others, nil
}

func (s jobsStay) Expire(_ context.Context, e store.Expiry) (int, error) {
	return s.expireJobsBy(e, func() {})
}

func (s jobsGoEarly) Expire(_ context.Context, e store.Expiry) (int, error) {
	early := e
	early.SettledBefore++
	return s.expireJobsBy(e, func() { s.expireJobs(&early) })
}

func (s jobsGoEverywhere) Expire(_ context.Context, e store.Expiry) (int, error) {
	all := s.everywhere(e)
	return s.expireJobsBy(e, func() { s.expireJobs(&all) })
}

func (s jobsGoOpen) Expire(_ context.Context, e store.Expiry) (int, error) {
	return s.expireJobsBy(e, func() {
		s.expireJobs(&e)
		for key, j := range s.jobs {
			if j.CreatedAt < e.SettledBefore && j.EndedAt == 0 {
				delete(s.jobs, key)
			}
		}
	})
}
