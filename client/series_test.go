package client_test

import (
	"context"
	"net"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// emptyInbox is never read.
type emptyInbox struct{}

func (emptyInbox) Read(context.Context, store.InboxRead) ([]store.InboxMessage, string, error) {
	return nil, "", nil
}

// model serves the API over a store in memory, in which a test can write.
func model(t *testing.T) (*storetest.Mem, string) {
	mem := storetest.NewMem(4)
	s, err := api.New(api.Config{Buckets: 4, Messages: mem, Inbox: emptyInbox{}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-served
	})
	return mem, l.Addr().String()
}

// withHistory gives the series a a history, of which an occurrence is tried again.
func withHistory(mem *storetest.Mem) {
	r := mem.Rows[bucket.KeyOf(postdate.DefaultTenant, "a", mem.Buckets())]
	next, alone := r.Record, r.Alone(r.Occurrence)
	next.Series = next.Series.Add(postdate.Outcome{Occurrence: r.First - 3, At: r.First, Skipped: 2})
	next.Series = next.Series.Add(postdate.Outcome{Occurrence: r.First, At: r.First, Status: postdate.Pending, Attempts: 1})
	mem.Put("test", r, next, nil)
	state := postdate.NewState(&alone, r.Version)
	state.Attempts = 5
	mem.Put("test", nil, postdate.Record{Message: alone, State: state}, nil)
}

// TestSeries schedules rules with all fields set, in each way, and reads them back.
func TestSeries(t *testing.T) {
	mem, address := model(t)
	c, ctx := open(t, client.Config{Servers: []string{address}}), patient(t)
	at := time.Date(2037, 1, 31, 9, 30, 0, 250e6, time.UTC)
	rules := []client.Recurrence{
		{Every: 25*time.Hour + 30*time.Minute + 100*time.Millisecond, Anchor: at, Start: at, End: at.AddDate(1, 0, 0), MaxRuns: 7, Jitter: time.Minute,
			Misfire: "fire_all", MisfireAfter: 90 * time.Second},
		{Cron: "0 9 * * MON", Timezone: "Europe/Berlin", Misfire: "skip", Gap: "skip", Overlap: "both"},
		{Every: 100 * time.Millisecond},
	}
	ids := []string{"a", "b", "c"}
	message := func(n int) client.Message {
		return client.Message{ScheduleID: ids[n], Channel: "inbox:x", Payload: []byte("1"), Recurrence: &rules[n]}
	}
	first, err := c.Schedule(ctx, message(0))
	if err != nil || !first.Created || !first.ExecutionTime.Equal(at) {
		t.Fatal(first, err)
	}
	if _, err := c.Put(ctx, message(1)); err != nil {
		t.Fatal(err)
	}
	if all, err := c.ScheduleAll(ctx, []client.Message{message(0), message(2)}); err != nil || all[0].Created || !all[0].ExecutionTime.Equal(at) || !all[1].Created {
		t.Fatal(all, err)
	}
	for n, id := range ids {
		r, err := c.Get(ctx, id)
		if err != nil || !reflect.DeepEqual(r.Recurrence, &rules[n]) || r.Series == nil || !r.Series.Next.Equal(r.ExecutionTime) {
			t.Errorf("%s: %+v %+v %v\nwant %+v", id, r.Recurrence, r.Series, err, rules[n])
		}
	}
	if _, err := c.Patch(ctx, "a", client.Change{Delay: time.Hour}); client.TypeOf(err) != client.NotSupported {
		t.Errorf("patch: %v", err)
	}
	withHistory(mem)
	want := client.Series{Last: at, Next: at, Fired: 1, Skipped: 2, History: []client.Outcome{
		{ExecutionTime: at.Add(-3 * time.Millisecond), Status: client.Skipped, At: at, Skipped: 2},
		{ExecutionTime: at, Status: client.Pending, At: at, Attempts: 5},
	}}
	if r, err := c.Get(ctx, "a"); err != nil || !reflect.DeepEqual(*r.Series, want) {
		t.Errorf("%+v %v\nwant %+v", r.Series, err, want)
	}
	alone := "a/2037-01-31T09:30:00.250Z"
	if r, err := c.Get(ctx, alone); err != nil || r.ScheduleID != alone || r.Series != nil || r.Recurrence != nil || r.Attempts != 5 {
		t.Errorf("%+v %v", r, err)
	}
	if err := c.Cancel(ctx, alone); err != nil {
		t.Error(err)
	}
	if err := c.Cancel(ctx, "a"); err != nil {
		t.Error(err)
	}
	if r, err := c.Get(ctx, "a"); err != nil || r.Status != client.Cancelled || !r.Series.Next.IsZero() || r.Series.History[1].Status != client.Cancelled {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := c.Put(ctx, client.Message{ScheduleID: alone, Channel: "inbox:x", Payload: []byte("1"), Recurrence: &rules[2]}); client.TypeOf(err) != client.InvalidField {
		t.Errorf("an occurrence is put: %v", err)
	}
}
