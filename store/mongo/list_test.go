package mongo

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
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

// TestListWhileOthersGo: what is deleted after a page was read does not move its end past messages that the page
// has not looked at.
func TestListWhileOthersGo(t *testing.T) {
	const others, first = listExaminedMax + 300, postdate.Time(1_900_000_000_000)
	c := DefaultConfig(mongotest.Fresh(t))
	aggregates, gone := 0, false
	var s *Store
	s, err := OpenWatched(t.Context(), c, &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if hint, _ := e.Command.Lookup("hint").StringValueOK(); hint != indexList {
			return
		}
		if aggregates++; aggregates != 2 {
			return
		}
		r, err := s.messages.DeleteMany(context.Background(), doc("executionTime", doc("$lt", bson.DateTime(first+500))))
		if gone = err == nil && r.DeletedCount == 500; !gone {
			t.Errorf("%+v, %v", r, err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all []any
	for i := range others + 3 {
		m := dueMessage(bucket.KeyOf("default", fmt.Sprint("m", i), s.c.Buckets))
		if i >= others {
			m.Key = bucket.KeyOf("default", fmt.Sprint("task-", i), s.c.Buckets)
		}
		m.ExecutionTime = first + postdate.Time(i)
		st := postdate.NewState(&m, 1<<16)
		all = append(all, documentOf(&m, &st))
	}
	if _, err := s.messages.InsertMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	q, found := store.ListQuery{Tenant: "default", IDPrefix: "task-", Limit: 1000}, 0
	for {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		found += len(page.Records)
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	if !gone || found != 3 {
		t.Errorf("%d messages are listed, want 3 (others went meanwhile: %v)", found, gone)
	}
}

// TestListOfStates: it leaves out payloads, and ends where its page does.
func TestListOfStates(t *testing.T) {
	s := openFresh(t)
	m := dueMessage(bucket.KeyOf("default", "a", s.c.Buckets))
	m.Payload = make([]byte, payloadInlineMax+1)
	st := postdate.NewState(&m, 1<<16)
	if _, err := s.messages.InsertOne(t.Context(), documentOf(&m, &st)); err != nil {
		t.Fatal(err)
	}
	for _, q := range []store.ListQuery{{}, {Status: postdate.Pending}, {Status: postdate.Cancelled}} {
		q.Tenant, q.Limit, q.StatesOnly = "default", 10, true
		page, err := s.List(t.Context(), q)
		want := 1
		if q.Status == postdate.Cancelled {
			want = 0
		}
		if err != nil || len(page.Records) != want || want == 1 && page.Records[0].Payload != nil || page.Next != nil {
			t.Errorf("%+v: %+v, %v", q, page, err)
		}
	}
}
