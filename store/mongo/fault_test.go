package mongo_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// TestPrimariesComeAndGo works on a store while primaries step down and are killed: nothing
// that was acknowledged is lost, and no message is published after a cancel of it answered nil.
// POSTDATE_TEST_FAULTS sets the number of faults.
func TestPrimariesComeAndGo(t *testing.T) {
	t.Parallel()
	set := mongotest.Start(t, 3)
	uri := set.Fresh()
	c := config(uri)
	c.Timeout, c.Select = 2*time.Minute, time.Minute // so that only a fault makes a call fail
	clients, owner := open(t, c), open(t, c)
	defer clients.Close()
	defer owner.Close()
	f := &faults{t: t, clients: store.Coalesce(clients), owner: owner, ledger: map[string]*entry{}}
	f.now.Store(1_900_000_000_000)
	f.acquire()
	ctx, stop := context.WithCancel(t.Context())
	var group, owners sync.WaitGroup
	for n := range 6 {
		group.Go(func() { f.client(ctx, n) })
	}
	owning, stopOwning := context.WithCancel(t.Context())
	owners.Go(func() {
		for owning.Err() == nil {
			f.cycle()
		}
	})
	f.progress()
	count := 4
	if n, err := strconv.Atoi(os.Getenv("POSTDATE_TEST_FAULTS")); err == nil {
		count = n
	}
	for n := range count {
		if n%2 == 0 {
			set.StepDown()
			f.progress()
			continue
		}
		victim := set.Primary()
		set.Kill(victim)
		f.progress()
		set.Restart(victim)
	}
	stop()
	group.Wait()
	stopOwning()
	owners.Wait()
	f.now.Add(1000)
	f.finish()
	f.account()
}

// faultPatience bounds every wait for a store that has to work again.
const faultPatience = 2 * time.Minute

// faults is one such run. Its time is a counter that the owner moves.
type faults struct {
	t       *testing.T
	clients store.Store
	owner   *mongo.Store
	now     atomic.Int64
	tokens  []uint64

	worked atomic.Int64 // messages acknowledged and messages settled

	mu     sync.Mutex
	ledger map[string]*entry
}

type entry struct {
	key                             postdate.Key
	acknowledged, cancelled, unsure bool // unsure: the cancel's outcome is unknown
	published                       int
}

// progress waits until work goes on after a fault.
func (f *faults) progress() {
	f.t.Helper()
	goal := f.worked.Load() + 300
	for deadline := time.Now().Add(faultPatience); f.worked.Load() < goal; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) || f.t.Failed() {
			f.t.Fatal("the store does not work again after a fault")
		}
	}
}

// finish publishes what is left; a claim that failed may have left some.
func (f *faults) finish() {
	f.t.Helper()
	for deadline := time.Now().Add(faultPatience); ; time.Sleep(5 * time.Millisecond) {
		published, failed := f.cycle()
		if published == 0 && (!failed || f.t.Failed()) {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("there is no end: %d were published just now; a claim failed: %t", published, failed)
		}
	}
}

func (f *faults) note(id string, change func(e *entry)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f.ledger[id])
}

// client schedules messages and tries to cancel some of them.
func (f *faults) client(ctx context.Context, n int) {
	r := rand.New(rand.NewPCG(uint64(n), 1))
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprintf("c%d-%d", n, i)
		m := testMessage(id, f.clients.Buckets(), postdate.Time(f.now.Load())+postdate.Time(r.IntN(40)-2))
		f.mu.Lock()
		f.ledger[id] = &entry{key: m.Key}
		f.mu.Unlock()
		got := f.clients.Insert(f.t.Context(), []postdate.Message{m})[0]
		if got.Err != nil {
			f.mayFail("Insert", got.Err)
			got = f.clients.Insert(f.t.Context(), []postdate.Message{m})[0] // idempotent
		}
		if got.Err != nil {
			f.mayFail("Insert again", got.Err)
			continue
		}
		f.note(id, func(e *entry) { e.acknowledged = true })
		f.worked.Add(1)
		if r.IntN(2) == 0 {
			f.cancel(m)
		}
	}
}

func (f *faults) cancel(m postdate.Message) {
	f.note(m.ScheduleID, func(e *entry) { e.unsure = true })
	err := f.clients.Cancel(f.t.Context(), []postdate.Key{m.Key}, 1)[0].Err
	f.note(m.ScheduleID, func(e *entry) {
		switch {
		case err == nil:
			e.cancelled, e.unsure = true, false
			if e.published > 0 {
				f.t.Errorf("%s was published, and then a cancel answered nil", m.ScheduleID)
			}
		case postdate.KindOf(err) == postdate.KindTooLate:
			e.unsure = false
		default:
			f.mayFail("Cancel", err)
		}
	})
}

// mayFail allows what a fault excuses.
func (f *faults) mayFail(what string, err error) {
	if kind := postdate.KindOf(err); kind != postdate.KindUnknown && kind != postdate.KindUnavailable {
		f.t.Errorf("%s: %v (%s)", what, err, kind)
	}
}

func (f *faults) acquire() {
	for b := range f.owner.Buckets() {
		got, err := f.owner.Acquire(f.t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "l"}})
		if err != nil || !got[0].OK {
			f.t.Fatalf("Acquire: %+v, %v", got, err)
		}
		f.tokens = append(f.tokens, got[0].Partition.Token)
	}
}

// cycle claims, publishes and settles, and says how many it published and whether a
// claim failed.
func (f *faults) cycle() (published int, failed bool) {
	now := postdate.Time(f.now.Add(1))
	claims := make([]store.Claim, len(f.tokens))
	for b, token := range f.tokens {
		claims[b] = store.Claim{
			Bucket: b, Claim: bucket.Claim{Token: token, Number: uint64(now), Checkpoint: now - 50, To: bucket.UpTo(now)},
			Scan: store.Scan{Limit: 50, BytesMax: 1 << 20},
		}
	}
	var settlements []store.Settlement
	for b, r := range f.owner.Claim(f.t.Context(), claims) {
		if r.Err != nil {
			f.mayFail("Claim", r.Err)
			failed = true
			continue
		}
		for _, m := range r.Due {
			f.note(m.ScheduleID, func(e *entry) {
				e.published++
				if e.cancelled {
					f.t.Errorf("a cancel of %s answered nil, and a claim reads it", m.ScheduleID)
				}
			})
			settlements = append(settlements, store.Settlement{Key: m.Key, ExecutionTime: m.ExecutionTime, Version: m.Version, Token: f.tokens[b], How: store.SettleDelivered, At: now, Attempts: 1})
		}
	}
	for {
		err := f.owner.Settle(f.t.Context(), settlements)
		if err == nil {
			f.worked.Add(int64(len(settlements)))
			return len(settlements), failed
		}
		f.mayFail("Settle", err)
	}
}

// account checks what everybody was told against what is in the store.
func (f *faults) account() {
	cancelled, published, unsure := 0, 0, 0
	for id, e := range f.ledger {
		rec, err := f.owner.Get(f.t.Context(), e.key)
		switch {
		case postdate.KindOf(err) == postdate.KindNotFound && e.acknowledged:
			f.t.Errorf("%s: %s (%+v) is lost", testrun.Broken, id, *e)
		case err != nil && postdate.KindOf(err) != postdate.KindNotFound:
			f.t.Errorf("%s (%+v): %v", id, *e, err)
		case err != nil:
		case e.cancelled != (rec.Status == postdate.Cancelled) && !e.unsure:
			f.t.Errorf("%s: %s (%+v) is %s", testrun.Broken, id, *e, rec.Status)
		case rec.Status == postdate.Cancelled && e.published > 0:
			f.t.Errorf("%s: %s was published and is CANCELLED", testrun.Broken, id)
		case rec.Status == postdate.Delivered && e.published == 0, !rec.Status.Final():
			f.t.Errorf("%s: %s (%+v) is %s", testrun.Broken, id, *e, rec.Status)
		}
		if e.cancelled {
			cancelled++
		}
		if e.published > 0 {
			published++
		}
		if e.unsure {
			unsure++
		}
	}
	if cancelled < 50 || published < 50 {
		f.t.Errorf("%d were cancelled and %d published: that shows nothing", cancelled, published)
	}
	f.t.Logf("%d messages, %d cancelled, %d published, %d cancels unknown", len(f.ledger), cancelled, published, unsure)
}
