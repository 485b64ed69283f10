package storetest

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in how it keeps requests.
type (
	requestsOverwrite     struct{ *Mem }
	requestsIgnoreTenants struct{ *Mem }
	requestsStay          struct{ *Mem }
	requestsGoEverywhere  struct{ *Mem }
	requestsGoEarly       struct{ *Mem }
	requestsRace          struct{ *Mem }
)

func (s requestsOverwrite) NoteRequest(ctx context.Context, key postdate.Key, request postdate.Digest,
	now postdate.Time) (postdate.Digest, error) {
	was, err := s.Mem.NoteRequest(ctx, key, request, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests[key] = memRequest{request, now}
	return was, err
}

func (s requestsIgnoreTenants) NoteRequest(ctx context.Context, key postdate.Key, request postdate.Digest,
	now postdate.Time) (postdate.Digest, error) {
	key = bucket.KeyOf("", key.ScheduleID, s.Buckets())
	return s.Mem.NoteRequest(ctx, key, request, now)
}

func (s requestsRace) NoteRequest(ctx context.Context, key postdate.Key, request postdate.Digest,
	now postdate.Time) (postdate.Digest, error) {
	_, err := s.Mem.NoteRequest(ctx, key, request, now)
	return request, err
}

func (s requestsStay) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	kept := s.requests
	s.requests = nil
	s.mu.Unlock()
	n, err := s.Mem.Expire(ctx, e)
	s.mu.Lock()
	s.requests = kept
	s.mu.Unlock()
	return n, err
}

func (s requestsGoEverywhere) Expire(ctx context.Context, e store.Expiry) (int, error) {
	everywhere := e
	for b := range s.Buckets() {
		everywhere.Buckets = append(everywhere.Buckets, b)
	}
	s.mu.Lock()
	s.expireRequests(&everywhere)
	s.mu.Unlock()
	return s.Mem.Expire(ctx, e)
}

func (s requestsGoEarly) Expire(ctx context.Context, e store.Expiry) (int, error) {
	early := e
	early.SettledBefore++
	s.mu.Lock()
	s.expireRequests(&early)
	s.mu.Unlock()
	return s.Mem.Expire(ctx, e)
}
