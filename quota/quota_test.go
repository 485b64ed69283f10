package quota

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// office is a keeper before a store, with a clock that the test sets.
type office struct {
	*Keeper
	t     *testing.T
	store *storetest.Mem
	held  store.Messages
	at    time.Time
	nodes int
}

func newOffice(t *testing.T, l Limits) *office {
	o := &office{t: t, store: storetest.NewMem(4), at: time.Unix(1_900_000_000, 0), nodes: 1}
	o.Keeper = NewKeeper(l, o.store, func() int { return o.nodes }, func() time.Time { return o.at })
	o.held = o.Hold(o.store)
	return o
}

func message(tenant, id string, size int, channel postdate.Channel) postdate.Message {
	m := postdate.Message{Key: bucket.KeyOf(tenant, id, 4), Channel: channel, ExecutionTime: 1_900_000_000_000,
		Payload: make([]byte, size)}
	m.Digest = postdate.DigestOf(&m, "")
	return m
}

func (o *office) insert(all ...postdate.Message) []store.Inserted {
	return o.held.Insert(o.t.Context(), all)
}

// wantLimited expects that a call was refused for a limit, with a time to come again.
func wantLimited(t *testing.T, err error, words string) {
	t.Helper()
	storetest.Refused(t, err, postdate.KindLimited, words, "surely nothing was done")
	if e, is := err.(*postdate.Error); !is || e.RetryAfter <= 0 {
		t.Errorf("it does not say when to come again: %v", err)
	}
}

func wantTaken(t *testing.T, r store.Inserted) {
	t.Helper()
	if r.Err != nil || !r.Created {
		t.Errorf("got %+v", r)
	}
}

// A payload that never fits is not told to come again, unless it is stored already.
func TestWhatNeverFits(t *testing.T) {
	o := newOffice(t, Limits{})
	wantTaken(t, o.insert(message("a", "old", 11, "x:a"))[0])
	most := int64(10)
	o.Set([]store.TenantSettings{{Tenant: "a", BytesMax: &most}})
	r := o.insert(message("a", "new", 11, "x:a"), message("a", "old", 11, "x:a"))
	storetest.Refused(t, r[0].Err, postdate.KindTooLarge, "the payload has 11 bytes", "may have 10 (bytesMax)", "surely nothing was done")
	if r[1].Err != nil || r[1].Created {
		t.Errorf("what is stored already: %+v", r[1])
	}
}

func TestPendingMax(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 3})
	r := o.insert(message("a", "1", 1, "x:a"), message("a", "2", 1, "x:a"), message("b", "1", 1, "x:a"),
		message("a", "3", 1, "x:a"), message("a", "4", 1, "x:a"), message("b", "2", 1, "x:a"))
	for _, i := range []int{0, 1, 2, 3, 5} {
		wantTaken(t, r[i])
	}
	wantLimited(t, r[4].Err, "pendingMax")
	if c := o.held.Cancel(t.Context(), []postdate.Key{message("a", "2", 1, "x:a").Key}, 1)[0]; c.Err != nil {
		t.Fatal(c.Err)
	}
	wantTaken(t, o.insert(message("a", "4", 1, "x:a"))[0])
	wantLimited(t, o.insert(message("a", "5", 1, "x:a"))[0].Err, "has 3 messages pending, and may have 3")
	if _, err := o.store.Get(t.Context(), message("a", "5", 1, "x:a").Key); postdate.KindOf(err) != postdate.KindNotFound {
		t.Errorf("the refused message: %v", err)
	}
}

func TestBytesAndChannelsMax(t *testing.T) {
	o := newOffice(t, Limits{BytesMax: 100, ChannelsMax: 2})
	wantTaken(t, o.insert(message("a", "1", 60, "x:a"))[0])
	wantLimited(t, o.insert(message("a", "2", 41, "x:a"))[0].Err, "bytesMax")
	wantTaken(t, o.insert(message("a", "3", 40, "x:b"))[0])
	r := o.insert(message("a", "4", 0, "x:b"), message("a", "5", 0, "x:c"), message("b", "6", 0, "x:c"))
	wantTaken(t, r[0])
	wantLimited(t, r[1].Err, "channelsMax")
	wantTaken(t, r[2])
	replace := func(size int, channel postdate.Channel) error {
		old, err := o.store.Get(t.Context(), message("a", "3", 0, "x:b").Key)
		if err != nil {
			t.Fatal(err)
		}
		_, err = storetest.Replace(t.Context(), o.held, message("a", "3", size, channel), old.Version)
		return err
	}
	if err := replace(40, "x:a"); err != nil {
		t.Errorf("as large as before, at the limit: %v", err)
	}
	wantLimited(t, replace(41, "x:a"), "bytesMax")
	wantLimited(t, replace(1, "x:new"), "channelsMax")
	if err := replace(1, "x:a"); err != nil {
		t.Errorf("smaller: %v", err)
	}
	_, err := storetest.Replace(t.Context(), o.held, message("a", "none", 1, "x:a"), 1)
	storetest.Refused(t, err, postdate.KindNotFound)
}

// However many call at a time, no more is pending than may be, and what is refused frees what it held.
func TestLimitsHoldForCallsAtATime(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 50, ChannelsMax: 5, BytesMax: 10_000})
	var all sync.WaitGroup
	for c := range 64 {
		all.Go(func() {
			for i := range 10 {
				o.insert(message("a", fmt.Sprint(c, "-", i), 10, postdate.Channel(fmt.Sprint("x:", c%20))))
			}
		})
	}
	all.Wait()
	usage, _ := o.store.UsageOf("a", "")
	if usage.Messages != 50 || usage.Channels > 5 {
		t.Errorf("pending are %+v", usage)
	}
	if coming := o.accounts["a"].coming; !coming.none() {
		t.Errorf("%+v is held after the last call", coming)
	}
}

// In any time a rate lets through what it gives in that time, a second's worth more, and the call that
// goes beyond. Who waits as told comes through.
func TestRates(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		perSecond := []float64{0.5, 1, 7, 100, 1e6}[r.IntN(5)]
		o := newOffice(t, Limits{MessagesPerSecond: perSecond})
		begin, taken, last := o.at, 0, 0
		for i := range 100 {
			o.at = o.at.Add(time.Duration(r.Int64N(int64(time.Second))))
			last = 1 + r.IntN(1+int(perSecond)*2%5000)
			err := o.takeRate("a", last)
			if err == nil {
				taken += last
				continue
			}
			if most := perSecond*(o.at.Sub(begin).Seconds()+1) + 1 + 5001; float64(taken) > most {
				t.Fatalf("%d messages in %s at %g a second", taken, o.at.Sub(begin), perSecond)
			}
			o.at = o.at.Add(err.(*postdate.Error).RetryAfter + time.Microsecond)
			if err := o.takeRate("a", 1); err != nil {
				t.Fatalf("call %d after the wait: %v", i, err)
			}
			taken++
		}
	}
}

func TestRequests(t *testing.T) {
	o := newOffice(t, Limits{RequestsPerSecond: 10})
	for i := range 10 {
		err := o.Request("a", false)
		p, _ := o.Paces("a")
		if err != nil || p.Burst != 10 || p.Left != 9-i {
			t.Fatalf("request %d: %+v, %v", i, p, err)
		}
	}
	err := o.Request("a", false)
	p, _ := o.Paces("a")
	wantLimited(t, err, "requestsPerSecond")
	if p.Left != 0 || p.Full != time.Second {
		t.Errorf("it has %+v", p)
	}
	if err := o.Request("b", false); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	o.nodes = 2
	o.Set(nil) // the nodes share the rate
	if p, _ := o.Paces("b"); p.Burst != 5 {
		t.Errorf("with two nodes: %+v", p)
	}
}

// What an operator sets for a tenant holds at once, for it alone, and 0 is no limit.
func TestSettings(t *testing.T) {
	o := newOffice(t, Limits{PendingMax: 1})
	one, none, weight := int64(2), int64(0), 5
	o.Set([]store.TenantSettings{{Tenant: "a", PendingMax: &one, Weight: &weight}, {Tenant: "b", PendingMax: &none}})
	for tenant, most := range map[string]int{"a": 2, "b": 9, "c": 1} {
		for i := range 9 {
			if r := o.insert(message(tenant, fmt.Sprint(i), 1, "x:a"))[0]; (r.Err == nil) != (i < most) {
				t.Errorf("message %d of %s: %v", i, tenant, r.Err)
			}
		}
	}
	if o.LimitsOf("a").Weight != 5 || o.LimitsOf("c").Weight != 1 {
		t.Errorf("the limits are %+v and %+v", o.LimitsOf("a"), o.LimitsOf("c"))
	}
	o.Set(nil)
	wantLimited(t, o.insert(message("b", "9", 1, "x:a"))[0].Err, "may have 1")
}

// Where nobody has limits, nothing is asked or held.
func TestNoLimits(t *testing.T) {
	o := newOffice(t, Limits{Weight: 1})
	if err := o.Request("a", true); err != nil {
		t.Error(err)
	}
	if requests, messages := o.Paces("a"); requests != nil || messages != nil {
		t.Error(requests, messages)
	}
	wantTaken(t, o.insert(message("a", "1", 1, "x:a"))[0])
	if len(o.accounts) > 0 {
		t.Errorf("%d accounts are kept", len(o.accounts))
	}
}

// However low a rate is, it lets no more through than one.
func TestVeryLowRates(t *testing.T) {
	o := newOffice(t, Limits{RequestsPerSecond: 1e-10, MessagesPerSecond: 1e-10})
	err := o.Request("a", true)
	if p, _ := o.Paces("a"); err != nil || p.Full <= 0 || p.Window <= 0 {
		t.Errorf("the first request: %+v, %v", p, err)
	}
	wantLimited(t, o.Request("a", false), "requestsPerSecond")
	wantTaken(t, o.insert(message("a", "1", 1, "x:a"))[0])
	wantLimited(t, o.insert(message("a", "2", 1, "x:a"))[0].Err, "messagesPerSecond")
}
