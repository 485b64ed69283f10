package quota

import (
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// fail lets messages fail, as a node does.
func (o *office) fail(all ...postdate.Message) (some []store.Failed) {
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
		some = append(some, store.Failed{Key: m.Key})
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
	missing := store.Failed{Key: message("a", "none", 1, "x:a").Key}
	got := o.held.Redrive(t.Context(), []store.Failed{missing, some[0], some[1], {Key: c.Key}}, 9)
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
