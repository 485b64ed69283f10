package mongo_test

import (
	"fmt"
	"slices"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// TestADamagedMessage: a message that cannot be decoded is skipped, and stops no other.
func TestADamagedMessage(t *testing.T) {
	uri := mongotest.Fresh(t)
	s := open(t, config(uri))
	defer s.Close()
	acquireAll(t, s)
	var all []postdate.Message
	for _, id := range []string{"bad", "good", "kept"} {
		m := testMessage(id, 1, 1000) // in one bucket
		all = append(all, m)
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	damage := bson.D{{Key: "$set", Value: bson.D{{Key: "createdAt", Value: int64(1)}}}} // a number, and no date
	if _, err := database(t, uri).Collection("messages").UpdateOne(t.Context(), bson.D{{Key: "scheduleId", Value: "bad"}}, damage); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), all[0].Key); err == nil || postdate.KindOf(err) != postdate.KindInternal {
		t.Errorf("Get: %v", err)
	}
	if r := s.Insert(t.Context(), all[:1])[0]; r.Err != nil || r.Created {
		t.Errorf("Insert again, which does not read what is damaged: %+v", r)
	}
	if err := s.Forget(t.Context(), all[0].Key, 1); postdate.KindOf(err) != postdate.KindConflict {
		t.Errorf("Forget, which does not read what is damaged: %v", err)
	}
	cancelled := s.Cancel(t.Context(), keysOf(all[1:2]), 1)
	if cancelled[0].Err != nil {
		t.Errorf("Cancel: %+v", cancelled)
	}
	page, err := s.List(t.Context(), store.ListQuery{Tenant: "default", Limit: 10})
	if err != nil || len(page.Records) != 2 {
		t.Errorf("List: %+v, %v", page, err)
	}
	var got []string
	scan := store.Scan{Limit: 1, BytesMax: 1 << 20}
	for number := uint64(1); number < 10; number++ {
		r := s.Claim(t.Context(), []store.Claim{{Claim: bucket.Claim{Token: 1, Number: number, To: bucket.UpTo(2000)}, Scan: scan}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		for _, rec := range r.Due {
			got = append(got, rec.ScheduleID)
		}
		if scan.After = r.Ended; r.Complete {
			break
		}
	}
	if len(got) != 1 || got[0] != "kept" {
		t.Errorf("page by page %q are due, want the one that is neither damaged nor cancelled", got)
	}
}

// TestDamagedAndParked has messages that are parked, and whose channel or bucket is none: the
// others of their buckets are found all the same.
func TestDamagedAndParked(t *testing.T) {
	uri := mongotest.Fresh(t)
	s := open(t, config(uri))
	defer s.Close()
	var all []postdate.Message
	for i := range 6 {
		all = append(all, testMessage(fmt.Sprint("m", i), 1, 1000))
		all[i].Bucket = 1 + i/3
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	messages := database(t, uri).Collection("messages")
	set := func(id any, field string, value any) {
		t.Helper()
		filter, update := bson.D{{Key: "scheduleId", Value: id}}, bson.D{{Key: "$set", Value: bson.D{{Key: field, Value: value}}}}
		if r, err := messages.UpdateMany(t.Context(), filter, update); err != nil || r.ModifiedCount == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	set(bson.D{{Key: "$exists", Value: true}}, "parked", true)
	set("m0", "channel", int32(7))
	set("m1", "bucket", bson.NewDecimal128(0, 1))
	set("m3", "channel", int32(7))
	found, err := s.Parked(t.Context(), []int{1, 2})
	slices.SortFunc(found, func(a, b store.ParkedRoute) int { return a.Bucket - b.Bucket })
	want := []store.ParkedRoute{{Bucket: 1, Route: all[2].Route()}, {Bucket: 2, Route: all[5].Route()}}
	if err != nil || !slices.Equal(found, want) {
		t.Errorf("Parked: %+v, %v, want %+v", found, err, want)
	}
}
