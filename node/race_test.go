package node_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
)

// The races aim changes at messages from a while before their time to a little after it.
const (
	racers    = 32
	raceCount = 4000
	raceSpan  = 8 * time.Second // over which the messages are due
	aimBefore = 200 * time.Millisecond
	aimAfter  = 50 * time.Millisecond
)

// racing is a message and the time at which to change it.
type racing struct {
	id       string
	due, aim time.Time
	luck     time.Duration // up to a second; decides the change
}

// scheduleRace schedules the messages in batches, due in order.
func scheduleRace(t *testing.T, c *nodetest.Client, ledger *account.Ledger) []racing {
	t.Helper()
	const batch = 500
	random := testrun.Random(t)
	begin := time.Now().Add(3 * time.Second)
	all := make([]racing, raceCount)
	for from := 0; from < len(all); from += batch {
		ms := make([]client.Message, batch)
		for i := range ms {
			due := begin.Add(time.Duration(from+i) * raceSpan / raceCount).Truncate(time.Millisecond)
			aim := due.Add(-aimBefore + time.Duration(random.Int64N(int64(aimBefore+aimAfter))))
			r := racing{id: fmt.Sprintf("race-%d", from+i), due: due, aim: aim, luck: time.Duration(random.Int64N(int64(time.Second)))}
			all[from+i] = r
			ledger.Sent(r.id, "inbox:race", due)
			ms[i] = client.Message{ScheduleID: r.id, Channel: "inbox:race", ExecutionTime: due, Payload: []byte(`"old"`)}
		}
		results, err := c.ScheduleAll(t.Context(), ms)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range results {
			if r.Status != "PENDING" {
				t.Fatalf("scheduling: %+v", r)
			}
			ledger.Scheduled(r.ScheduleID, account.Done, time.Now())
		}
	}
	return all
}

// race calls change for each message at its moment, or as soon after it as a racer is free.
func race(all []racing, change func(racing)) {
	all = slices.SortedFunc(slices.Values(all), func(a, b racing) int { return a.aim.Compare(b.aim) })
	var next atomic.Int64
	var group sync.WaitGroup
	for range racers {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				<-time.After(time.Until(all[i].aim))
				change(all[i])
			}
		})
	}
	group.Wait()
}

// A cancel answered with 200 is never followed by a delivery, and one that came too late
// changes nothing, however close to the due time they are.
func TestCancelRacesDelivery(t *testing.T) {
	_, api := start(t, config(t))
	ledger := nodetest.NewLedger()
	all := scheduleRace(t, api, ledger)
	end := follow(t, api, "race", nodetest.Into(ledger))
	var cancelled, tooLate atomic.Int64
	race(all, func(r racing) {
		err := api.Cancel(t.Context(), r.id)
		var p *client.Problem
		switch {
		case err == nil:
			cancelled.Add(1)
			ledger.Cancelled(r.id, account.Done)
		case errors.As(err, &p) && p.Type == client.TooLate && (p.MessageStatus == client.Pending || p.MessageStatus == client.Delivered):
			tooLate.Add(1)
		default:
			t.Errorf("%s: %v", r.id, err)
		}
	})
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	end()
	stored := shown(t, api)
	for id, m := range stored {
		ledger.Stored(id, string(m.Status))
	}
	ledger.Audited()
	nodetest.Settle(t, ledger)
	if cancelled.Load() == 0 || tooLate.Load() == 0 {
		t.Errorf("%d cancels were in time and %d too late: the race was none", cancelled.Load(), tooLate.Load())
	}
	if err := api.Cancel(t.Context(), "race-never"); client.TypeOf(err) != client.NotFound {
		t.Errorf("an id that was never scheduled: %v", err)
	}
	again(t, api, stored, all)
}

// again repeats a few cancels: cancelled messages answer 200 for ever, delivered ones 409.
func again(t *testing.T, api *nodetest.Client, stored map[string]client.Record, all []racing) {
	t.Helper()
	for _, r := range all[:100] {
		want := client.TooLate
		if stored[r.id].Status == client.Cancelled {
			want = ""
		}
		if err := api.Cancel(t.Context(), r.id); client.TypeOf(err) != want || want == "" && err != nil {
			t.Errorf("%s again: %v; want %q", r.id, err, want)
		}
	}
}

// shown lists every message by its id.
func shown(t *testing.T, api *nodetest.Client) map[string]client.Record {
	t.Helper()
	all := map[string]client.Record{}
	for m, err := range api.List(t.Context(), client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, twice := all[m.ScheduleID]; twice {
			t.Errorf("the list shows %s twice", m.ScheduleID)
		}
		all[m.ScheduleID] = m
	}
	return all
}

// A reschedule answered with 200 is never followed by a delivery of the old version, or by one
// before the new time.
func TestPatchRacesDelivery(t *testing.T) {
	_, api := start(t, config(t))
	ledger := nodetest.NewLedger()
	all := scheduleRace(t, api, ledger)
	var mu sync.Mutex
	changed, tooLate := map[string]bool{}, 0
	arrived, note := map[string]string{}, nodetest.Into(ledger)
	end := follow(t, api, "race", func(a nodetest.Arrival) {
		note(a)
		arrived[a.ScheduleID] = string(a.Payload)
	})
	race(all, func(r racing) {
		later := r.due.Add(r.luck).Truncate(time.Millisecond)
		_, err := api.Patch(t.Context(), r.id, client.Change{ExecutionTime: later, Payload: []byte(`"new"`)})
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			changed[r.id] = true
			ledger.Moved(r.id, later, account.Done)
		case client.TypeOf(err) == client.TooLate:
			tooLate++
		default:
			t.Errorf("%s: %v", r.id, err)
		}
	})
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	end()
	t.Logf("%d rescheduled, %d too late", len(changed), tooLate)
	if len(changed) == 0 || tooLate == 0 {
		t.Error("the race was none")
	}
	nodetest.Settle(t, ledger)
	for _, r := range all {
		want := `"old"`
		if changed[r.id] {
			want = `"new"`
		}
		if got := arrived[r.id]; got != want {
			t.Errorf("%s: %s carries %s, want %s", testrun.Broken, r.id, got, want)
		}
	}
}
