package pebble

import (
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// On a disk that is almost full, jobs that make room still begin.
func TestJobsOnAFullDisk(t *testing.T) {
	s := ownedBuckets(t, 1)
	s.full.Store(true)
	for kind, want := range map[store.JobKind]postdate.Kind{
		store.JobCancel: 0, store.JobPurge: 0, store.JobRedrive: postdate.KindFull,
	} {
		key := bucket.KeyOf(postdate.DefaultTenant, kind.String(), s.Buckets())
		err := s.CreateJob(t.Context(), store.Job{Key: key, Kind: kind})
		if want == 0 && err != nil || want != 0 && postdate.KindOf(err) != want {
			t.Errorf("a job that is to %s begins with %v", kind, err)
		}
	}
}
