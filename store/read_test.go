package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/postdate/postdate"
)

// slow is a store whose reads wait.
type slow struct {
	Messages
	answer  chan struct{}
	waiting *atomic.Int32
}

func (s slow) Get(_ context.Context, key postdate.Key) (postdate.Record, error) {
	s.waiting.Add(1)
	<-s.answer
	s.waiting.Add(-1)
	if key.ScheduleID == "7" {
		return postdate.Record{}, ErrNotFound(key)
	}
	return postdate.Record{Message: postdate.Message{Key: key}}, nil
}

// Messages are read side by side, but not all at once, and each result goes to its place.
func TestReadEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := slow{answer: make(chan struct{}), waiting: &atomic.Int32{}}
		var keys []postdate.Key
		for i := range 3 * readsMax {
			keys = append(keys, postdate.Key{Tenant: "a", ScheduleID: fmt.Sprint(i)})
		}
		got, errs := make([]string, len(keys)), make([]error, len(keys))
		over := make(chan struct{})
		go func() {
			ReadEach(t.Context(), s, keys, func(i int, r *postdate.Record, err error) {
				got[i], errs[i] = r.ScheduleID, err
			})
			close(over)
		}()
		for range 3 {
			synctest.Wait()
			if n := s.waiting.Load(); n != readsMax {
				t.Fatalf("%d are read at a time, want %d", n, readsMax)
			}
			for range readsMax {
				s.answer <- struct{}{}
			}
		}
		<-over
		for i, key := range keys {
			if i == 7 && postdate.KindOf(errs[i]) != postdate.KindNotFound || i != 7 && (errs[i] != nil || got[i] != key.ScheduleID) {
				t.Errorf("the result of %s is %q, %v", key.ScheduleID, got[i], errs[i])
			}
		}
	})
}
