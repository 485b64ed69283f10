package mongo

import (
	"fmt"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// TestListOfFewAmongMany: a page ends after it has looked at so many messages, and the next one goes on.
func TestListOfFewAmongMany(t *testing.T) {
	s := openFresh(t)
	var all []any
	for i := range listExaminedMax + 10 {
		m := dueMessage(bucket.KeyOf("default", fmt.Sprintf("m%05d", i), s.c.Buckets))
		if i%listExaminedMax == 5 {
			m.Key = bucket.KeyOf("default", fmt.Sprint("task-", i), s.c.Buckets)
		}
		m.ExecutionTime += postdate.Time(i)
		st := postdate.NewState(&m, 1<<16)
		all = append(all, documentOf(&m, &st))
	}
	if _, err := s.messages.InsertMany(t.Context(), all); err != nil {
		t.Fatal(err)
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
