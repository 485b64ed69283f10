package mongo

import (
	"testing"
	"time"

	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// A lease that an earlier version wrote does not say how long it lasts.
func TestLeaseOfAnEarlierVersion(t *testing.T) {
	c := DefaultConfig(mongotest.Fresh(t))
	c.Buckets = 8
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.leases.InsertOne(t.Context(), doc("_id", "n/1", "renewals", int64(7), "at", time.Now())); err != nil {
		t.Fatal(err)
	}
	_, leases, err := s.Look(t.Context(), nil)
	if want := (bucket.Lease{ID: "n/1", Renewals: 7}); err != nil || len(leases) != 1 || leases[0] != want {
		t.Errorf("got %+v, %v; want %+v", leases, err, want)
	}
}
