package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// CreateJob implements store.Jobs.
func (m *Mem) CreateJob(_ context.Context, job store.Job) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.jobs[job.Key]; there {
		return nil
	}
	open := 0
	for _, j := range m.jobs {
		if j.Key.Tenant == job.Key.Tenant && j.EndedAt == 0 {
			open++
		}
	}
	if open >= postdate.JobsMax {
		return store.ErrTooManyJobs()
	}
	job.Version = 1
	m.jobs[job.Key] = job
	return nil
}

// Job implements store.Jobs.
func (m *Mem) Job(_ context.Context, key postdate.Key) (store.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j, there := m.jobs[key]; there {
		return j, nil
	}
	return store.Job{}, store.ErrNoJob(key)
}

// OpenJobs implements store.Jobs.
func (m *Mem) OpenJobs(_ context.Context, buckets []int) (open []store.Job, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if j.EndedAt == 0 && slices.Contains(buckets, j.Key.Bucket) {
			open = append(open, j)
		}
	}
	return open, nil
}

// SetJob implements store.Jobs.
func (m *Mem) SetJob(_ context.Context, job store.Job) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, there := m.jobs[job.Key]
	if !there || old.EndedAt != 0 || old.Version+1 != job.Version {
		return false, nil
	}
	m.jobs[job.Key] = job
	return true, nil
}

// expireJobs deletes those that e selects.
func (m *Mem) expireJobs(e *store.Expiry) {
	deleted := 0
	for key, j := range m.jobs {
		if deleted < e.Limit && j.EndedAt != 0 && j.EndedAt < e.SettledBefore &&
			slices.Contains(e.Buckets, key.Bucket) {
			delete(m.jobs, key)
			deleted++
		}
	}
}
