package mongo

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// oneSeries is a series, and a settlement of its first occurrence that makes that a message of its own.
func oneSeries(t *testing.T, s *Store) (m postdate.Message, detach store.Settlement) {
	t.Helper()
	m = postdate.Message{Key: bucket.KeyOf("default", "a", s.c.Buckets), Channel: "inbox:a", ExecutionTime: 1000, First: 1000,
		Recurrence: &postdate.Recurrence{Every: time.Second}, Payload: []byte("{}")}
	m.Digest = postdate.DigestOf(&m, "")
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil || !r.Created {
		t.Fatalf("Insert: %+v", r)
	}
	if r, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: m.Bucket, Owner: "n", Lease: "l"}}); err != nil || !r[0].OK {
		t.Fatalf("Acquire: %+v, %v", r, err)
	}
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil {
		t.Fatal(err)
	}
	return m, store.Settlement{Key: m.Key, ExecutionTime: 1000, Version: rec.Version, Token: 1, How: store.SettleRetry, At: 1001,
		AttemptTime: 1500, Attempts: 1, Occurrence: 1000, Next: store.Next{Occurrence: 2000, AttemptTime: 2000}}
}

// failing is the settlement of that message, which fails.
func failing(m *postdate.Message, detach *store.Settlement) store.Settlement {
	return store.Settlement{Key: m.Alone(m.First).Key, ExecutionTime: 1000, Version: detach.Version, Token: 1, How: store.SettleFailed,
		At: 1600, Attempts: 2}
}

// wantDetached wants the series at its second occurrence and the first one beside it.
func wantDetached(t *testing.T, s *Store, m *postdate.Message, alone postdate.Key, status postdate.Status, failed int64) {
	t.Helper()
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil || rec.Occurrence != 2000 || rec.Run != 2 || rec.Series.Fired != 1 || len(rec.Series.History) != 1 ||
		rec.Series.Failed != failed {
		t.Errorf("the series: %+v, %v", rec, err)
	}
	if rec, err := s.Get(t.Context(), alone); err != nil || rec.Status != status || rec.Recurrence != nil {
		t.Errorf("its first occurrence: %+v, %v", rec, err)
	}
}

// TestSeriesSettledAfterInterruptions interrupts settlements that change two messages at each of their
// commands, and repeats them: that neither loses nor doubles anything.
func TestSeriesSettledAfterInterruptions(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		t.Run(fmt.Sprint("behind a mongos: ", sharded), func(t *testing.T) {
			for left := 0; left < 12; left++ {
				uri := mongotest.Fresh(t)
				if sharded {
					uri = routertest.Start(t, uri).URI()
				}
				var count atomic.Int64
				var stop atomic.Pointer[context.CancelFunc]
				c := DefaultConfig(uri)
				c.Buckets = 8
				s, err := OpenWatched(t.Context(), c, &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
					if cancel := stop.Load(); cancel != nil && e.CommandName != "abortTransaction" && count.Add(-1) == -1 {
						(*cancel)()
					}
				}})
				if err != nil {
					t.Fatal(err)
				}
				m, detach := oneSeries(t, s)
				fail := failing(&m, &detach)
				for _, p := range []store.Settlement{detach, fail} {
					ctx, cancel := context.WithCancel(t.Context())
					count.Store(int64(left))
					stop.Store(&cancel)
					err := s.Settle(ctx, []store.Settlement{p})
					stop.Store(nil)
					cancel()
					if err == nil {
						continue
					}
					for range 2 {
						if err := s.Settle(t.Context(), []store.Settlement{p}); err != nil {
							t.Fatal(err)
						}
					}
				}
				wantDetached(t, s, &m, fail.Key, postdate.DeliveryFailed, 1)
				s.Close()
			}
		})
	}
}

// TestSeriesSettledWithoutAnAnswer loses the answer to a commit that the server has carried out.
func TestSeriesSettledWithoutAnAnswer(t *testing.T) {
	uri := mongotest.Fresh(t)
	s, p := through(t, uri)
	m, detach := oneSeries(t, s)
	p.armed.Store(true)
	if err := s.Settle(t.Context(), []store.Settlement{detach}); postdate.KindOf(err) != postdate.KindUnknown {
		t.Errorf("the kind is %q: %v", postdate.KindOf(err), err)
	}
	c := DefaultConfig(uri)
	c.Buckets = 8
	other, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Settle(t.Context(), []store.Settlement{detach}); err != nil {
		t.Fatal(err)
	}
	wantDetached(t, other, &m, failing(&m, &detach).Key, postdate.Pending, 0)
}

// TestClaimBesideAHeldSeries: a node died while it settled a series. Its successor leaves the series
// out, and takes what is beside it.
func TestClaimBesideAHeldSeries(t *testing.T) {
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = 8
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m, detach := oneSeries(t, s)
	beside := dueMessage(postdate.Key{Bucket: m.Bucket, Tenant: "default", ScheduleID: "b"})
	s.Insert(t.Context(), []postdate.Message{beside})
	id := bson.NewObjectID()
	if _, err := s.messages.UpdateOne(t.Context(), doc("_id", idOf(m.Key)), doc("$set", doc("mark", mark{ID: id, Token: 1}))); err != nil {
		t.Fatal(err)
	}
	abandoned(t, s, func(ctx context.Context) error {
		o := outcomeOf(&detach, false)
		done, err := s.changeOne(ctx, o.change([]target{settlementTarget(&detach)}, &id))
		if !done {
			t.Error("the mark does not stand")
		}
		return err
	})
	if r, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: m.Bucket, SeenToken: 1, Owner: "o", Lease: "l"}}); err != nil || !r[0].OK {
		t.Fatalf("Acquire: %+v, %v", r, err)
	}
	r := s.Claim(t.Context(), []store.Claim{{Bucket: m.Bucket, Scan: store.Scan{Limit: 10, BytesMax: 1000},
		Claim: bucket.Claim{Token: 2, Number: 1, To: bucket.UpTo(3000)}}})[0]
	if r.Err != nil || len(r.Due) != 1 || r.Due[0].ScheduleID != "b" || r.LeftOut != bucket.PositionOf(m.Key, 1000) {
		t.Errorf("Claim: %+v", r)
	}
}

// TestSeriesCancelledBetweenTwoOccurrences: while a cancel is told that it comes too late for an
// occurrence, that is settled. Then it still comes in time for the next one.
func TestSeriesCancelledBetweenTwoOccurrences(t *testing.T) {
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = 8
	owner, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	m, settle := oneSeries(t, owner)
	settle.How = store.SettleDelivered
	if r := owner.Claim(t.Context(), []store.Claim{{Bucket: m.Bucket, Scan: store.Scan{Limit: 10, BytesMax: 1000},
		Claim: bucket.Claim{Token: 1, Number: 1, To: bucket.UpTo(1000)}}})[0]; r.Err != nil || len(r.Due) != 1 {
		t.Fatalf("Claim: %+v", r)
	}
	var settled atomic.Bool
	s, err := OpenWatched(t.Context(), c, &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		updates, _ := e.Command.Lookup("updates").ArrayOK()
		if values, _ := updates.Values(); len(values) > 0 {
			if _, err := values[0].Document().LookupErr("u", "$set", "ending"); err == nil && !settled.Swap(true) {
				if err := owner.Settle(t.Context(), []store.Settlement{settle}); err != nil {
					t.Error(err)
				}
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := s.Cancel(t.Context(), []postdate.Key{m.Key}, 1200)[0]
	if !settled.Load() || r.Err != nil || !r.Changed || r.State.Status != postdate.Cancelled || r.State.Occurrence != 2000 {
		t.Errorf("Cancel: %+v; it was settled: %t", r, settled.Load())
	}
}
