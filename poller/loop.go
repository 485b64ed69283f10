package poller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// Due is the part of a store that the loop uses.
type Due interface {
	Claim(ctx context.Context, claims []store.Claim) []store.ClaimResult
	Settle(ctx context.Context, settlements []store.Settlement) error
	Unpark(ctx context.Context, u store.Unpark) (int, error)
	Parked(ctx context.Context, buckets []int) ([]store.ParkedChannel, error)
}

// PublishFunc brings a batch to its channel, as [publisher.Publisher] does. A channel
// whose broker is not configured (any more) is down.
type PublishFunc func(ctx context.Context, channel postdate.Channel, batch []postdate.Delivery) []publisher.Result

// Loop runs a Machine: it reads the clocks, carries out the effects, and feeds
// what they lead to back in.
type Loop struct {
	m       *Machine
	store   Due
	publish PublishFunc
	clock   func() postdate.Now
	metrics *Metrics
	log     *slog.Logger

	events chan Event
	stop   chan struct{}

	// Fenced, Drained and ClockSet are told of what these effects say. They must not block.
	Fenced, Drained func(store.Hold)
	ClockSet        func(by time.Duration)

	// A nudge matters only where it is earlier than what the machine knows of:
	// horizon[b] says so without a lock, and nudged[b] keeps the earliest one.
	horizon []atomic.Int64
	nudged  []atomic.Int64
	nudge   chan struct{}

	viewMu sync.Mutex
	view   View
	asks   chan chan []ChannelView
}

// Parts are what a loop is made of.
type Parts struct {
	Config  Config
	Buckets int // N
	Store   Due
	Publish PublishFunc
	Clock   func() postdate.Now
	Metrics *Metrics
	Log     *slog.Logger
}

// NewLoop makes a loop that owns nothing yet.
func NewLoop(p Parts) *Loop {
	l := &Loop{
		m: NewMachine(p.Config, rand.Float64), store: p.Store, publish: p.Publish, clock: p.Clock,
		metrics: p.Metrics, log: p.Log,
		events: make(chan Event, 256), stop: make(chan struct{}), nudge: make(chan struct{}, 1),
		asks:   make(chan chan []ChannelView),
		Fenced: func(store.Hold) {}, Drained: func(store.Hold) {}, ClockSet: func(time.Duration) {},
		horizon: make([]atomic.Int64, p.Buckets), nudged: make([]atomic.Int64, p.Buckets),
	}
	for b := range l.nudged {
		l.nudged[b].Store(int64(postdate.Far))
	}
	return l
}

// Tell hands the machine an event. It may block until the loop takes it, and
// does nothing once the loop has ended.
func (l *Loop) Tell(ev Event) {
	select {
	case l.events <- ev:
	case <-l.stop:
	}
}

// Nudge says that a message is due at a time in a bucket, after it is durable. It
// never blocks and costs next to nothing where the message is due later than what
// the bucket waits for anyway.
func (l *Loop) Nudge(bucket int, at postdate.Time) {
	if int64(at) >= l.horizon[bucket].Load() {
		return
	}
	for {
		old := l.nudged[bucket].Load()
		if int64(at) >= old || l.nudged[bucket].CompareAndSwap(old, int64(at)) {
			break
		}
	}
	select {
	case l.nudge <- struct{}{}:
	default: // the loop is about to look anyway
	}
}

// Run runs until ctx ends. What is in flight then is left as it is: in doubt.
func (l *Loop) Run(ctx context.Context) {
	defer close(l.stop)
	alarm := newAlarm()
	defer alarm.stop()
	alarm.set(0)
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-l.events:
			l.step(ctx, ev)
		case <-l.nudge:
			l.takeNudges(ctx)
		case <-alarm.rings:
			l.step(ctx, Tick{})
		case answer := <-l.asks:
			answer <- l.m.channelViews()
		}
		for more := true; more; { // what came meanwhile, before the alarm is set
			select {
			case ev := <-l.events:
				l.step(ctx, ev)
			default:
				more = false
			}
		}
		alarm.set(l.wait())
	}
}

// wait is how long to wait for the next event. The machine counts from the
// beginning of the present millisecond, of which a part is over.
func (l *Loop) wait() time.Duration {
	now := l.clock()
	over := time.Duration(time.Now().Nanosecond()) % time.Millisecond
	return max(l.m.Wake(now)-over, 0)
}

func (l *Loop) takeNudges(ctx context.Context) {
	for b := range l.nudged {
		if at := l.nudged[b].Swap(int64(postdate.Far)); at != int64(postdate.Far) {
			l.m.nudge(b, postdate.Time(at))
		}
	}
	l.step(ctx, Tick{})
}

func (l *Loop) step(ctx context.Context, ev Event) {
	now := l.clock()
	if p, ok := ev.(Published); ok {
		l.metrics.published(p, time.Now())
	}
	effects := l.m.Step(now, ev)
	l.setHorizon()
	l.setView(now)
	for _, e := range effects {
		l.do(ctx, e)
	}
}

// setHorizon says up to when a nudge matters, before any scan begins: while one
// is under way every nudge does, for the scan may have passed its place already.
func (l *Loop) setHorizon() {
	for i := range l.horizon {
		limit := int64(0) // not owned here
		if b := l.m.buckets[i]; b != nil {
			limit = int64(b.due)
			if b.polling {
				limit = int64(postdate.Far)
			}
		}
		if l.horizon[i].Load() != limit {
			l.horizon[i].Store(limit)
		}
	}
}

// do carries out one effect. What waits for a store or a broker does so beside
// the loop.
func (l *Loop) do(ctx context.Context, e Effect) {
	switch e := e.(type) {
	case Claim:
		go func() { l.Tell(Claimed{l.store.Claim(ctx, e.Claims)}) }()
	case Publish:
		go func() { l.Tell(Published{e.Batch, l.publishBatch(ctx, e)}) }()
	case Settle:
		go func() {
			err := l.store.Settle(ctx, e.Settlements)
			if err == nil {
				l.metrics.settled(e.Settlements)
			} else {
				l.log.Warn("settling failed and is repeated", "messages", len(e.Settlements), "error", err)
			}
			l.Tell(Settled{err})
		}()
	case FindParked:
		go func() {
			found, err := l.store.Parked(ctx, e.Buckets)
			l.Tell(ParkedFound{e.Buckets, found, err})
		}()
	case Unpark:
		go func() {
			moved, err := l.store.Unpark(ctx, e.Unpark)
			l.Tell(Unparked{e.Unpark, moved, err})
		}()
	case Fenced:
		l.log.Warn("a claim was refused: the bucket has another owner", "bucket", e.Hold.Bucket, "token", e.Hold.Token)
		l.Fenced(e.Hold)
	case Drained:
		l.Drained(e.Hold)
	case ClockSet:
		l.log.Warn("the wall clock was set, or the machine slept: nothing is delivered until the lease is renewed", "by", e.By)
		l.ClockSet(e.By)
	}
}

// publishBatch publishes. A publisher that panics on a poison message, or answers
// too little, leaves an unknown outcome, not a dead node.
func (l *Loop) publishBatch(ctx context.Context, e Publish) (results []publisher.Result) {
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("a publisher panicked", "channel", e.Channel, "panic", p, "stack", string(debug.Stack()))
			results = publisher.All(len(e.Batch), publisher.Result{Outcome: publisher.Unknown, Reason: fmt.Sprint("internal error of the publisher: ", p)})
		}
	}()
	batch := make([]postdate.Delivery, len(e.Batch))
	for i, it := range e.Batch {
		batch[i] = it.Delivery
	}
	results = l.publish(ctx, e.Channel, batch)
	if len(results) != len(batch) {
		return publisher.All(len(batch), publisher.Result{Outcome: publisher.Unknown, Reason: "internal error: the publisher did not say what became of each message"})
	}
	return results
}
