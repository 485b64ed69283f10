package poller

import (
	"container/heap"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// If a message is rescheduled while its settlement is not known to be written, it is read again
// once that is known, and the checkpoint does not pass it.
func TestRescheduledWhileTheSettlementIsUnknown(t *testing.T) {
	b := newBench(t)
	due := records("inbox:y", 1, b.now.Wall-10)
	claim := func(effects []Effect) Claim {
		t.Helper()
		all := of[Claim](effects)
		if len(all) == 0 {
			t.Fatalf("no claim among %+v", effects)
		}
		return all[0]
	}
	first := claim(b.own(0, 1))
	published := b.answer(first, due)[0].(Publish)
	b.step(Published{published.Batch, []publisher.Result{refused}})
	b.after(10 * ms)
	b.step(fence.Tick{}) // settles
	b.step(Settled{b.m.settleCall(), postdate.E(postdate.KindUnknown, "lost")})

	// It was written; then the client rescheduled the message, and a scan sees that.
	due = slices.Clone(due)
	rec := &due[0]
	rec.Version, rec.AttemptTime, rec.ExecutionTime = 2, first.Claims[0].To.Time, first.Claims[0].To.Time
	b.after(50 * ms)
	effects := b.answer(claim(b.step(Nudged{[]Nudge{{0, rec.AttemptTime}}})), due)

	b.after(b.m.c.RetryAfter)
	b.step(fence.Tick{}) // settles again
	again := claim(append(effects, b.step(Settled{Call: b.m.settleCall()})...))
	if c := again.Claims[0]; c.Checkpoint >= rec.AttemptTime || !c.Scan.After.Before(bucket.PositionOf(rec.Key, rec.AttemptTime)) {
		t.Errorf("the next claim has the checkpoint %d and reads from %d, and the message is due at %d", c.Checkpoint, c.Scan.After.Time, rec.AttemptTime)
	}
	for _, p := range of[Publish](b.answer(again, due)) {
		if p.Batch[0].rec.Version == 2 {
			return
		}
	}
	t.Error("the new version is not published")
}

// A nudge for the millisecond within which a page ended is not mistaken for a message that the
// next page finds.
func TestNudgeWhereAPageEnded(t *testing.T) {
	b := newBench(t)
	due := bucket.Position{Time: b.now.Wall - 5, Tenant: postdate.DefaultTenant, ScheduleID: "k"}
	b.own(0, 1)
	b.step(Nudged{[]Nudge{{0, due.Time}}})                                                  // a message "j" of the same time
	effects := b.step(Claimed{b.m.claimCall(), []store.ClaimResult{{To: due, Ended: due}}}) // the page is full
	for range 5 {
		for _, c := range of[Claim](effects) {
			if c.Claims[0].Scan.After.Before(bucket.Position{Time: due.Time, Tenant: postdate.DefaultTenant, ScheduleID: "j"}) {
				return
			}
			effects = b.answer(c, nil)
		}
	}
	t.Error("no scan goes back to it before the sweep")
}

// A claim that was given up may take effect after its successor. The store recognizes it by its
// number, so each claim is numbered above all earlier ones, whatever became of them.
func TestClaimsAreNumbered(t *testing.T) {
	b := newBench(t)
	p := bucket.Partition{Owner: "n", Token: 1, Claims: 7, Checkpoint: b.now.Wall - 100, Claimed: bucket.UpTo(b.now.Wall - 100)}
	effects := b.step(fence.Gained{Partitions: []bucket.Partition{p}})
	last := uint64(7)
	for i := range 20 {
		for _, c := range of[Claim](effects) {
			if c.Claims[0].Number <= last {
				t.Fatalf("claim number %d follows number %d", c.Claims[0].Number, last)
			}
			last = c.Claims[0].Number
			r := seen(c.Claims[0])
			if i%2 == 0 {
				r = store.ClaimResult{Err: postdate.E(postdate.KindUnknown, "lost")}
			}
			b.step(Claimed{c.Call, []store.ClaimResult{r}})
		}
		b.after(time.Second)
		effects = b.step(Nudged{[]Nudge{{0, b.now.Wall}}})
	}
	if last < 17 {
		t.Errorf("there were %d claims in 20 seconds: such a run shows nothing", last-7)
	}
}

// A delivery says which attempt it is, and whether the message may have arrived already,
// because an earlier attempt, an earlier owner, or whoever scheduled it may have sent it. Its
// settlement records the doubt that an attempt left.
func TestMarks(t *testing.T) {
	for i := range 8 {
		before, claimed, mayRepeat := i&1 != 0, i&2 != 0, i&4 != 0
		b := newBench(t)
		due := records("inbox:a", 1, b.now.Wall-100)
		if claimed { // by an earlier owner
			due = records("inbox:a", 1, b.now.Wall-700)
		}
		due[0].Attempts, due[0].PossibleDuplicate, due[0].MayRepeat = 2, before, mayRepeat
		batch := of[Publish](b.answer(of[Claim](b.own(0, 1))[0], due))[0].Batch
		if d := batch[0].Delivery; d.Attempt != 3 || d.PossibleDuplicate != (before || claimed || mayRepeat) {
			t.Errorf("tried before %t, claimed before %t, may repeat %t: it is delivered as %+v", before, claimed, mayRepeat, d)
		}
		effects := b.step(Published{batch, []publisher.Result{confirmed}})
		as := of[Settle](append(effects, b.step(fence.Tick{})...))[0].Settlements[0]
		if as.Attempts != 3 || as.PossibleDuplicate != (before || claimed) {
			t.Errorf("tried before %t, claimed before %t, may repeat %t: it is settled as %+v", before, claimed, mayRepeat, as)
		}
	}
}

// A message at the checkpoint itself is published once the checkpoint is lowered: otherwise a
// crash would not leave it in doubt.
func TestFoundAtTheCheckpoint(t *testing.T) {
	b := newBench(t)
	claims := of[Claim](b.own(0, 1))
	at := claims[0].Claims[0].Checkpoint
	due := records("inbox:a", 1, at)
	effects := b.answer(claims[0], due)
	claims = of[Claim](effects)
	if len(of[Publish](effects)) > 0 || len(claims) != 1 || claims[0].Claims[0].Checkpoint >= at {
		t.Fatalf("it is due at %d, the checkpoint: %+v", at, effects)
	}
	if effects = b.answer(claims[0], due); len(of[Publish](effects)) != 1 {
		t.Errorf("when the checkpoint is lower: %+v", effects)
	}
}

// A message that is parked again while a scan is under way, and then moved by its client, is
// another version: a scan that has read that version is right.
func TestMovedWhileAScanIsUnderWay(t *testing.T) {
	b := newBench(t)
	b.m.c.SettleGather = 0
	b.owned(nil)
	due := records("inbox:x", 1, b.now.Wall-60_000)
	due[0].Parked, due[0].AttemptTime = true, b.now.Wall-1_000
	claim := of[Claim](b.step(Nudged{[]Nudge{{0, due[0].AttemptTime}}}))[0]
	if len(of[Settle](b.answer(claim, due))) != 1 {
		t.Fatal("it is not parked again")
	}
	b.after(200 * ms)
	claim = of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall - 100}}}))[0]
	b.step(Settled{Call: b.m.settleCall()})
	moved := records("inbox:x", 1, b.now.Wall-1)
	moved[0].Version = due[0].Version + 1
	if effects := b.answer(claim, moved); len(of[Publish](effects)) != 1 {
		t.Errorf("%+v", effects)
	}
}

// Payloads in memory leave less room for claims until they are settled.
func TestPayloadsInHandTakeRoom(t *testing.T) {
	b := newBench(t)
	b.answerAll(b.own(0, 1))
	ask := func() Claim {
		t.Helper()
		b.after(100 * ms)
		claims := of[Claim](b.step(Nudged{[]Nudge{{0, b.now.Wall}}}))
		if len(claims) != 1 {
			t.Fatalf("%d claims", len(claims))
		}
		return claims[0]
	}
	const size = 1 << 20
	claim := ask()
	due := records("inbox:a", 1, b.now.Wall-1)
	due[0].Payload = make([]byte, size)
	free := claim.Claims[0].Scan.BytesMax
	batch := of[Publish](b.answer(claim, due))[0].Batch
	claim = ask()
	if got := claim.Claims[0].Scan.BytesMax; got != free-size/2 {
		t.Errorf("with %d bytes in hand a claim may bring %d, and without them %d", size, got, free)
	}
	b.answer(claim, nil)
	b.step(Published{batch, []publisher.Result{confirmed}})
	b.after(10 * ms)
	b.step(fence.Tick{})
	b.step(Settled{Call: b.m.settleCall()})
	if got := ask().Claims[0].Scan.BytesMax; got != free {
		t.Errorf("with nothing in hand a claim may bring %d, and %d before", got, free)
	}
}

// twoBuckets has, for one channel, a message in bucket 0 that waits for its time, parked or
// not, and others in bucket 1, of which `published` are with the broker. Then bucket 0 is lost.
func twoBuckets(t *testing.T, parked bool, published int) *bench {
	b := newBench(t)
	b.answerAll(b.own(0, 1))
	b.answerAll(b.own(1, 1))
	b.step(ParkedFound{})
	give := func(number int, due []postdate.Record) []Effect {
		b.after(ms)
		claims := of[Claim](b.step(Nudged{[]Nudge{{number, due[0].AttemptTime}}}))
		return b.answer(claims[0], in(number, due))
	}
	first := records("inbox:a", 1, b.now.Wall+15)
	first[0].Parked = parked
	give(0, first)
	if effects := give(1, append(records("inbox:a", published, b.now.Wall), records("inbox:b", 1, b.now.Wall)...)); len(of[Publish](effects)) != 2 {
		t.Fatalf("%+v", effects)
	}
	b.step(fence.Lost{Holds: holds(0)})
	return b
}

// A parked message is never published, even if unparked messages of its channel went with a
// bucket that was lost.
func TestNothingParkedIsPublishedAfterALoss(t *testing.T) {
	b := twoBuckets(t, false, 1)
	due := in(1, records("inbox:a", 2, b.now.Wall-1)[1:])
	due[0].Parked = true
	effects := b.answer(of[Claim](b.step(Nudged{[]Nudge{{1, due[0].AttemptTime}}}))[0], due)
	if len(of[Publish](effects)) > 0 {
		t.Errorf("%+v", effects)
	}
}

// A channel with messages at its broker is not assumed to be down because some are found
// parked, even if other parked ones went with a bucket that was lost.
func TestAChannelIsTriedAfterALoss(t *testing.T) {
	b := twoBuckets(t, true, 2)
	b.step(ParkedFound{Found: []store.ParkedRoute{{Bucket: 1, Route: "inbox:a"}}})
	if down := b.m.View(b.now).Down; down > 0 {
		t.Errorf("%d channels are down", down)
	}
}

// The heaps return what is first, whatever was added and removed, and keep nothing of it.
func TestHeaps(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	var waiting itemHeap
	var oldest attemptHeap
	var all []*Item
	for range 2_000 {
		if random.IntN(5) > 1 {
			it := &Item{rec: &postdate.Record{State: postdate.State{AttemptTime: postdate.Time(random.IntN(1_000))}}, due: postdate.Time(random.IntN(1_000))}
			heap.Push(&waiting, it)
			heap.Push(&oldest, it)
			all = append(all, it)
			continue
		}
		if len(all) == 0 {
			continue
		}
		byDue := slices.MinFunc(all, func(x, y *Item) int { return int(x.due - y.due) })
		it := heap.Pop(&waiting).(*Item)
		if it.due != byDue.due {
			t.Fatalf("what waits until %d comes first, and %d is earlier", it.due, byDue.due)
		}
		oldest.remove(it)
		all = slices.DeleteFunc(all, func(o *Item) bool { return o == it })
		first := oldest.first()
		if first == nil {
			if len(all) > 0 {
				t.Fatalf("none of %d is the oldest", len(all))
			}
			continue
		}
		want := slices.MinFunc(all, func(x, y *Item) int { return int(x.rec.AttemptTime - y.rec.AttemptTime) })
		if oldest.Len() != len(all) || first.rec.AttemptTime != want.rec.AttemptTime {
			t.Fatalf("the oldest is of %d, want %d", first.rec.AttemptTime, want.rec.AttemptTime)
		}
	}
	for _, h := range []itemHeap{waiting, oldest.itemHeap} {
		if slices.ContainsFunc(h[len(h):cap(h)], func(it *Item) bool { return it != nil }) {
			t.Error("it keeps items that it gave")
		}
	}
}
