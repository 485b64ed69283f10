package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// loop runs the node's machine: it reads the clocks, carries out the effects, and feeds their
// results back in. It decides nothing.
type loop struct {
	m        *machine.Machine
	board    *machine.Board
	store    store.Store
	channels *channels
	jobs     *jobs
	cluster  *cluster // nil if there are no other nodes
	clock    clock
	leaseID  string
	lease    time.Duration // after which a call about locks is given up and repeated
	metrics  *poller.Metrics
	tracer   *tracing.Tracer // nil: nothing is traced
	log      *slog.Logger

	events chan machine.Event
	nudged chan struct{}
	asks   chan chan []poller.ChannelView
	calls  sync.WaitGroup // calls to the store and to brokers that have not returned
	ended  chan struct{}  // closed when the loop takes no more events

	mu     sync.Mutex
	status machine.Status
	view   poller.View
}

// keepOutMax bounds one attempt to fence former owners at a broker.
const keepOutMax = 30 * time.Second

// openLoop makes the node's machine and the loop that runs it.
func (n *Node) openLoop() error {
	run, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("naming this run: %w", err)
	}
	c := machine.Config{
		Fence:   fence.DefaultConfig(n.c.NodeID, machine.LeaseID(n.c.NodeID, run.String())),
		Poller:  poller.DefaultConfig(),
		Buckets: n.store.Buckets(), Broker: n.c.Kafka.Fenced, Retention: n.c.Retention,
		InboxRetention: n.c.InboxRetention,
	}
	c.Fence.Exclusive, c.Fence.SkewMax = n.store.Exclusive(), n.c.ClockSkewMax
	if n.c.Lease > 0 {
		c = c.WithLease(n.c.Lease)
	}
	c.Poller.Fits = func(tenant string, payloadBytes int) bool { return n.quota.Fits(tenant, payloadBytes) }
	c.Poller.Delivers = n.deliverer != nil
	c.Poller.Retry, c.Poller.PayloadBytesMax = n.c.Retry, n.c.PayloadBytesMax
	c.Poller.HandBytesMax = max(c.Poller.HandBytesMax, 8*n.c.PayloadBytesMax)
	if !n.store.Exclusive() {
		// A claim takes two round trips to a majority, instead of one sync of a local disk.
		c.Poller.Ahead, c.Poller.Gather, c.Poller.SettleGather = 80*time.Millisecond, 40*time.Millisecond,
			20*time.Millisecond
	}
	if err := cmp.Or(c.Fence.Validate(), c.Poller.Validate()); err != nil {
		return err
	}
	n.loop = newLoop(c, n.store, n.clock, poller.NewMetrics(n.metrics), n.c.Log)
	return nil
}

func newLoop(c machine.Config, s store.Store, clock clock, metrics *poller.Metrics, log *slog.Logger) *loop {
	m := machine.New(c, rand.Float64)
	return &loop{
		m: m, board: m.Board(), store: s, clock: clock, leaseID: c.Fence.Lease, lease: c.Fence.LeaseTime,
		metrics: metrics, log: log,
		events: make(chan machine.Event, 256), nudged: make(chan struct{}, 1),
		asks:  make(chan chan []poller.ChannelView),
		ended: make(chan struct{}),
	}
}

// tell passes an event to the machine. It may block until the loop takes the event, and does
// nothing once the loop has ended.
func (l *loop) tell(ev machine.Event) {
	select {
	case l.events <- ev:
	case <-l.ended:
	}
}

// nudge tells the machine when a durable message is due. It never blocks.
func (l *loop) nudge(n poller.Nudge) {
	if l.board.Nudge(n) {
		select {
		case l.nudged <- struct{}{}:
		default: // the loop is about to take them anyway
		}
	}
}

// awaitSettings takes in what operators set for channels before anything else: without it, a paused channel could
// get messages, and one that fails could miss its failure channel.
func (l *loop) awaitSettings(ctx context.Context) {
	var later []machine.Event
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-l.events:
			if _, set := ev.(poller.Limits); !set {
				later = append(later, ev)
				continue
			}
			l.step(ctx, ev)
			for _, ev := range later {
				l.step(ctx, ev)
			}
			return
		}
	}
}

// run runs until ctx ends, and returns when its calls have returned. What is then in flight
// stays in doubt. Buckets that are still owned stay locked until other nodes have watched the
// lease stand still.
func (l *loop) run(ctx context.Context) {
	defer l.calls.Wait() // whoever closes the store waits for run
	defer close(l.ended)
	l.awaitSettings(ctx)
	alarm := newAlarm()
	defer alarm.stop()
	alarm.set(0)
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-l.events:
			l.step(ctx, ev)
		case <-l.nudged:
			l.step(ctx, poller.Nudged{Nudges: l.board.Take()})
		case <-alarm.rings:
			l.step(ctx, fence.Tick{})
		case answer := <-l.asks:
			answer <- l.m.Channels()
		}
		// Events that came meanwhile, before the alarm is set; those that come during their steps wait.
		for range len(l.events) {
			l.step(ctx, <-l.events)
		}
		l.show()
		alarm.set(l.wait())
	}
}

// wait returns how long to wait for the next event. The machine counts from the beginning of
// the current millisecond, part of which has passed.
func (l *loop) wait() time.Duration {
	now := l.clock.now()
	over := time.Duration(time.Now().Nanosecond()) % time.Millisecond
	return max(l.m.Wake(now)-over, 0)
}

func (l *loop) step(ctx context.Context, ev machine.Event) {
	if p, ok := ev.(poller.Published); ok {
		l.metrics.Published(p, time.Now())
	}
	for _, e := range l.m.Step(l.clock.now(), ev) {
		l.do(ctx, e)
	}
}

// do carries out one effect. Calls to a store or a broker run in goroutines of their own.
func (l *loop) do(ctx context.Context, e machine.Effect) {
	switch e := e.(type) {
	case fence.Look, fence.Renew, fence.Take, fence.GiveBack:
		began := l.clock.now()
		l.calls.Go(func() { l.callLocks(ctx, began, e) })
	case poller.Claim:
		l.calls.Go(func() { l.tell(poller.Claimed{Call: e.Call, Results: l.store.Claim(ctx, e.Claims)}) })
	case poller.Publish:
		l.calls.Go(func() { l.tell(poller.Published{Batch: e.Batch, Results: l.traced(ctx, e)}) })
	case poller.Settle:
		l.calls.Go(func() {
			err := l.store.Settle(ctx, e.Settlements)
			if err == nil {
				l.metrics.Settled(e.Settlements)
			} else {
				l.log.Warn("settling failed and is repeated", "messages", len(e.Settlements), "error", err)
			}
			l.tell(poller.Settled{Call: e.Call, Err: err})
		})
	case poller.FindParked:
		l.calls.Go(func() {
			found, err := l.store.Parked(ctx, e.Buckets)
			l.tell(poller.ParkedFound{Buckets: e.Buckets, Found: found, Err: err})
		})
	case poller.Unpark:
		l.calls.Go(func() {
			moved, early, err := l.store.Unpark(ctx, e.Unpark)
			l.tell(poller.Unparked{Unpark: e.Unpark, Moved: moved, Early: early, Err: err})
		})
	case machine.Expire:
		l.calls.Go(func() {
			count, err := l.store.Expire(ctx, e.Expiry)
			if err != nil {
				l.log.Warn("expiring messages failed and is repeated", "error", err)
			}
			l.tell(machine.Expired{Count: count, Err: err})
		})
	case machine.Work:
		l.calls.Go(func() { l.tell(machine.Worked{More: l.jobs.turn(ctx, e.Buckets)}) })
	case machine.KeepOut:
		l.calls.Go(func() { l.tell(machine.KeptOut{Holds: e.Holds, Err: l.keepOut(ctx, e)}) })
	case machine.GiveUp:
		l.channels.fencer.Lost(e.Buckets)
	case machine.Released:
		if l.cluster != nil {
			l.cluster.released(e.To)
		}
	default:
		l.report(e)
	}
}

// callLocks makes one of the store's calls about locks. It gives up after a lease time.
func (l *loop) callLocks(ctx context.Context, began postdate.Now, e machine.Effect) {
	ctx, cancel := context.WithTimeout(ctx, l.lease)
	defer cancel()
	var ev machine.Event
	var what string
	var err error
	switch e := e.(type) {
	case fence.Look:
		what = "reading leases and partition records"
		saw := fence.Saw{Began: began.Mono}
		saw.Partitions, saw.Leases, err = l.store.Look(ctx, e.Buckets)
		saw.Err, ev = err, saw
	case fence.Renew:
		what = "renewing the lease"
		renewed := fence.Renewed{Began: began}
		renewed.Store, err = l.store.Renew(ctx, e.Lease)
		renewed.WallEnded, renewed.Err = l.clock.wall(), err
		ev = renewed
	case fence.Take:
		what = "taking buckets"
		var took fence.Took
		took.Results, err = l.store.Acquire(ctx, e.Wants)
		took.Err, ev = err, took
	case fence.GiveBack:
		what = "giving buckets back"
		err = l.store.Release(ctx, e.Holds)
		ev = fence.GaveBack{Holds: e.Holds, Err: err}
	}
	if err != nil && ctx.Err() != context.Canceled {
		l.log.Warn(what+" failed and is repeated", "error", err)
	}
	l.tell(ev)
}

// keepOut fences former owners of buckets at the broker.
func (l *loop) keepOut(ctx context.Context, e machine.KeepOut) error {
	ctx, cancel := context.WithTimeout(ctx, keepOutMax)
	defer cancel()
	buckets := make([]int, len(e.Holds))
	for i, hold := range e.Holds {
		buckets[i] = hold.Bucket
	}
	err := l.channels.fencer.Gained(ctx, buckets)
	if err != nil && ctx.Err() != context.Canceled {
		l.log.Warn("fencing buckets at Kafka failed and is repeated; their messages for Kafka wait",
			"buckets", len(buckets), "error", err)
	}
	return err
}

// publish publishes a batch. If a publisher panics on a poison message, or returns too few
// results, the outcome is unknown and the node lives on.
func (l *loop) publish(ctx context.Context, e poller.Publish) (results []publisher.Result) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("a publisher panicked", "channel", e.Channel.Shown(), "panic", p,
				"stack", string(debug.Stack()))
			results = publisher.All(len(e.Batch), publisher.Result{Outcome: publisher.Unknown,
				Reason: "internal error of the publisher: the node's log says more"})
		}
	}()
	batch := make([]postdate.Delivery, len(e.Batch))
	for i, it := range e.Batch {
		batch[i] = it.Delivery
	}
	if e.Settlements != nil {
		results = l.channels.inbox.Deliver(ctx, e.Channel, batch, e.Settlements)
	} else {
		results = l.channels.publish(ctx, e.Channel, batch)
	}
	if len(results) != len(batch) {
		return publisher.All(len(batch), publisher.Result{Outcome: publisher.Unknown,
			Reason: "internal error: the publisher did not say what became of each message"})
	}
	return results
}

// report logs what an operator should know.
func (l *loop) report(e machine.Effect) {
	switch e := e.(type) {
	case fence.Gained:
		l.log.Info("took buckets", "count", len(e.Partitions))
	case fence.Lost:
		l.log.Warn("lost buckets: another node has them, this node renewed its lease too late or slept, "+
			"or its clock is wrong; it asks for them again by itself", "count", len(e.Holds))
	case fence.Fenced:
		for _, hold := range e.Holds {
			l.log.Warn("a claim was refused: the bucket has another owner", "bucket", hold.Bucket, "token", hold.Token)
		}
	case fence.ClockSet:
		l.log.Warn("the wall clock was set, or the machine slept: nothing is delivered until the lease is renewed",
			"by", e.By)
	case fence.Skewed:
		if e.Ahead != 0 {
			l.log.Error("this machine's clock is too far from the store's: "+
				"the node gives up its buckets until they agree; set the clock", "ahead", e.Ahead)
		} else {
			l.log.Info("the clock agrees with the store's again")
		}
	default:
		panic(fmt.Sprintf("an effect of an unknown sort: %T", e))
	}
}

// viewEvery is the shortest time between two views: making one reads everything.
const viewEvery = 100 * time.Millisecond

// show makes status and view available to other goroutines.
func (l *loop) show() {
	status := l.m.Status()
	var view poller.View
	now := l.clock.now()
	if l.view.Overdue == nil || now.Mono-l.view.At.Mono >= viewEvery {
		view = l.m.View(now)
		l.metrics.Observe(view)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = status
	if view.Overdue != nil {
		l.view = view
	}
}

// Status returns what the node knew of its locks a moment ago.
func (l *loop) Status() machine.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// View returns what the node had in hand a moment ago.
func (l *loop) View() poller.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.view
}

// Channels lists the channels that the node knows of, by name.
func (l *loop) Channels(ctx context.Context) ([]poller.ChannelView, error) {
	answer := make(chan []poller.ChannelView, 1)
	select {
	case l.asks <- answer:
		return <-answer, nil
	case <-l.ended:
		return nil, postdate.E(postdate.KindUnavailable, "the node is stopping")
	case <-ctx.Done():
		return nil, postdate.E(postdate.KindUnavailable, "the node did not answer in time: %w", ctx.Err())
	}
}
