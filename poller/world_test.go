package poller

import (
	"container/heap"
	"context"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/node/testrun"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// world runs machines in one thread, on simulated clocks, over the model store
// and brokers that refuse, fail, go down and lose answers. The same seed gives the
// same run.
type world struct {
	t     interface{ Errorf(string, ...any) }
	r     *rand.Rand
	start postdate.Time
	mono  time.Duration
	queue events
	seq   int
	store *storetest.Mem
	n     int // buckets

	bug      string // a planted one, "" for none
	faults   bool
	node     *simNode // the latest owner
	nodes    int
	down     map[postdate.Channel]time.Duration // until when
	sent     map[string]*history
	order    []string
	messages int
	trace    hash.Hash64 // of every event and effect
}

// history is what happened to one message.
type history struct {
	key       postdate.Key
	execution map[uint64]postdate.Time // by version
	acked     bool
	withdrawn map[uint64]bool // versions that were cancelled or replaced for certain
	arrived   []arrival
}

type arrival struct {
	version uint64
	marked  bool
	at      postdate.Time
}

// simNode is one run of a node. It may be paused, which is how zombies are made.
type simNode struct {
	m       *Machine
	alive   bool
	paused  bool
	backlog []Event
	tick    int
}

type event struct {
	at  time.Duration
	seq int
	do  func()
}

type events []event

func (q events) Len() int      { return len(q) }
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}

const (
	chanFast = postdate.Channel("inbox:fast")
	chanSlow = postdate.Channel("rabbitmq:slow")
	chanBad  = postdate.Channel("rabbitmq:bad")
)

func newWorld(t interface{ Errorf(string, ...any) }, seed uint64) *world {
	return &world{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), start: 1_900_000_000_000, n: 4, store: storetest.NewMem(4),
		trace: fnv.New64a(), faults: true, down: map[postdate.Channel]time.Duration{}, sent: map[string]*history{},
	}
}

func (w *world) now() postdate.Now {
	return postdate.Now{Wall: w.start + postdate.Time(w.mono/time.Millisecond), Mono: w.mono}
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.mono + d, w.seq, do})
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d))) }

func (w *world) chance(p float64) bool { return w.faults && w.r.Float64() < p }

// run lets the world go on until the time has come.
func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until {
		e := heap.Pop(&w.queue).(event)
		w.mono = max(w.mono, e.at)
		e.do()
	}
	w.mono = until
}

var simConfig = func() Config {
	c := DefaultConfig()
	c.HandMax, c.PageMax, c.BatchMax, c.BatchesMax = 256, 16, 8, 4
	c.SettleMax, c.UnparkMax = 32, 8
	return c
}()

// takeOver starts a new run of the node, which takes all buckets, as the fence
// would after the old lease stood still.
func (w *world) takeOver() {
	w.nodes++
	config := simConfig
	if w.bug == bugNoSweep {
		config.SweepEvery = time.Hour
	}
	n := &simNode{m: NewMachine(config, w.r.Float64), alive: true}
	w.node = n
	records, _, _ := w.store.Partitions(context.Background())
	var gained []bucket.Partition
	for _, p := range records {
		got, _ := w.store.Acquire(context.Background(), []store.Acquisition{
			{Bucket: p.Bucket, SeenToken: p.Token, Owner: "n", Lease: fmt.Sprint(w.nodes)},
		})
		if w.bug == bugNoDoubt {
			got[0].Partition.Checkpoint = got[0].Partition.Claimed
		}
		gained = append(gained, got[0].Partition)
	}
	w.tell(n, LeaseUntil{w.mono + 3*time.Second, w.now()})
	w.renew(n)
	w.tell(n, Gained{gained})
}

func (w *world) renew(n *simNode) {
	w.after(time.Second, func() {
		if n != w.node || !n.alive || n.paused {
			return // its lease stands still from now on
		}
		w.tell(n, LeaseUntil{w.mono + 3*time.Second, w.now()})
		w.renew(n)
	})
}

func (w *world) tell(n *simNode, ev Event) {
	if !n.alive {
		return
	}
	if n.paused {
		n.backlog = append(n.backlog, ev)
		return
	}
	now := w.now()
	if w.bug == bugFastClock {
		now.Wall += 20
	}
	fmt.Fprintf(w.trace, "%v %T", now, ev)
	for _, e := range n.m.Step(now, ev) {
		w.note(e)
		w.do(n, e)
	}
	n.tick++
	tick := n.tick
	w.after(n.m.Wake(w.now())+time.Microsecond, func() {
		if n.tick == tick {
			w.tell(n, Tick{})
		}
	})
}

// note adds an effect to the trace.
func (w *world) note(e Effect) {
	switch e := e.(type) {
	case Publish:
		for _, it := range e.Batch {
			fmt.Fprint(w.trace, e.Channel, it.Delivery.Message.ScheduleID, it.Delivery.Attempt, it.Delivery.PossibleDuplicate)
		}
	case Claim:
		for _, c := range e.Claims {
			fmt.Fprint(w.trace, c.Bucket, c.Token, c.Checkpoint, c.Claimed, c.Scan.After, c.Scan.To, c.Scan.Limit)
		}
	default:
		fmt.Fprintf(w.trace, "%+v", e)
	}
}

func (w *world) wakeUp(n *simNode) {
	n.paused = false
	backlog := n.backlog
	n.backlog = nil
	for _, ev := range append(backlog, Tick{}) {
		w.tell(n, ev)
	}
}

var errUnknown = postdate.E(postdate.KindUnknown, "the answer was lost")

// call runs a store call some time later and tells its answer some time after
// that; now and then the call or the answer is lost.
func (w *world) call(n *simNode, do func() Event, lost Event) {
	w.after(w.upTo(5*time.Millisecond), func() {
		if w.chance(0.01) {
			w.after(w.upTo(time.Second), func() { w.tell(n, lost) })
			return
		}
		ev := do()
		if w.chance(0.01) {
			ev = lost
		}
		w.after(w.upTo(5*time.Millisecond), func() { w.tell(n, ev) })
	})
}

func (w *world) do(n *simNode, e Effect) {
	ctx := context.Background()
	switch e := e.(type) {
	case Claim:
		lost := make([]store.ClaimResult, len(e.Claims))
		for i := range lost {
			lost[i].Err = errUnknown
		}
		w.call(n, func() Event { return Claimed{w.store.Claim(ctx, e.Claims)} }, Claimed{lost})
	case Settle:
		w.call(n, func() Event { return Settled{w.store.Settle(ctx, e.Settlements)} }, Settled{errUnknown})
	case FindParked:
		w.call(n, func() Event {
			found, err := w.store.Parked(ctx, e.Buckets)
			return ParkedFound{e.Buckets, found, err}
		}, ParkedFound{e.Buckets, nil, errUnknown})
	case Unpark:
		w.call(n, func() Event {
			moved, err := w.store.Unpark(ctx, e.Unpark)
			return Unparked{e.Unpark, moved, err}
		}, Unparked{e.Unpark, 0, errUnknown})
	case Publish:
		w.publish(n, e)
	}
}

// publish lets each message of a batch have its own fate.
func (w *world) publish(n *simNode, e Publish) {
	results := make([]publisher.Result, len(e.Batch))
	longest := time.Duration(0)
	for i, it := range e.Batch {
		took := w.upTo(3 * time.Millisecond)
		if e.Channel == chanSlow {
			took = w.upTo(400 * time.Millisecond)
		}
		longest = max(longest, took)
		m := *it.Delivery.Message
		marked := it.Delivery.PossibleDuplicate && w.bug != bugNoMark
		arrive := func() {
			w.after(took, func() { w.arrive(&m, it.rec.Version, marked) })
		}
		switch {
		case w.mono < w.down[e.Channel]:
			results[i] = publisher.Result{Outcome: publisher.Down, Reason: "down"}
		case e.Channel == chanBad && w.r.IntN(3) > 0:
			results[i] = publisher.Result{Outcome: publisher.Refused, Reason: "NO_ROUTE"}
		case w.chance(0.02):
			results[i] = publisher.Result{Outcome: publisher.Unknown, Reason: "the connection was lost"}
			if w.bug == bugUnknownIsRefused {
				results[i].Outcome = publisher.Refused
			}
			if w.bug == bugUnknownIsConfirmed {
				results[i].Outcome = publisher.Confirmed
			}
			if w.r.IntN(2) == 0 {
				arrive()
			}
		default:
			results[i] = publisher.Result{Outcome: publisher.Confirmed}
			arrive()
		}
	}
	w.after(longest+w.upTo(2*time.Millisecond), func() { w.tell(n, Published{e.Batch, results}) })
}

func (w *world) arrive(m *postdate.Message, version uint64, marked bool) {
	h := w.sent[m.ScheduleID]
	if m.ExecutionTime >= w.now().Wall {
		w.t.Errorf("%s is early: due in %d ms", m.ScheduleID, m.ExecutionTime-w.now().Wall)
	}
	if h.withdrawn[version] {
		w.t.Errorf("%s version %d arrived after it was taken back for certain", m.ScheduleID, version)
	}
	if !marked {
		for _, a := range h.arrived {
			if !a.marked && a.version == version {
				w.t.Errorf("%s version %d arrived twice without a mark", m.ScheduleID, version)
			}
		}
	}
	h.arrived = append(h.arrived, arrival{version, marked, w.now().Wall})
}

// schedule inserts a message due soon, now, or in the past, and nudges, unless
// the nudge is lost.
func (w *world) schedule() {
	w.messages++
	id := fmt.Sprintf("m%06d", w.messages)
	now := w.now().Wall
	due := now + postdate.Time(w.r.IntN(3000)) - 500
	key := bucket.KeyOf(postdate.DefaultTenant, id, w.n)
	m := postdate.Message{Key: key, Channel: []postdate.Channel{chanFast, chanSlow, chanBad}[w.r.IntN(3)], ExecutionTime: due, Payload: []byte(id)}
	if w.r.IntN(20) == 0 {
		m.ExpiresAt = max(due, now) + postdate.Time(w.r.IntN(2000)) + 1
	}
	h := &history{key: key, execution: map[uint64]postdate.Time{1: due}, withdrawn: map[uint64]bool{}}
	w.sent[id] = h
	w.order = append(w.order, id)
	w.after(w.upTo(200*time.Millisecond), func() { // a slow write: it may come behind the checkpoint
		w.store.Insert(context.Background(), []postdate.Message{m})
		h.acked = true
		w.nudge(key.Bucket, due)
	})
}

func (w *world) nudge(b int, at postdate.Time) {
	if !w.chance(0.1) {
		n := w.node
		w.after(w.upTo(3*time.Millisecond), func() { w.tell(n, Nudged{b, at}) })
	}
}

// withdraw cancels or reschedules a random message, most often one that is due.
func (w *world) withdraw() {
	if len(w.order) == 0 {
		return
	}
	h := w.sent[w.order[max(0, len(w.order)-1-w.r.IntN(200))]]
	rec, err := w.store.Get(context.Background(), h.key)
	if err != nil {
		return
	}
	if w.r.IntN(2) == 0 {
		r := w.store.Cancel(context.Background(), []postdate.Key{h.key}, w.now().Wall)[0]
		if r.Err == nil {
			w.takenBack(h, rec.Version)
		}
		return
	}
	m := rec.Message
	m.ExecutionTime = w.now().Wall + postdate.Time(w.r.IntN(2000))
	if got, err := w.store.Replace(context.Background(), m, rec.Version); err == nil {
		w.takenBack(h, rec.Version)
		h.execution[got.Version] = m.ExecutionTime
		w.nudge(h.key.Bucket, m.ExecutionTime)
	}
}

func (w *world) takenBack(h *history, version uint64) {
	for _, a := range h.arrived {
		if a.version == version {
			w.t.Errorf("%s version %d was taken back for certain after it had arrived", h.key.ScheduleID, version)
		}
	}
	h.withdrawn[version] = true
}

// disturb does one of the things that happen to nodes and brokers, 0 to 3.
func (w *world) disturb(how int) {
	switch how {
	case 0: // a crash, and a restart after a while
		n := w.node
		n.alive = false
		w.after(w.upTo(4*time.Second), func() {
			if w.node == n {
				w.takeOver()
			}
		})
	case 1: // a pause beyond the lease: somebody takes over, and the sleeper wakes up
		n := w.node
		if !n.alive || n.paused {
			return
		}
		n.paused = true
		w.after(4*time.Second, func() {
			if w.node == n {
				w.takeOver()
			}
		})
		w.after(4*time.Second+w.upTo(4*time.Second), func() { w.wakeUp(n) })
	default: // a channel is down for a while
		c := []postdate.Channel{chanFast, chanSlow, chanBad}[w.r.IntN(3)]
		w.down[c] = w.mono + w.upTo(6*time.Second)
	}
}

// play runs a phase with faults and a phase without, in which all must drain.
func (w *world) play(length time.Duration) {
	w.takeOver()
	for at := time.Duration(0); at < length; at += 10 * time.Millisecond {
		w.after(at, func() {
			for range w.r.IntN(4) {
				w.schedule()
			}
			w.withdraw()
		})
	}
	for at := w.upTo(3 * time.Second); at < length; at += w.upTo(6 * time.Second) {
		w.after(at, func() { w.disturb(w.r.IntN(4)) })
	}
	w.after(length/2, func() { w.disturb(0) }) // every run has a crash
	w.run(length)
	w.faults = false
	for end := length + 5*time.Minute; w.mono < end && w.unfinished(); {
		w.run(w.mono + 5*time.Second)
	}
}

func (w *world) unfinished() bool {
	for _, id := range w.order {
		rec, err := w.store.Get(context.Background(), w.sent[id].key)
		if err != nil || !rec.Status.Final() {
			return true
		}
	}
	return false
}

// verdict checks what must hold at the end.
func (w *world) verdict() (delivered, marked int) {
	for _, id := range w.order {
		h := w.sent[id]
		rec, err := w.store.Get(context.Background(), h.key)
		if err != nil || !h.acked {
			w.t.Errorf("%s: %v", id, err)
			continue
		}
		arrived := 0
		for _, a := range h.arrived {
			if a.version == rec.Version {
				arrived++
			}
			if a.marked {
				marked++
			}
		}
		switch rec.Status {
		case postdate.Pending:
			w.t.Errorf("%s is PENDING for ever: %+v", id, rec.State)
		case postdate.Delivered:
			delivered++
			if arrived == 0 {
				w.t.Errorf("%s is DELIVERED and never arrived", id)
			}
		case postdate.DeliveryFailed:
			if arrived > 0 && !rec.PossibleDuplicate {
				w.t.Errorf("%s arrived, and is DELIVERY_FAILED without a doubt: %s", id, rec.LastError)
			}
		case postdate.Cancelled:
			if arrived > 0 {
				w.t.Errorf("%s is CANCELLED and arrived", id)
			}
		}
		for v := range h.withdrawn {
			if v > rec.Version {
				w.t.Errorf("%s: version %d is gone", id, v)
			}
		}
	}
	return delivered, marked
}

// marked says of each complaint that a promise is broken.
type marked struct{ *testing.T }

func (m marked) Errorf(format string, args ...any) {
	m.Helper()
	m.T.Errorf(testrun.Broken+": "+format, args...)
}

// TestWorld holds the machine to the promises, with crashes, zombies, lost
// answers, late inserts, lost nudges and brokers that go down.
func TestWorld(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(marked{t}, seed)
			w.play(20 * time.Second)
			delivered, marked := w.verdict()
			if delivered == 0 || w.nodes == 1 {
				t.Errorf("%d delivered by %d nodes: the run tried nothing", delivered, w.nodes)
			}
			t.Logf("%d messages, %d delivered, %d marked, %d nodes", len(w.order), delivered, marked, w.nodes)
		})
	}
}

// TestSameSeedSameRun shows that a run can be replayed.
func TestSameSeedSameRun(t *testing.T) {
	var traces []uint64
	for range 2 {
		w := newWorld(t, 7)
		w.play(10 * time.Second)
		traces = append(traces, w.trace.Sum64())
	}
	if traces[0] != traces[1] {
		t.Errorf("the same seed gave two runs: %x and %x", traces[0], traces[1])
	}
}

// The planted bugs. Each stands for one that a poller, a store or a publisher
// could have.
const (
	bugNoSweep            = "nothing looks behind the scans"
	bugNoDoubt            = "a new owner takes what its predecessor claimed for settled"
	bugFastClock          = "the node's clock is ahead"
	bugNoMark             = "the mark of a possible duplicate is left out"
	bugUnknownIsRefused   = "an unknown outcome is taken for failed"
	bugUnknownIsConfirmed = "an unknown outcome is taken for done"
)

type verdicts struct{ first string }

func (v *verdicts) Errorf(format string, args ...any) {
	if v.first == "" {
		v.first = fmt.Sprintf(format, args...)
	}
}

// TestWorldBites shows that the checks of TestWorld can fail.
func TestWorldBites(t *testing.T) {
	for _, bug := range []string{bugNoSweep, bugNoDoubt, bugFastClock, bugNoMark, bugUnknownIsRefused, bugUnknownIsConfirmed} {
		t.Run(bug, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(8) {
				var v verdicts
				w := newWorld(&v, seed)
				w.bug = bug
				w.play(10 * time.Second)
				w.verdict()
				if v.first != "" {
					t.Logf("found with seed %d: %s", seed, v.first)
					return
				}
			}
			t.Error("no seed found the bug")
		})
	}
}
