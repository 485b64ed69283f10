package mongo

import (
	"context"
	"fmt"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// oneFailing is a message, and the settlement of its failure, which leaves a message.
func oneFailing(t *testing.T, s *Store) (m postdate.Message, fail store.Settlement, left postdate.Key) {
	t.Helper()
	m = dueMessage(bucket.KeyOf("default", "a", s.c.Buckets))
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
	fail = store.Settlement{Key: m.Key, ExecutionTime: 1000, Version: rec.Version, Token: 1, How: store.SettleFailed, At: 1001,
		Attempts: 1, Reason: "no", FailureChannel: "inbox:failed"}
	l, _ := fail.Failed(&rec)
	return m, fail, l.Key
}

// TestFailedAfterInterruptions interrupts a failure that leaves a message at each of its commands, and repeats it:
// neither is there without the other, and nothing is lost or doubled.
func TestFailedAfterInterruptions(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		t.Run(fmt.Sprint("behind a mongos: ", sharded), func(t *testing.T) {
			for n := 0; n < 10; n++ {
				uri := mongotest.Fresh(t)
				if sharded {
					uri = routertest.Start(t, uri).URI()
				}
				s, interrupted := interruptible(t, uri)
				m, fail, left := oneFailing(t, s)
				err := interrupted(n, func(ctx context.Context) error { return s.Settle(ctx, []store.Settlement{fail}) })
				for again := range 3 {
					rec, errOf := s.Get(t.Context(), m.Key)
					l, errOfLeft := s.Get(t.Context(), left)
					failed := rec.Status == postdate.DeliveryFailed
					if errOf != nil || failed != (errOfLeft == nil) || (again > 0 || err == nil) && !failed || failed && l.Channel != fail.FailureChannel {
						t.Errorf("interrupted at command %d, and repeated %d times: %+v, %v; it left %+v, %v", n, again, rec, errOf, l, errOfLeft)
					}
					if err := s.Settle(t.Context(), []store.Settlement{fail}); err != nil {
						t.Fatal(err)
					}
				}
				s.Close()
			}
		})
	}
}

// TestClaimBesideAHeldFailure: a node died while it settled a failure that leaves a message. Its successor leaves
// the failing one out, and takes what is beside it.
func TestClaimBesideAHeldFailure(t *testing.T) {
	s := openFresh(t)
	m, fail, _ := oneFailing(t, s)
	beside := dueMessage(postdate.Key{Bucket: m.Bucket, Tenant: "default", ScheduleID: "b"})
	s.Insert(t.Context(), []postdate.Message{beside})
	id := bson.NewObjectID()
	if _, err := s.messages.UpdateOne(t.Context(), doc("_id", idOf(m.Key)), doc("$set", doc("mark", mark{ID: id, Token: 1, Apart: true}))); err != nil {
		t.Fatal(err)
	}
	abandoned(t, s, func(ctx context.Context) error {
		o := outcomeOf(&fail, false)
		_, err := s.changeOne(ctx, o.change([]target{settlementTarget(&fail)}, &id))
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
