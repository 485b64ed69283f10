package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

const (
	// fenceFirst is how long a bucket that was gained waits to be fenced at the
	// broker before its other channels' messages go out all the same.
	fenceFirst = 2 * time.Second
	// fenceAgain is the pause before another try.
	fenceAgain = time.Second
)

// listener passes the keeper's decisions on: to the poller, to a publisher that
// keeps former owners out at the broker, and to the other nodes.
type listener struct {
	loop    *poller.Loop
	cluster *cluster         // nil where there are no others
	fencer  publisher.Fencer // nil where there is none
	hint    func()           // asks for a look at the records
	log     *slog.Logger
	end     context.Context // of the node

	mu   sync.Mutex
	held map[int]uint64 // the buckets that are owned, with their tokens
}

// Gained fences the buckets at the broker before the first message of theirs is
// published. A broker that does not answer holds up nobody else's messages: they go
// out, and its own wait until the bucket is fenced.
func (l *listener) Gained(ps []bucket.Partition) {
	if l.fencer == nil {
		l.loop.Tell(poller.Gained{Partitions: ps})
		return
	}
	l.mu.Lock()
	for _, p := range ps {
		l.held[p.Bucket] = p.Token
	}
	l.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(l.end, fenceFirst)
		err := l.fencer.Gained(ctx, bucketsOf(ps))
		cancel()
		l.mu.Lock() // so that what is lost meanwhile is told after it
		if still := l.stillHeld(ps); len(still) > 0 {
			l.loop.Tell(poller.Gained{Partitions: still})
		}
		l.mu.Unlock()
		l.insist(ps, err)
	}()
}

// insist fences buckets until it is done or they are lost.
func (l *listener) insist(ps []bucket.Partition, err error) {
	for err != nil {
		l.mu.Lock()
		ps = l.stillHeld(ps)
		l.mu.Unlock()
		if len(ps) == 0 {
			return
		}
		l.log.Warn("fencing buckets at Kafka failed and is repeated; their messages for Kafka wait", "buckets", len(ps), "error", err)
		select {
		case <-l.end.Done():
			return
		case <-time.After(fenceAgain):
		}
		err = l.fencer.Gained(l.end, bucketsOf(ps))
	}
}

// Fenced is what the broker says when another node has taken a bucket there. Where
// this one still owns it by the records, it was a former owner that woke up late.
func (l *listener) Fenced(b int) {
	l.hint()
	go func() {
		select {
		case <-l.end.Done():
			return
		case <-time.After(fenceAgain): // the look comes first
		}
		l.mu.Lock()
		token, held := l.held[b]
		l.mu.Unlock()
		if held {
			l.insist([]bucket.Partition{{Bucket: b, Token: token}}, l.fencer.Gained(l.end, []int{b}))
		}
	}()
}

// stillHeld is what is held of ps. The lock is.
func (l *listener) stillHeld(ps []bucket.Partition) (still []bucket.Partition) {
	for _, p := range ps {
		if l.held[p.Bucket] == p.Token {
			still = append(still, p)
		}
	}
	return still
}

// forget notes that this node does not own buckets any more, and says which of them
// the fencer is to be told of.
func (l *listener) forget(holds ...store.Hold) (buckets []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range holds {
		if l.held[h.Bucket] == h.Token {
			delete(l.held, h.Bucket)
			buckets = append(buckets, h.Bucket)
		}
	}
	return buckets
}

func (l *listener) Lost(h store.Hold) {
	buckets := l.forget(h)
	l.loop.Tell(poller.Lost{Hold: h})
	if l.fencer != nil {
		l.fencer.Lost(buckets)
	}
}

func (l *listener) Drain(h store.Hold) { l.loop.Tell(poller.Drain{Hold: h}) }
func (l *listener) LeaseUntil(until fence.LeaseUntil) {
	l.loop.Tell(poller.LeaseUntil{Mono: until.Mono, Read: until.Read})
}

func (l *listener) Alive(leases []string) {
	if l.cluster != nil {
		l.cluster.living(leases)
	}
}

func (l *listener) GaveBack(holds []store.Hold) {
	if buckets := l.forget(holds...); l.fencer != nil {
		l.fencer.Lost(buckets)
	}
	if l.cluster != nil {
		l.cluster.tell(wordReleased)
	}
}

func bucketsOf(ps []bucket.Partition) []int {
	all := make([]int, len(ps))
	for i, p := range ps {
		all[i] = p.Bucket
	}
	return all
}

var _ fence.Listener = (*listener)(nil)
