package mongo

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

// TestDamagedPlaces: the bucket or time of a message cannot be read, though the server finds it
// by them. Claims and retention skip it, and reach all others.
func TestDamagedPlaces(t *testing.T) {
	at := func(times ...int64) (list bson.A) {
		for _, each := range times {
			list = append(list, bson.DateTime(each))
		}
		return list
	}
	for what, damage := range map[string]bson.D{
		"a bucket that is a decimal":   doc("bucket", decimalOne(t)),
		"a list of times, all are due": doc("due", at(1000, 1001)),
		"a list of later times":        doc("due", at(5000)),
		"an id that is no text":        doc("_id", bson.NewObjectID(), "due", bson.DateTime(999)),
	} {
		for _, limit := range []int{1, 2} {
			t.Run(fmt.Sprint(what, ", pages of ", limit), func(t *testing.T) {
				c := DefaultConfig(mongotest.Fresh(t))
				c.Buckets, c.Log = 8, slog.New(slog.DiscardHandler)
				s, err := Open(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				all := insertInBucket(t, s, 1, 6)
				slices.SortFunc(all, func(a, b postdate.Message) int { return strings.Compare(a.ScheduleID, b.ScheduleID) })
				harm(t, s, all[3], damage)
				wantDue(t, s, limit, slices.Delete(all, 3, 4))
			})
		}
	}
}

// harm changes a message's document, as somebody might by hand.
func harm(t *testing.T, s *Store, m postdate.Message, fields bson.D) {
	t.Helper()
	var d bson.D
	if err := s.messages.FindOneAndDelete(t.Context(), doc("_id", idOf(m.Key))).Decode(&d); err != nil {
		t.Fatal(err)
	}
	for _, f := range fields {
		i := slices.IndexFunc(d, func(e bson.E) bool { return e.Key == f.Key })
		d[i].Value = f.Value
	}
	if _, err := s.messages.InsertOne(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// wantDue claims bucket 1 page by page together with another one. It expects these messages,
// and that nothing follows them.
func wantDue(t *testing.T, s *Store, limit int, want []postdate.Message) {
	t.Helper()
	for _, b := range []int{1, 2} {
		if got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}}); err != nil || !got[0].OK {
			t.Fatalf("Acquire: %+v, %v", got, err)
		}
	}
	var got []string
	scan := store.Scan{Limit: limit, BytesMax: 1 << 20}
	for number := uint64(1); ; number++ {
		claim := bucket.Claim{Token: 1, Number: number, To: bucket.UpTo(2000)}
		both := s.Claim(t.Context(), []store.Claim{{Bucket: 1, Claim: claim, Scan: scan}, {Bucket: 2, Claim: claim, Scan: store.Scan{Limit: limit, BytesMax: 1}}})
		r := both[0]
		if r.Err != nil || both[1].Err != nil || number > 20 {
			t.Fatalf("claim %d: %+v", number, both)
		}
		for _, rec := range r.Due {
			got = append(got, rec.ScheduleID)
		}
		if r.Ended.Before(scan.After) {
			t.Errorf("a scan goes back from %v to %v", scan.After, r.Ended)
		}
		if scan.After = r.Ended; r.Complete {
			if r.Next <= 2000 {
				t.Errorf("next is due at %v, and all up to 2000 was seen", r.Next)
			}
			break
		}
	}
	var ids []string
	for _, m := range want {
		ids = append(ids, m.ScheduleID)
	}
	if !slices.Equal(got, ids) {
		t.Errorf("page by page %q are due, want %q", got, ids)
	}
}

func decimalOne(t *testing.T) bson.Decimal128 {
	d, err := bson.ParseDecimal128("1")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// beside returns a new store, behind a mongos if it is sharded, and one that writes to the same database without
// it.
func beside(t *testing.T, sharded bool) (s, direct *Store) {
	t.Helper()
	uri := mongotest.Fresh(t)
	c := DefaultConfig(uri)
	if sharded {
		c.URI = routertest.Start(t, uri).URI()
	}
	c.Buckets, c.Log = 8, slog.New(slog.DiscardHandler)
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, (&filled{t: t, c: c}).bare(uri)
}

// TestRetentionBesideDamage: final messages expire, whatever damaged ones lie next to them.
func TestRetentionBesideDamage(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		s, direct := beside(t, sharded)
		all := insertInBucket(t, s, 1, 4)
		for n, damage := range []bson.D{doc("executionTime", int64(1000)), doc("bucket", decimalOne(t))} {
			bad, good := all[2*n], all[2*n+1]
			for _, r := range s.Cancel(t.Context(), []postdate.Key{bad.Key, good.Key}, 5) {
				if r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			harm(t, direct, bad, damage)
			if _, err := s.Expire(t.Context(), store.Expiry{Buckets: []int{1}, SettledBefore: 10, Limit: 10}); err != nil {
				t.Errorf("sharded %t, %v: %v", sharded, damage, err)
			}
			if _, err := s.Get(t.Context(), good.Key); postdate.KindOf(err) != postdate.KindNotFound {
				t.Errorf("sharded %t, %v: the sound message is still there: %v", sharded, damage, err)
			}
		}
	}
}
