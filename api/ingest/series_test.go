package ingest

import (
	"context"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

func recurring(offset int64, payload, rule string) *Command {
	return record(offset, `{"scheduleId":"s","recurrence":`+rule+`,"payload":`+payload+`}`)
}

func (w *world) get(id string) postdate.Record {
	r, err := w.Get(context.Background(), w.taker.config.Intake.Key(id))
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// next settles the present occurrence of the series s, and returns its id.
func (w *world) next(how store.Settling) string { return w.nextOf("s", how) }

func (w *world) nextOf(id string, how store.Settling) string {
	rec := w.get(id)
	if w.token(rec.Bucket) == 0 {
		if _, err := w.Acquire(context.Background(), []store.Acquisition{{Bucket: rec.Bucket, Owner: "o", Lease: "l"}}); err != nil {
			w.Fatal(err)
		}
	}
	rule, _ := recurrence.Parse(*rec.Recurrence, rec.CreatedAt)
	at, _ := rule.Next(rec.Occurrence, rec.Run)
	err := w.Settle(context.Background(), []store.Settlement{{Key: rec.Key, ExecutionTime: rec.Occurrence, Version: rec.Version, Token: w.token(rec.Bucket), How: how,
		At: rec.Occurrence, AttemptTime: rec.Occurrence + 9_000_000, Attempts: 1, Occurrence: rec.Occurrence, Next: store.Next{Occurrence: at, AttemptTime: at}}})
	if err != nil {
		w.Fatal(err)
	}
	alone := rec.Alone(rec.Occurrence)
	return alone.ScheduleID
}

// Records schedule a series, replace it and cancel it, with what is left of its occurrences.
func TestSeriesFromRecords(t *testing.T) {
	w := newWorld(t)
	w.expect(w.take(recurring(1, "1", `{"every":"PT1H"}`), recurring(2, "1", `{"every":"PT1H"}`)), "done done")
	w.now += 5_400_000
	w.expect(w.take(recurring(3, "2", `{"every":"PT1H","jitter":"PT1H"}`)), "done") // counted from when the series was made
	rec := w.get("s")
	rule, _ := recurrence.Parse(*rec.Recurrence, now)
	if rec.CreatedAt != now || rec.First != now+7_200_000 || rec.ExecutionTime != rule.Due("s", rec.First) || string(rec.Payload) != "2" {
		t.Errorf("%+v", rec)
	}
	w.expect(w.take(recurring(4, "3", `{"every":"PT1H","end":"2027-01-15T09:40:00Z"}`)), "bad") // it has no occurrence left
	retried, other := w.next(store.SettleRetry), w.next(store.SettleRetry)
	tombstone := record(5, "")
	tombstone.Key = other
	w.expect(w.take(tombstone, record(6, ""), record(7, "")), "done done done")
	w.expect(w.stored(), retried+"=2/CANCELLED "+other+"=2/CANCELLED s=2/CANCELLED")
}

// A cancel that is too late for an occurrence is put aside, and says that the series ends with it.
func TestLateCancelOfASeries(t *testing.T) {
	w := newWorld(t)
	w.expect(w.take(recurring(1, "1", `{"every":"PT1H"}`)), "done")
	w.now += 3_600_000
	w.deliver() // the occurrence is claimed; this settlement is none of a series
	late := record(2, "")
	w.expect(w.take(late), "bad")
	if !strings.Contains(late.result.Reason, "the series ends with it") || !w.get("s").Ending {
		t.Errorf("%s: %+v", late.result.Reason, w.get("s").State)
	}
}

// A message id that is redelivered makes no second series while the first one goes on.
func TestSeriesThatIsRedelivered(t *testing.T) {
	w := newWorld(t)
	command := func() *Command {
		return &Command{Body: []byte(`{"recurrence":{"every":"PT1H","jitter":"PT1H"},"payload":1}`), MessageID: "s", Channel: "rabbitmq:q", Redelivered: true}
	}
	w.expect(w.take(command()), "done")
	w.next(store.SettleDelivered)
	w.now += 9_000_000
	w.expect(w.take(command()), "done")
	w.expect(w.stored(), "s=1/PENDING")
	w.Cancel(context.Background(), []postdate.Key{w.get("s").Key}, w.now)
	w.expect(w.take(command()), "done")
	w.expect(w.stored(), "new=1/PENDING/marked s=1/CANCELLED")
	for _, r := range w.Rows {
		if rule, _ := recurrence.Parse(*r.Recurrence, r.CreatedAt); r.ExecutionTime != rule.Due(r.ScheduleID, r.First) {
			t.Errorf("%s begins at %s", r.ScheduleID, r.ExecutionTime)
		}
	}
}
