package pebble

import (
	"context"
	"errors"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// NoteRequest implements store.Requests.
func (s *Store) NoteRequest(ctx context.Context, key postdate.Key, request postdate.Digest,
	now postdate.Time) (postdate.Digest, error) {
	if err := s.admit(ctx); err != nil {
		return postdate.Digest{}, err
	}
	kept := request
	err := s.underAll(ctx, 1, func(int) (int, int) { return key.Bucket, 0 }, func(w *writer, _, _ int) error {
		v, closer, err := s.db.Get(requestKey(nil, key))
		if err == nil {
			defer closer.Close()
			kept, err = readRequest(v)
			return err
		}
		if !errors.Is(err, lsm.ErrNotFound) {
			return err
		}
		w.batch.Set(requestKey(nil, key), appendRequest(nil, request), nil)
		w.batch.Set(endedKey(nil, spaceNoted, now, key), nil, nil)
		return nil
	})
	return kept, err
}

// expireRequests deletes the requests that e selects.
func (s *Store) expireRequests(ctx context.Context, e *store.Expiry) (int, error) {
	old, err := s.endedBefore(spaceNoted, e, e.SettledBefore)
	if err != nil {
		return 0, s.readError(err)
	}
	decide := func(w *writer, from, to int) error {
		for _, r := range old[from:to] {
			w.batch.Delete(requestKey(nil, r.key), nil)
			w.batch.Delete(endedKey(nil, spaceNoted, r.at, r.key), nil)
		}
		return nil
	}
	return len(old), s.underAll(ctx, len(old), func(i int) (int, int) { return old[i].key.Bucket, 0 }, decide)
}

func appendRequest(b []byte, d postdate.Digest) []byte { return append(append(b, layout), d[:]...) }

func readRequest(v []byte) (d postdate.Digest, err error) {
	r := reader{rest: v}
	r.layout()
	copy(d[:], r.take(len(d)))
	return d, r.end()
}
