package machine

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

const (
	// brokerFirst is how long a gained bucket waits for its former owners to be kept out at the
	// broker. After that the messages of its other channels go out all the same.
	brokerFirst = 2 * time.Second
	// brokerAgain is the pause before another try.
	brokerAgain = time.Second
)

type (
	// KeepOut asks the broker to refuse what former owners of these buckets publish. KeptOut
	// answers it.
	KeepOut struct{ Holds []store.Hold }
	// KeptOut says how a KeepOut ended.
	KeptOut struct {
		Holds []store.Hold
		Err   error
	}
	// GiveUp tells the broker that this node no longer publishes from these buckets.
	GiveUp struct{ Buckets []int }
	// TakenAtBroker says that another node has taken a bucket at the broker.
	TakenAtBroker struct{ Bucket int }
	// Released tells the named nodes that buckets they are to own are free.
	Released struct{ To []string }
)

func (KeepOut) Effect()      {}
func (GiveUp) Effect()       {}
func (Released) Effect()     {}
func (KeptOut) Event()       {}
func (TakenAtBroker) Event() {}

// broker keeps track of the buckets that are held, if a broker keeps former owners out.
type broker struct {
	kept map[int]*keeping
	next time.Duration // when something may be to be done
}

// keeping is a bucket that is held.
type keeping struct {
	partition bucket.Partition
	working   bool          // the poller has it
	workAt    time.Duration // when the poller gets it all the same
	asking    bool          // a KeepOut is under way
	askAt     time.Duration // of the next one; never: none is needed, as far as is known
}

func newBroker() broker { return broker{kept: map[int]*keeping{}, next: never} }

// find is the entry of a hold, or nil.
func (b *broker) find(hold store.Hold) *keeping {
	if k := b.kept[hold.Bucket]; k != nil && k.partition.Token == hold.Token {
		return k
	}
	return nil
}

// due returns what is to be done by now: the buckets whose former owners are to be kept out,
// and those that have waited long enough for that.
func (b *broker) due(now time.Duration) (ask []store.Hold, work []bucket.Partition) {
	if now < b.next {
		return nil, nil
	}
	b.next = never
	for _, k := range b.kept {
		if !k.asking && now >= k.askAt {
			k.asking, k.askAt = true, never
			ask = append(ask, store.Hold{Bucket: k.partition.Bucket, Token: k.partition.Token})
		} else if !k.asking {
			b.next = min(b.next, k.askAt)
		}
		if !k.working && now >= k.workAt {
			k.working = true
			work = append(work, k.partition)
		} else if !k.working {
			b.next = min(b.next, k.workAt)
		}
	}
	slices.SortFunc(ask, func(a, b store.Hold) int { return a.Bucket - b.Bucket })
	return ask, work
}

// gained hands buckets to the poller. If a broker keeps former owners out, that comes first. A
// broker that does not answer delays no other channels for longer than brokerFirst; meanwhile
// its publisher reports its own messages as Down.
func (m *Machine) gained(now postdate.Now, g fence.Gained) {
	if !m.c.Broker {
		m.stepPoller(now, g)
		return
	}
	for _, p := range g.Partitions {
		m.broker.kept[p.Bucket] = &keeping{partition: p, workAt: now.Mono + brokerFirst, askAt: now.Mono}
	}
	m.broker.next = now.Mono
}

// drain lets the poller finish its work on buckets. A bucket that it does not have yet goes
// back as it is.
func (m *Machine) drain(now postdate.Now, d fence.Drain) {
	var idle, working []store.Hold
	for _, hold := range d.Holds {
		if k := m.broker.find(hold); k != nil && !k.working {
			idle = append(idle, hold)
		} else {
			working = append(working, hold)
		}
	}
	if len(idle) > 0 {
		m.forgetAtBroker(idle...)
		m.stepFence(now, fence.Drained{Holds: idle})
	}
	if len(working) > 0 {
		m.stepPoller(now, fence.Drain{Holds: working})
	}
}

// askBroker does what has become due at the broker.
func (m *Machine) askBroker(now postdate.Now) {
	ask, work := m.broker.due(now.Mono)
	if len(ask) > 0 {
		m.emit(KeepOut{ask})
	}
	m.work(now, work)
}

// keptOut hands the poller the buckets that are still held. A failed request is made again
// until it succeeds or the bucket is lost. If another node took a bucket while the request was
// under way, it is asked for once more: the answer may be older than that.
func (m *Machine) keptOut(now postdate.Now, ev KeptOut) {
	var work []bucket.Partition
	for _, hold := range ev.Holds {
		k := m.broker.find(hold)
		if k == nil {
			continue
		}
		k.asking = false
		if ev.Err != nil {
			k.askAt = min(k.askAt, now.Mono+brokerAgain)
		}
		m.broker.next = min(m.broker.next, k.askAt)
		if !k.working {
			k.working = true
			work = append(work, k.partition)
		}
	}
	m.work(now, work)
}

// work hands buckets to the poller.
func (m *Machine) work(now postdate.Now, ps []bucket.Partition) {
	if len(ps) > 0 {
		slices.SortFunc(ps, func(a, b bucket.Partition) int { return a.Bucket - b.Bucket })
		m.stepPoller(now, fence.Gained{Partitions: ps})
	}
}

// takenAtBroker has the record read immediately. If this node still owns the bucket, the other
// one is a former owner that woke up late, and is kept out again.
func (m *Machine) takenAtBroker(now postdate.Now, bucket int) {
	m.stepFence(now, fence.Hint{Buckets: []int{bucket}})
	if k := m.broker.kept[bucket]; k != nil {
		k.askAt = now.Mono + brokerAgain // the look comes first
		m.broker.next = min(m.broker.next, k.askAt)
	}
}

// forgetAtBroker notes that buckets are no longer held.
func (m *Machine) forgetAtBroker(holds ...store.Hold) {
	var buckets []int
	for _, hold := range holds {
		if m.broker.find(hold) != nil {
			delete(m.broker.kept, hold.Bucket)
			buckets = append(buckets, hold.Bucket)
		}
	}
	if len(buckets) > 0 {
		m.emit(GiveUp{buckets})
	}
}
