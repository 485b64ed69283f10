package mongo

import (
	"testing"
	"time"

	"github.com/postdate/postdate/bucket"
)

// A lease that an earlier version wrote does not say how long it lasts.
func TestLeaseOfAnEarlierVersion(t *testing.T) {
	s := openFresh(t)
	if _, err := s.leases.InsertOne(t.Context(), doc("_id", "n/1", "renewals", int64(7), "at", time.Now())); err != nil {
		t.Fatal(err)
	}
	_, leases, err := s.Look(t.Context(), nil)
	if want := (bucket.Lease{ID: "n/1", Renewals: 7}); err != nil || len(leases) != 1 || leases[0] != want {
		t.Errorf("got %+v, %v; want %+v", leases, err, want)
	}
}
