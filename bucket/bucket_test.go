package bucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// The bucket of an id must never change, because stored messages lie there. These numbers are
// the hash's own, so no change of this table can be right.
func TestOfIsForEver(t *testing.T) {
	for _, v := range []struct {
		tenant, id string
		n, want    int
	}{
		{"default", "a", 64, 59},
		{"default", "order-1", 64, 24},
		{"default", "order-2", 64, 3},
		{"default", "01890a5d-ac96-774b-bcce-b302099a8057", 64, 54},
		{"acme", "order-1", 64, 27},
		{"default", strings.Repeat("x", 128), 64, 20},
		{"default", "order-1", 1, 0},
		{"default", "order-1", 1024, 152},
		{"default", "order-1", 16384, 9368},
		{"", "", 64, 53},
	} {
		if got := bucket.Of(v.tenant, v.id, v.n); got != v.want {
			t.Errorf("Of(%q, %q, %d) is %d, want %d", v.tenant, v.id, v.n, got, v.want)
		}
	}
}

// Ids that grow, and ids that look random, spread evenly over the buckets.
func TestOfBalances(t *testing.T) {
	const ids, n = 64_000, 64
	var counts [n]int
	for i := range ids {
		counts[bucket.Of(postdate.DefaultTenant, fmt.Sprint("order-", i), n)]++
	}
	for b, count := range counts {
		if count < ids/n*8/10 || count > ids/n*12/10 {
			t.Errorf("bucket %d has %d of %d ids: a fair share is %d", b, count, ids, ids/n)
		}
	}
}

// The tenant is part of the name, and no other split of the same bytes gives the same name.
func TestOfTellsTenants(t *testing.T) {
	const n = postdate.BucketsMax
	same := 0
	for i := range 100 {
		id := fmt.Sprint("x", i)
		if bucket.Of("a", id, n) == bucket.Of("b", id, n) {
			same++
		}
		if bucket.Of("a", id, n) == bucket.Of("ax", id[1:], n) {
			same++
		}
	}
	if same > 5 {
		t.Errorf("%d of 200 pairs share one of %d buckets", same, n)
	}
}

func TestKeyOf(t *testing.T) {
	want := postdate.Key{Bucket: bucket.Of("t", "id", 7), Tenant: "t", ScheduleID: "id"}
	if got := bucket.KeyOf("t", "id", 7); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
