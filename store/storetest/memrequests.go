package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// memRequest is what an idempotency key stands for.
type memRequest struct {
	digest postdate.Digest
	noted  postdate.Time
}

// NoteRequest implements store.Requests.
func (m *Mem) NoteRequest(_ context.Context, key postdate.Key, request postdate.Digest,
	now postdate.Time) (postdate.Digest, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, there := m.requests[key]; there {
		return r.digest, nil
	}
	m.requests[key] = memRequest{request, now}
	return request, nil
}

// expireRequests deletes those that e selects, and returns how many.
func (m *Mem) expireRequests(e *store.Expiry) (deleted int) {
	for key, r := range m.requests {
		if deleted < e.Limit && r.noted < e.SettledBefore && slices.Contains(e.Buckets, key.Bucket) {
			delete(m.requests, key)
			deleted++
		}
	}
	return deleted
}
