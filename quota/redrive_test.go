package quota

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// fail lets messages fail, as a node does.
func (o *office) fail(all ...postdate.Message) (some []store.Versioned) {
	o.t.Helper()
	for _, m := range all {
		r, err := o.store.Get(o.t.Context(), m.Key)
		if err != nil {
			o.t.Fatal(err)
		}
		token := o.store.Records[m.Bucket].Token
		if token == 0 {
			got, _ := o.store.Acquire(o.t.Context(), []store.Acquisition{{Bucket: m.Bucket, Owner: "n", Lease: "n"}})
			token = got[0].Partition.Token
		}
		o.store.Settle(o.t.Context(), []store.Settlement{{Key: m.Key, Version: r.Version, Token: token, How: store.SettleFailed, At: 5}})
		some = append(some, store.Versioned{Key: m.Key})
	}
	return some
}

// What is redriven takes up room like what is inserted, in the store and while the call is under way; what is not
// needs none.
func TestRedriveIsHeld(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 2})
	a, b, c := message("a", "1", 1, "x:a"), message("a", "2", 1, "x:a"), message("a", "3", 1, "x:a")
	o.insert(a, b)
	some := o.fail(a, b)
	o.insert(c)
	missing := store.Versioned{Key: message("a", "none", 1, "x:a").Key}
	got := o.held.Redrive(t.Context(), []store.Versioned{missing, some[0], some[1], {Key: c.Key}}, 9)
	if postdate.KindOf(got[0].Err) != postdate.KindNotFound || got[1].Err != nil || got[3].Err != nil {
		t.Errorf("redriven: %+v", got)
	}
	wantLimited(t, got[2].Err, "pendingMax")
	if r, _ := o.store.Get(t.Context(), b.Key); r.Status != postdate.DeliveryFailed {
		t.Errorf("a message without room is %s", r.Status)
	}
	o.fail(c)
	if got := o.held.Redrive(t.Context(), some[1:], 9)[0]; got.Err != nil || got.State.Status != postdate.Pending {
		t.Errorf("with room: %+v", got)
	}
	wantLimited(t, o.insert(message("a", "4", 1, "x:a"))[0].Err, "pendingMax")
}

// A redrive without room leaves the tenant's rate to what it schedules, and counts once for each time that it came.
func TestRedriveWithoutRoomTakesNoRate(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 2, MessagesPerSecond: 4})
	a, b, c := message("a", "1", 1, "x:a"), message("a", "2", 1, "x:a"), message("a", "3", 1, "x:a")
	o.insert(a, b)
	some := o.fail(a, b)
	o.insert(c, message("a", "4", 1, "x:a"))
	o.at = o.at.Add(time.Second)
	for range 9 {
		for _, r := range o.held.Redrive(t.Context(), some, 9) {
			wantLimited(t, r.Err, "pendingMax")
		}
	}
	if got := o.shown(); !slices.Contains(got, "limited_total{pendingMax,a} 9") {
		t.Errorf("nine calls were refused: %v", got)
	}
	if _, left := o.Paces("a"); left.Left != 4 {
		t.Errorf("they left %d of the rate, want all 4", left.Left)
	}
	o.store.Cancel(t.Context(), []postdate.Key{c.Key}, 9)
	got := o.held.Redrive(t.Context(), some, 9)
	wantLimited(t, got[1].Err, "pendingMax")
	if _, left := o.Paces("a"); got[0].Err != nil || left.Left != 3 {
		t.Errorf("what has room: %v, and %d of the rate are left, want 3", got[0].Err, left.Left)
	}
}

// beforeGet does something before each message is read.
type beforeGet struct {
	store.Messages
	do func()
}

func (s beforeGet) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	s.do()
	return s.Messages.Get(ctx, key)
}

// A redrive that comes too fast is refused, and gives back the room that it had.
func TestRedriveTooFastGivesRoomBack(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 2, MessagesPerSecond: 1})
	a := message("a", "1", 1, "x:a")
	o.insert(a)
	some := o.fail(a)
	wantLimited(t, o.held.Redrive(t.Context(), some, 9)[0].Err, "messagesPerSecond")
	o.at = o.at.Add(time.Second)
	held := o.Hold(beforeGet{o.store, func() { o.insert(message("a", "2", 1, "x:a")) }}) // is quicker
	wantLimited(t, held.Redrive(t.Context(), some, 9)[0].Err, "messagesPerSecond")
	if got := o.shown(); !slices.Contains(got, "limited_total{messagesPerSecond,a} 2") {
		t.Errorf("two calls were refused: %v", got)
	}
	o.at = o.at.Add(time.Second)
	wantTaken(t, o.insert(message("a", "3", 1, "x:a"))[0])
}
