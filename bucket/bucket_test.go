package bucket_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// The bucket of an id must never change: the messages that are stored lie there.
// These numbers are the hash's own, so no change of this table can be right.
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

// The tenant is part of the name, and no other split of the same bytes is taken
// for it.
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

func TestAcquireAndRelease(t *testing.T) {
	free := bucket.Partition{Bucket: 3, Token: 8, Checkpoint: 100, Claimed: 120}
	a, ok := free.Acquire(8, "a", "a/1")
	want := bucket.Partition{Bucket: 3, Token: 9, Owner: "a", Lease: "a/1", Checkpoint: 100, Claimed: 120}
	if !ok || a != want {
		t.Fatalf("acquired %+v, %v; want %+v", a, ok, want)
	}
	if again, ok := a.Acquire(8, "b", "b/1"); ok || again != a {
		t.Errorf("who saw the old token got %+v", again)
	}
	b, ok := a.Acquire(9, "b", "b/1") // a takeover
	if !ok || b.Token != 10 || b.Owner != "b" || b.Claimed != 120 {
		t.Fatalf("taken over: %+v, %v", b, ok)
	}
	if left, ok := b.Release(9); ok || left != b {
		t.Errorf("who held it before released it: %+v", left)
	}
	left, ok := b.Release(10)
	if want := (bucket.Partition{Bucket: 3, Token: 10, Checkpoint: 100, Claimed: 120}); !ok || left != want {
		t.Errorf("released: %+v, %v; want %+v", left, ok, want)
	}
}

func TestClaim(t *testing.T) {
	p := bucket.Partition{Owner: "a", Lease: "a/1", Token: 5, Claims: 9, Checkpoint: 100, Claimed: 120}
	for _, test := range []struct {
		name                        string
		token, number               uint64
		checkpoint, claimed         postdate.Time
		ok                          bool
		wantClaims                  uint64
		wantCheckpoint, wantClaimed postdate.Time
	}{
		{"forward", 5, 10, 120, 160, true, 10, 120, 160},
		{"after some that never came", 5, 12, 120, 160, true, 12, 120, 160},
		{"claimed never moves back", 5, 10, 90, 110, true, 10, 90, 120},
		{"not even where the checkpoint moves forward", 5, 10, 105, 110, true, 10, 105, 120},
		{"the checkpoint may, and claimed may stand", 5, 10, 50, 120, true, 10, 50, 120},
		{"the checkpoint comes up to where claimed stands: a drain", 5, 10, 120, 120, true, 10, 120, 120},
		{"late: it raises no checkpoint", 5, 8, 105, 110, true, 9, 100, 120},
		{"late and with an equal claimed: nor does that", 5, 8, 110, 120, true, 9, 100, 120},
		{"late and with a later claimed: nor does that, and claimed moves", 5, 8, 130, 140, true, 9, 100, 140},
		{"late: it may lower the checkpoint", 5, 8, 90, 110, true, 9, 90, 120},
		{"the latest one again", 5, 9, 110, 120, true, 9, 100, 120},
		{"with an old token", 4, 10, 120, 160, false, 9, 100, 120},
		{"with a token of the future", 6, 10, 120, 160, false, 9, 100, 120},
	} {
		next, ok := p.Claim(test.token, test.number, test.checkpoint, test.claimed)
		if ok != test.ok || next.Claims != test.wantClaims || next.Checkpoint != test.wantCheckpoint || next.Claimed != test.wantClaimed {
			t.Errorf("%s: %+v, %v", test.name, next, ok)
		}
	}
	taken, _ := p.Acquire(5, "b", "b/1")
	if taken.Claims != p.Claims {
		t.Errorf("the next owner begins at claim %d, want %d: its first one would seem late", taken.Claims, p.Claims)
	}
	released, _ := p.Release(5)
	if _, ok := released.Claim(5, 10, 120, 160); ok {
		t.Error("a claim went through after the bucket was given back")
	}
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "checkpoint 121 beyond claimed 120") {
			t.Errorf("a checkpoint beyond claimed: %s", text)
		}
	}()
	p.Claim(5, 10, 121, 110)
}

func TestWithdrawable(t *testing.T) {
	p := bucket.Partition{Claimed: 1000}
	for _, test := range []struct {
		name  string
		state postdate.State
		want  bool
	}{
		{"beyond the claim", postdate.State{Status: postdate.Pending, AttemptTime: 1001}, true},
		{"at the claim", postdate.State{Status: postdate.Pending, AttemptTime: 1000}, false},
		{"behind the claim", postdate.State{Status: postdate.Pending, AttemptTime: 1}, false},
		{"waits for a retry", postdate.State{Status: postdate.Pending, AttemptTime: 2000, Attempts: 2}, true},
		{"parked", postdate.State{Status: postdate.Pending, AttemptTime: 1, Parked: true}, true},
		{"may have arrived", postdate.State{Status: postdate.Pending, AttemptTime: 2000, PossibleDuplicate: true}, false},
		{"may have arrived, parked", postdate.State{Status: postdate.Pending, Parked: true, PossibleDuplicate: true}, false},
		{"delivered", postdate.State{Status: postdate.Delivered, AttemptTime: 2000}, false},
		{"failed", postdate.State{Status: postdate.DeliveryFailed, AttemptTime: 2000}, false},
		{"cancelled", postdate.State{Status: postdate.Cancelled, AttemptTime: 2000}, false},
	} {
		if got := p.Withdrawable(test.state); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
