package mongo

import (
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// A node of an earlier version, which would not go by the error, does not find a job whose filter has one.
func TestJobsByErrorAreHiddenFromEarlierVersions(t *testing.T) {
	s := openFresh(t)
	all := make([]int, s.c.Buckets)
	for b := range all {
		all[b] = b
	}
	byError := store.Job{Key: bucket.KeyOf("default", "by-error", s.c.Buckets), Kind: store.JobPurge, CreatedAt: 1,
		Filter: store.JobFilter{Channel: "inbox:a", LastError: "down"}}
	plain := byError
	plain.Key, plain.Filter.LastError = bucket.KeyOf("default", "plain", s.c.Buckets), ""
	for _, j := range []store.Job{byError, plain} {
		if err := s.CreateJob(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	want := func(version uint64) {
		t.Helper()
		seen, err := s.findJobs(t.Context(), doc("open", doc("$exists", true), "bucket", anyOf(all)), options.Find().SetHint(indexOpen))
		if err != nil || len(seen) != 1 || seen[0].job().Key != plain.Key {
			t.Errorf("an earlier version finds %+v, %v", seen, err)
		}
		open, err := s.OpenJobs(t.Context(), all)
		if err != nil || len(open) != 2 {
			t.Errorf("this version finds %+v, %v", open, err)
		}
		for _, j := range open {
			if j.Key == byError.Key && (j.Version != version || j.Filter != byError.Filter) {
				t.Errorf("the job is %+v", j)
			}
		}
	}
	want(1)
	next := byError
	next.Version, next.Done, next.After = 2, 5, &store.ListPosition{ExecutionTime: postdate.Time(7), Bucket: 1, ScheduleID: "m"}
	if done, err := s.SetJob(t.Context(), next); !done || err != nil {
		t.Fatal(done, err)
	}
	want(2)
}
