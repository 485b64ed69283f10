package quota

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// slow is a store whose inserts wait, or end in a way that the test chooses.
type slow struct {
	store.Messages
	begun, on chan struct{} // nil: nothing waits
	err       error
	panics    bool
	getErr    error
	gets      int
}

func (s *slow) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	if s.panics {
		panic("a bug")
	}
	return s.Messages.Replace(ctx, next, was)
}

func (s *slow) Insert(ctx context.Context, all []postdate.Message) []store.Inserted {
	if s.panics {
		panic("a bug")
	}
	if s.begun != nil {
		s.begun <- struct{}{}
		<-s.on
	}
	if s.err != nil {
		return []store.Inserted{{Err: s.err}}
	}
	return s.Messages.Insert(ctx, all)
}

func (s *slow) Get(ctx context.Context, key postdate.Key) (postdate.Record, error) {
	s.gets++
	if s.getErr != nil {
		return postdate.Record{}, s.getErr
	}
	return s.Messages.Get(ctx, key)
}

// A message whose outcome is unknown counts, until the store has counted it if it is there; one that is
// surely not there does not count.
func TestUnknownOutcomesCount(t *testing.T) {
	for _, step := range []struct {
		err    error
		counts bool
	}{
		{postdate.E(postdate.KindUnavailable, "away"), false}, {postdate.E(postdate.KindFull, "full"), false},
		{postdate.E(postdate.KindUnknown, "no answer"), true}, {context.DeadlineExceeded, true},
	} {
		o := newOffice(t, Limits{PendingMax: 1})
		o.Hold(&slow{Messages: o.store, err: step.err}).Insert(t.Context(), []postdate.Message{message("a", "lost", 1, "x:a")})
		if r := o.insert(message("a", "next", 1, "x:a"))[0]; (r.Err != nil) != step.counts {
			t.Errorf("after %v the next one is answered %v", step.err, r.Err)
		}
		if o.at = o.at.Add(doubtTime + time.Second); step.counts {
			wantTaken(t, o.insert(message("a", "next", 1, "x:a"))[0])
		}
	}
}

// A call that panics may have done something: it counts for a while, and not for ever.
func TestACallThatPanics(t *testing.T) {
	for name, call := range map[string]func(o *office, s store.Messages){
		"insert": func(o *office, s store.Messages) {
			s.Insert(t.Context(), []postdate.Message{message("a", "lost", 10, "x:a")})
		},
		"replace": func(o *office, s store.Messages) {
			m := message("a", "old", 10, "x:a")
			o.store.Insert(t.Context(), []postdate.Message{message("a", "old", 0, "x:a")})
			old, _ := o.store.Get(t.Context(), m.Key)
			_, _ = storetest.Replace(t.Context(), s, m, old.Version)
		},
	} {
		o := newOffice(t, Limits{BytesMax: 10})
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic is lost", name)
				}
			}()
			call(o, o.Hold(&slow{Messages: o.store, panics: true}))
		}()
		if r := o.insert(message("a", "next", 1, "x:a"))[0]; r.Err == nil {
			t.Errorf("%s: what may have been done does not count", name)
		}
		o.at = o.at.Add(doubtTime + time.Second)
		wantTaken(t, o.insert(message("a", "next", 1, "x:a"))[0])
	}
}

// However many calls have an unknown outcome, they take little memory.
func TestManyDoubts(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 1 << 40})
	held := o.Hold(&slow{Messages: o.store, err: postdate.E(postdate.KindUnknown, "no answer")})
	for range 1_000 {
		held.Insert(t.Context(), []postdate.Message{message("a", "lost", 1, "x:a")})
		o.at = o.at.Add(time.Millisecond)
	}
	if n := len(o.accounts["a"].doubts); n > 2 {
		t.Errorf("a second's doubts are %d", n)
	}
}

// Calls that are under way for the same new channel need room for one.
func TestOneNewChannelForManyCalls(t *testing.T) {
	o := newOffice(t, Limits{ChannelsMax: 1})
	s := &slow{Messages: o.store, begun: make(chan struct{}), on: make(chan struct{})}
	held := o.Hold(s)
	done := make(chan error)
	go func() {
		done <- held.Insert(context.Background(), []postdate.Message{message("a", "1", 1, "x:a")})[0].Err
	}()
	<-s.begun
	wantTaken(t, o.insert(message("a", "2", 1, "x:a"))[0])
	close(s.on)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// At the limit too, what is stored already is answered as it is without one.
func TestWhatIsStoredIsNoMore(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 1})
	wantTaken(t, o.insert(message("a", "1", 1, "x:a"))[0])
	if r := o.insert(message("a", "1", 1, "x:a"))[0]; r.Err != nil || r.Created || r.Status != postdate.Pending {
		t.Errorf("repeated at the limit: %+v", r)
	}
}

// What has ended is answered as it is without limits, whatever a replacement needs.
func TestReplacementOfWhatHasEnded(t *testing.T) {
	for name, l := range map[string]Limits{"bytes": {BytesMax: 10}, "channels": {ChannelsMax: 1}} {
		o := newOffice(t, l)
		o.insert(message("a", "1", 3, "x:a"))
		m := message("a", "1", 9, "x:b")
		o.store.Cancel(t.Context(), []postdate.Key{m.Key}, 1)
		o.insert(message("a", "2", 3, "x:a"))
		old, _ := o.store.Get(t.Context(), m.Key)
		if _, err := storetest.Replace(t.Context(), o.held, m, old.Version); postdate.KindOf(err) != postdate.KindTooLate {
			t.Errorf("%s: a replacement of what is %v: %v", name, old.Status, err)
		}
	}
}

// A message is not said to be too large for ever while nobody knows whether it is stored: a source
// would give it up.
func TestTooLargeAndPerhapsStored(t *testing.T) {
	o := newOffice(t, Limits{})
	var many []postdate.Message
	for i := range repeatsMax + 1 {
		many = append(many, message("a", fmt.Sprint("m", i), 20, "x:a"))
	}
	o.insert(many...)
	most := int64(10)
	o.Set([]store.TenantSettings{{Tenant: "a", BytesMax: &most}})
	away := o.Hold(&slow{Messages: o.store, getErr: postdate.E(postdate.KindUnavailable, "away")})
	if r := away.Insert(t.Context(), many[:1])[0]; postdate.KindOf(r.Err) != postdate.KindUnavailable {
		t.Errorf("while the store is away: %v", r.Err)
	}
	wantLimited(t, o.insert(many...)[repeatsMax].Err, "bytesMax")
}

// Tenants without limits cost nothing because another one has some.
func TestOthersPayNothing(t *testing.T) {
	o := newOffice(t, Limits{})
	most := int64(1)
	o.Set([]store.TenantSettings{{Tenant: "limited", PendingMax: &most}})
	s := &slow{Messages: o.store}
	held := o.Hold(s)
	for i := range 100 {
		tenant := fmt.Sprint("t", i)
		held.Insert(t.Context(), []postdate.Message{message(tenant, "1", 1, "x:a")})
		old, _ := o.store.Get(t.Context(), message(tenant, "1", 1, "x:a").Key)
		if _, err := held.Replace(t.Context(), postdate.NewRecord(message(tenant, "1", 2, "x:a"), old.Version+1), old); err != nil {
			t.Fatal(err)
		}
	}
	if s.gets != 0 || len(o.accounts) != 0 {
		t.Errorf("tenants without limits cost %d reads and %d accounts", s.gets, len(o.accounts))
	}
}

// Tenants that ask for nothing any longer take no memory.
func TestIdleAccountsGo(t *testing.T) {
	o := newOffice(t, Limits{RequestsPerSecond: 1})
	for i := range 1000 {
		o.Request(fmt.Sprint("t", i), false)
	}
	o.at = o.at.Add(time.Hour)
	o.Set(nil)
	if len(o.accounts) != 0 {
		t.Errorf("%d accounts are kept", len(o.accounts))
	}
}
