package mongo

import (
	"context"
	"fmt"
	"strings"
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

// openFresh opens a store of eight buckets in a database of its own.
func openFresh(t *testing.T) *Store {
	t.Helper()
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = 8
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

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

// interruptible is a store with one that makes a call whose context ends when so many commands were sent.
func interruptible(t *testing.T, uri string) (s *Store,
	interrupted func(left int, call func(ctx context.Context) error) error) {
	t.Helper()
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
	return s, func(left int, call func(ctx context.Context) error) error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		count.Store(int64(left))
		stop.Store(&cancel)
		defer stop.Store(nil)
		return call(ctx)
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
				s, interrupted := interruptible(t, uri)
				m, detach := oneSeries(t, s)
				fail := failing(&m, &detach)
				for _, p := range []store.Settlement{detach, fail} {
					if err := interrupted(left, func(ctx context.Context) error {
						return s.Settle(ctx, []store.Settlement{p})
					}); err == nil {
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

// TestSeriesChangedAfterInterruptions interrupts a trigger, a pause and a change at each of their commands, and
// repeats them: that neither loses nor doubles anything, and what was surely not done was not.
func TestSeriesChangedAfterInterruptions(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		t.Run(fmt.Sprint("behind a mongos: ", sharded), func(t *testing.T) {
			uri := mongotest.Fresh(t)
			if sharded {
				uri = routertest.Start(t, uri).URI()
			}
			s, interrupted := interruptible(t, uri)
			defer s.Close()
			stopped := map[string]int{}
			for left := range 10 {
				x := &changedSeries{T: t, s: s, m: postdate.Message{Key: bucket.KeyOf("default", fmt.Sprint("s", left), 8),
					Channel: "inbox:a", ExecutionTime: 1000, First: 1000, Recurrence: &postdate.Recurrence{Every: time.Second}}}
				s.Insert(t.Context(), []postdate.Message{x.m})
				for _, step := range []struct {
					name string
					call func(ctx context.Context) error
					done func(rec postdate.Record) bool
				}{{"trigger", x.trigger(), x.triggered}, {"pause", x.pause(), x.paused}, {"change", x.change(), x.changed}} {
					err := interrupted(left, step.call)
					if err == nil {
						if !step.done(x.get()) {
							t.Errorf("%d: a %s was answered, and is not done", left, step.name)
						}
						continue
					}
					stopped[step.name]++
					if kind := postdate.KindOf(err); kind == postdate.KindUnavailable && step.done(x.get()) {
						t.Errorf("%d: a %s was surely not done, and is: %v", left, step.name, err)
					} else if kind != postdate.KindUnavailable && kind != postdate.KindUnknown {
						t.Errorf("%d: an interrupted %s answers %v", left, step.name, err)
					}
					for range 2 {
						if err := step.call(t.Context()); err != nil && (step.name == "pause" || postdate.KindOf(err) != postdate.KindConflict) {
							t.Errorf("%d: a repeated %s answers %v", left, step.name, err)
						}
					}
					if rec := x.get(); !step.done(rec) {
						t.Errorf("%d: after a repeated %s the series is %+v", left, step.name, rec)
					}
				}
			}
			for _, name := range []string{"trigger", "pause", "change"} {
				if n := stopped[name]; n == 0 || n == 10 {
					t.Errorf("%d of 10 calls of %s were interrupted", n, name)
				}
			}
		})
	}
}

// changedSeries is a series that is triggered once, then paused, then changed.
type changedSeries struct {
	*testing.T
	s *Store
	m postdate.Message
}

func (x *changedSeries) get() postdate.Record {
	x.Helper()
	rec, err := x.s.Get(x.Context(), x.m.Key)
	if err != nil {
		x.Fatal(err)
	}
	return rec
}

const extraAt = postdate.Time(500)

func (x *changedSeries) trigger() func(ctx context.Context) error {
	version := x.get().Version
	return func(ctx context.Context) error { return x.s.Trigger(ctx, x.m.Key, version, extraAt) }
}

// triggered says whether the one extra occurrence is there, and counted.
func (x *changedSeries) triggered(rec postdate.Record) bool {
	extra, err := x.s.Get(x.Context(), x.m.Alone(extraAt).Key)
	there := err == nil && extra.Status == postdate.Pending && extra.AttemptTime == extraAt
	if counted := rec.Series.Fired == 1 && len(rec.Series.History) == 1; counted != there || rec.Series.Fired > 1 {
		x.Errorf("that an extra occurrence is there is %t (%v), and the series says %+v", there, err, rec.Series)
	}
	return there
}

func (x *changedSeries) pause() func(ctx context.Context) error {
	version := x.get().Version
	return func(ctx context.Context) error { return x.s.Pause(ctx, x.m.Key, version) }
}

func (x *changedSeries) paused(rec postdate.Record) bool { return rec.Paused && rec.Series.Fired == 1 }

func (x *changedSeries) change() func(ctx context.Context) error {
	return func(ctx context.Context) error {
		was := x.get()
		next := was
		next.Version, next.Changes, next.Paused, next.AttemptTime = was.Version+1, 1, false, 3000
		if was.Changes > 0 { // it is repeated as it was
			next, was = was, postdate.NewRecord(x.m, was.Version-1)
			was.Paused, was.Series = true, next.Series
		}
		_, err := x.s.Replace(ctx, next, was)
		return err
	}
}

func (x *changedSeries) changed(rec postdate.Record) bool {
	return rec.Changes == 1 && !rec.Paused && rec.AttemptTime == 3000 && rec.Series.Fired == 1
}

// TestFailureBesideADamagedSeries: an occurrence that is retried fails, whatever somebody made of its series by
// hand.
func TestFailureBesideADamagedSeries(t *testing.T) {
	for field, value := range map[string]any{"changes": "none", "version": "first", "series.failed": "few", "changes ": bson.A{}} {
		c := DefaultConfig(mongotest.Fresh(t))
		c.Buckets = 8
		s, err := Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		m, detach := oneSeries(t, s)
		if err := s.Settle(t.Context(), []store.Settlement{detach}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.messages.UpdateOne(t.Context(), doc("_id", idOf(m.Key)), doc("$set", doc(strings.TrimSpace(field), value))); err != nil {
			t.Fatal(err)
		}
		fail := failing(&m, &detach)
		if err := s.Settle(t.Context(), []store.Settlement{fail}); err != nil {
			t.Errorf("%s: %v", field, err)
		}
		if rec, err := s.Get(t.Context(), fail.Key); err != nil || rec.Status != postdate.DeliveryFailed {
			t.Errorf("%s: %+v, %v", field, rec.State, err)
		}
		s.Close()
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
	s := openFresh(t)
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

// A cancel that comes too late, and so says that the series ends, between the look and the last step of a
// change: the change is not made.
func TestEndingIsNotLostToAChange(t *testing.T) {
	s := openFresh(t)
	m, _ := oneSeries(t, s)
	was, _ := s.Get(t.Context(), m.Key)
	next := was
	next.Version++
	next.Changes++
	next.Occurrence, next.AttemptTime = 5000, 5000
	r := replacing{withdrawal: s.withdrawal(), next: &next, was: &was}
	var keys keyed
	keys.add(m.Key)
	err := s.within(t.Context(), func(ctx context.Context) error {
		targets, err := s.targets(ctx, &keys)
		if err != nil {
			return err
		}
		if err := r.markAll(ctx, targets, doc("version", int64(was.Version))); err != nil {
			return err
		}
		found, records, err := r.look(ctx, &keys, nil)
		if err != nil {
			return err
		}
		d := found[idOf(m.Key)]
		p, _ := recordOf(records, m.Bucket)
		if judge(p, d.sighting(), r.id) != verdictFinish {
			t.Error("the change is too late")
		}
		// an owner's claim is written, but its read is still to come
		cl := store.Claim{Bucket: m.Bucket, Claim: bucket.Claim{Token: 1, Number: 1, Checkpoint: 0,
			To: bucket.Position{Time: 3000}}, Scan: store.Scan{Limit: 10, BytesMax: 1 << 20}}
		sc := newScan(&cl)
		if err := s.look(ctx, []*scan{sc}); err != nil {
			return err
		}
		if _, err := s.writeClaims(ctx, []*scan{sc}); err != nil {
			return err
		}
		res := s.Cancel(t.Context(), []postdate.Key{m.Key}, 1500)[0]
		if !res.State.Ending {
			t.Errorf("the cancel: %+v", res)
		}
		if _, decided, err := r.finish(ctx, d); decided || err != nil {
			t.Errorf("the change is made: %t, %v", decided, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil || !rec.Ending {
		t.Errorf("the cancel said that the series ends, and it is %+v, %v", rec.State, err)
	}
}
