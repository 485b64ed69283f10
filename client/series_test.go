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
	"github.com/postdate/postdate/store/storetest"
)

// emptyInbox is never read.
type emptyInbox struct{ api.Inbox }

// model serves the API over a store in memory, in which a test can write.
func model(t *testing.T) (*storetest.Mem, string) {
	mem := storetest.NewMem(4)
	s, err := api.New(api.Config{Buckets: 4, Messages: mem, Requests: mem, Inbox: emptyInbox{}})
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
	if _, err := c.Patch(ctx, "a", client.Change{Delay: time.Hour}); client.TypeOf(err) != client.InvalidField {
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

// TestChangeASeries changes each field of a series, and all fields of its rule.
func TestChangeASeries(t *testing.T) {
	_, address := model(t)
	c, ctx := open(t, client.Config{Servers: []string{address}}), patient(t)
	at := time.Date(2037, 1, 31, 9, 30, 0, 250e6, time.UTC)
	full := client.Recurrence{Every: time.Hour, Anchor: at, Start: at, End: at.AddDate(1, 0, 0), MaxRuns: 7, Jitter: time.Minute, Misfire: "fire_all", MisfireAfter: 90 * time.Second}
	if _, err := c.Put(ctx, client.Message{ScheduleID: "a", Channel: "inbox:x", Payload: []byte("1"), Recurrence: &full}); err != nil {
		t.Fatal(err)
	}
	read := func() client.Record {
		t.Helper()
		r, err := c.Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	versions := map[string]bool{}
	for n, rule := range []client.Recurrence{
		{Cron: "0 9 * * MON", Timezone: "Europe/Berlin", Misfire: "skip", Gap: "skip", Overlap: "both"}, full, {Cron: "@daily", Timezone: "UTC", Start: at}, {Every: time.Minute},
	} {
		if s, err := c.Patch(ctx, "a", client.Change{Recurrence: &rule}); err != nil || s.Status != client.Pending || s.Created {
			t.Fatalf("%+v: %+v %v", rule, s, err)
		}
		r := read()
		if !reflect.DeepEqual(r.Recurrence, &rule) || r.Series.Next.IsZero() || versions[r.Version] {
			t.Errorf("%d: %+v %+v of version %s, want %+v", n, r.Recurrence, r.Series, r.Version, rule)
		}
		versions[r.Version] = true
	}
	paused := true
	if _, err := c.Patch(ctx, "a", client.Change{Channel: "inbox:y", Payload: []byte("two"), ContentType: "text/plain", Paused: &paused}); err != nil {
		t.Fatal(err)
	}
	if r := read(); r.Channel != "inbox:y" || string(r.Payload) != "two" || r.Recurrence.Every != time.Minute || !r.Series.Paused || !r.Series.Next.IsZero() {
		t.Errorf("%+v %+v", r, r.Series)
	}
	if err := c.ResumeSeries(ctx, "a"); err != nil || read().Series.Paused {
		t.Errorf("%v", err)
	}
	if err := c.PauseSeries(ctx, "a"); err != nil || !read().Series.Paused {
		t.Errorf("%v", err)
	}
	if _, err := c.Patch(ctx, "a", client.Change{Recurrence: &client.Recurrence{}}); client.TypeOf(err) != client.InvalidField {
		t.Errorf("a rule of nothing: %v", err)
	}
}

// TestTrigger begins occurrences out of turn, and reads and cancels them.
func TestTrigger(t *testing.T) {
	_, address := model(t)
	c, ctx := open(t, client.Config{Servers: []string{address}}), patient(t)
	if _, err := c.Put(ctx, client.Message{ScheduleID: "a", Channel: "inbox:x", Payload: []byte("1"), Recurrence: &client.Recurrence{Every: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	one, err := c.Trigger(ctx, "a")
	if err != nil || !one.Created || one.Status != client.Pending || one.ScheduleID != "a/"+one.ExecutionTime.Format("2006-01-02T15:04:05.000Z") || time.Since(one.ExecutionTime).Abs() > time.Minute {
		t.Fatalf("%+v %v", one, err)
	}
	if other, err := c.Trigger(ctx, "a"); err != nil || other.ScheduleID == one.ScheduleID {
		t.Errorf("%+v %v, before %+v", other, err, one)
	}
	if r, err := c.Get(ctx, one.ScheduleID); err != nil || string(r.Payload) != "1" || r.Series != nil {
		t.Errorf("%+v %v", r, err)
	}
	if err := c.Cancel(ctx, one.ScheduleID); err != nil {
		t.Error(err)
	}
	if r, err := c.Get(ctx, "a"); err != nil || r.Series.Fired != 2 || r.Series.History[0].Status != client.Cancelled || r.Series.History[1].Status != client.Pending {
		t.Errorf("%+v %v", r.Series, err)
	}
	if _, err := c.Trigger(ctx, one.ScheduleID); client.TypeOf(err) != client.InvalidField {
		t.Errorf("of an occurrence: %v", err)
	}
}

// TestIfVersion: a change of what somebody else has changed is refused.
func TestIfVersion(t *testing.T) {
	_, address := model(t)
	c, ctx := open(t, client.Config{Servers: []string{address}}), patient(t)
	m := client.Message{ScheduleID: "a", Channel: "inbox:x", Payload: []byte("1"), Recurrence: &client.Recurrence{Every: time.Hour}, Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
	if _, err := c.Put(ctx, m, "1"); client.TypeOf(err) != client.PreconditionFailed {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := c.Put(ctx, m); err != nil {
		t.Fatal(err)
	}
	old, err := c.Get(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(...client.IfVersion) error{
		"put": func(is ...client.IfVersion) error {
			m.Payload = append(m.Payload, '1')
			_, err := c.Put(ctx, m, is...)
			return err
		},
		"patch": func(is ...client.IfVersion) error {
			_, err := c.Patch(ctx, "a", client.Change{Payload: []byte("2")}, is...)
			return err
		},
		"trigger": func(is ...client.IfVersion) error { _, err := c.Trigger(ctx, "a", is...); return err },
	}
	if err := c.PauseSeries(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls {
		for _, is := range [][]client.IfVersion{{client.IfVersion(old.Version)}, {""}, {"1", "2"}} {
			if err := call(is...); client.TypeOf(err) != client.PreconditionFailed || client.MayBeDone(err) {
				t.Errorf("%s of %q: %v", name, is, err)
			}
		}
		now, err := c.Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		if err := call("1", client.IfVersion(now.Version)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
