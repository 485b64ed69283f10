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
	// brokerFirst is how long a newly gained bucket waits for its former owners to be kept out
	// at the broker. After that, the messages for its other channels go out anyway.
	brokerFirst = 2 * time.Second
	// brokerAgain is the pause before the next attempt.
	brokerAgain = time.Second
)

type (
	// KeepOut asks the broker to refuse what former owners publish from these buckets. KeptOut
	// answers it.
	KeepOut struct{ Holds []store.Hold }
	// KeptOut says how a KeepOut ended.
	KeptOut struct {
		Holds []store.Hold
		Err   error
	}
	// GiveUp tells the broker that this node publishes nothing more from these buckets.
	GiveUp struct{ Buckets []int }
	// TakenAtBroker is the broker's word that another node has taken a bucket there.
	TakenAtBroker struct{ Bucket int }
	// Released tells these nodes, by name, that buckets which they should own are free.
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

// find returns the entry of a hold, or nil.
func (b *broker) find(hold store.Hold) *keeping {
	if k := b.kept[hold.Bucket]; k != nil && k.partition.Token == hold.Token {
		return k
	}
	return nil
}

// due returns what has become due: the buckets whose former owners must be kept out, and those
// that have waited long enough for that.
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

// gained hands buckets to the poller. If a broker keeps former owners out, that is done first.
// While such a broker does not answer, its publisher reports its messages as Down; after
// brokerFirst, all other messages go out.
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

// drain lets the poller finish its work on buckets. Buckets that it has not got yet are given
// back as they are.
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

// askBroker carries out what has become due at the broker.
func (m *Machine) askBroker(now postdate.Now) {
	ask, work := m.broker.due(now.Mono)
	if len(ask) > 0 {
		m.emit(KeepOut{ask})
	}
	m.work(now, work)
}

// keptOut hands the poller the buckets that are still held. A failed KeepOut is repeated until
// it succeeds or the buckets are lost. If another node took a bucket at the broker in the
// meantime, the bucket is asked for again: the answer may be older than that.
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

// takenAtBroker reads the bucket's record immediately. If this node still owns the bucket, a
// former owner has woken up late, and is kept out again.
func (m *Machine) takenAtBroker(now postdate.Now, bucket int) {
	m.stepFence(now, fence.Hint{Buckets: []int{bucket}})
	if k := m.broker.kept[bucket]; k != nil {
		k.askAt = now.Mono + brokerAgain // the look comes first
		m.broker.next = min(m.broker.next, k.askAt)
	}
}

// forgetAtBroker drops buckets that are no longer held.
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
