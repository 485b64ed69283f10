package pebble

import (
	"context"
	"fmt"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// A page ends after it has looked at so many messages, and the next one goes on.
func TestListOfFewAmongMany(t *testing.T) {
	s := ownedBuckets(t, 4)
	var all []postdate.Message
	for i := range listExaminedMax + 10 {
		id := fmt.Sprintf("m%05d", i)
		if i%listExaminedMax == 5 {
			id = fmt.Sprint("task-", i)
		}
		all = append(all, postdate.Message{Key: bucket.KeyOf("default", id, s.Buckets()), Channel: "inbox:a",
			ExecutionTime: 1000 + postdate.Time(i)})
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	q := store.ListQuery{Tenant: "default", IDPrefix: "task-", Limit: 10}
	for _, want := range []string{"task-5", fmt.Sprint("task-", listExaminedMax+5)} {
		page, err := s.List(t.Context(), q)
		if err != nil || len(page.Records) != 1 || page.Records[0].ScheduleID != want {
			t.Fatalf("%+v, %v; want %s alone", page, err, want)
		}
		q.After = page.Next
	}
	if q.After != nil {
		t.Errorf("the list goes on after %+v", q.After)
	}
}

// What was not read in time is no damage.
func TestLooksThatEndEarly(t *testing.T) {
	s := ownedBuckets(t, 4)
	m := postdate.Message{Key: bucket.KeyOf("default", "m", s.Buckets()), Channel: "inbox:a", ExecutionTime: 1000}
	if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, listErr := s.List(ended, store.ListQuery{Tenant: "default", Limit: 1})
	_, pendingErr := s.Pending(ended, "default", 1000)
	for _, err := range []error{listErr, pendingErr} {
		if postdate.KindOf(err) != postdate.KindUnavailable {
			t.Errorf("it says %v", err)
		}
	}
}
