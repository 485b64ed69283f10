package mongo

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// cancelled makes a message, cancels it, and returns it as it is then.
func cancelled(t *testing.T, s *Store, id string) postdate.Record {
	t.Helper()
	m := dueMessage(bucket.KeyOf("default", id, s.c.Buckets))
	if r := s.Insert(t.Context(), []postdate.Message{m})[0]; r.Err != nil || !r.Created {
		t.Fatalf("Insert: %+v", r)
	}
	if r := s.Cancel(t.Context(), []postdate.Key{m.Key}, 5)[0]; r.Err != nil || !r.Changed {
		t.Fatalf("Cancel: %+v", r)
	}
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

// TestForgottenAfterInterruptions interrupts a Forget at each of its commands, and repeats it: what was answered is
// done, what was surely not done is not, and in the end the id is free.
func TestForgottenAfterInterruptions(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		t.Run(fmt.Sprint("behind a mongos: ", sharded), func(t *testing.T) {
			uri := mongotest.Fresh(t)
			if sharded {
				uri = routertest.Start(t, uri).URI()
			}
			s, interrupted := interruptible(t, uri)
			defer s.Close()
			stopped := 0
			for left := range 8 {
				id := fmt.Sprint("m", left)
				rec := cancelled(t, s, id)
				forget := func(ctx context.Context) error { return s.Forget(ctx, rec.Key, rec.Version) }
				err := interrupted(left, forget)
				_, getErr := s.Get(t.Context(), rec.Key)
				gone := postdate.KindOf(getErr) == postdate.KindNotFound
				switch kind := postdate.KindOf(err); {
				case err == nil:
					if !gone {
						t.Errorf("%d: it was answered, and is not done: %v", left, getErr)
					}
				case kind == postdate.KindUnavailable && gone:
					t.Errorf("%d: it was surely not done, and is: %v", left, err)
				case kind != postdate.KindUnavailable && kind != postdate.KindUnknown:
					t.Errorf("%d: interrupted, it answers %v", left, err)
				}
				if err != nil {
					stopped++
					if err := forget(t.Context()); err != nil && postdate.KindOf(err) != postdate.KindNotFound {
						t.Errorf("%d: repeated, it answers %v", left, err)
					}
				}
				cancelled(t, s, id) // the id is free
				if err := forget(t.Context()); postdate.KindOf(err) != postdate.KindConflict {
					t.Errorf("%d: repeated after the id was reused, it answers %v", left, err)
				}
			}
			if stopped == 0 || stopped == 8 {
				t.Errorf("%d of 8 calls were interrupted", stopped)
			}
		})
	}
}

// TestForgottenWithoutAnAnswer loses the answer to a deletion that the server has carried out. Nobody else deleted the
// message, and so nobody may conclude that it was not there.
func TestForgottenWithoutAnAnswer(t *testing.T) {
	set := mongotest.Start(t, 1)
	c := DefaultConfig(set.Fresh() + "&heartbeatFrequencyMS=500")
	c.Buckets, c.Attempt = 8, 2*time.Second
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	losing := func(mode any) {
		set.FailCommands(mode, doc("failCommands", bson.A{"delete"},
			"writeConcernError", doc("code", 91, "errmsg", "the test says so")))
	}
	for i, mode := range []any{doc("times", 1), doc("times", 3), "alwaysOn"} {
		rec := cancelled(t, s, fmt.Sprint("m", i))
		losing(mode)
		err := s.Forget(t.Context(), rec.Key, rec.Version)
		losing("off")
		if always := mode == "alwaysOn"; !always && err != nil || always && postdate.KindOf(err) != postdate.KindUnknown {
			t.Errorf("lost %v: %v", mode, err)
		}
		if _, err := s.Get(t.Context(), rec.Key); postdate.KindOf(err) != postdate.KindNotFound {
			t.Errorf("lost %v: it is there: %v", mode, err)
		}
	}
}

// TestForgetBesideDamage: of a message that somebody changed by hand, Forget says so if it needs what is damaged.
func TestForgetBesideDamage(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		s, direct := beside(t, sharded)
		for i, damage := range []bson.D{doc("settledAt", int64(5)), doc("version", "first"), doc("status", "over", "version", int64(1))} {
			rec := cancelled(t, s, fmt.Sprint("m", i))
			harm(t, direct, rec.Message, damage)
			if err := s.Forget(t.Context(), rec.Key, rec.Version); postdate.KindOf(err) != postdate.KindInternal {
				t.Errorf("sharded %t, %v: %v", sharded, damage, err)
			}
			if n, err := direct.messages.CountDocuments(t.Context(), doc("_id", idOf(rec.Key))); n != 1 || err != nil {
				t.Errorf("sharded %t, %v: %d are left, %v", sharded, damage, n, err)
			}
		}
	}
}
