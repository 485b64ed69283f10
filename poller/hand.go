package poller

import (
	"container/heap"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/recurrence"
)

// Item is a message in hand: claimed, read, and not settled yet.
type Item struct {
	Delivery postdate.Delivery
	Begins   postdate.Time // when it is to be published first

	rec     *postdate.Record
	rule    *recurrence.Rule // of a series; nil if it cannot be read
	chosen  bool             // of a series: it begins, however late it is
	atRest  bool             // of a series: read while its bucket rests
	bucket  *owned
	channel *channel
	due     postdate.Time // when it is to be published
	stage   stage
	sent    time.Duration // when it went to the broker
	place   int           // in the bucket's oldest
	probe   bool          // it is sent to see whether its channel is back
	doubt   bool          // an earlier publish may have arrived

	// next is when it is due again, if a scan saw that before its settlement was known to be
	// written: it was rescheduled, say, or unparked. Far: no scan saw that.
	next postdate.Time
}

type stage uint8

const (
	stageWaiting    stage = iota // for its time
	stageReady                   // for its channel
	stagePublishing              // for the broker's answer
	stageSettling                // for the store's answer
	stageDone                    // settled or dropped
)

// take puts what a scan found into the hand, if it is not there already.
func (m *Machine) take(now postdate.Now, p poll, rec *postdate.Record) {
	b := p.bucket
	if it, here := b.hand[rec.Key]; here {
		if it.rec.State != rec.State {
			it.next = rec.AttemptTime // its settlement went through, and something followed
		}
		return
	}
	switch old, letGo := b.letGo[rec.Key]; {
	case !letGo || old.Version != rec.Version || old.Occurrence != rec.Occurrence:
	case old == rec.State:
		return // it was settled while the scan was under way
	default:
		// A parking may be written twice. If the message was unparked in between, this scan may
		// have read it unparked although it is parked again by now. The next scan tells.
		b.missed(spanOf(rec.AttemptTime))
		return
	}
	if rec.AttemptTime <= p.claim.Checkpoint {
		// It was inserted behind the checkpoint. The next claim first lowers the checkpoint, so
		// that a crash leaves the message in the range that is in doubt.
		b.missed(spanOf(rec.AttemptTime))
		return
	}
	own := *rec // else a page would be kept for as long as any of its messages
	rec = &own
	route := rec.Route()
	c := m.channelOf(route)
	inDoubt := !rec.Parked && b.inherited.InDoubt(route, bucket.PositionOf(rec.Key, rec.AttemptTime)) &&
		!takeOut(b.armed, rec) && !c.delivers
	it := &Item{
		Delivery: postdate.Delivery{
			Message: &rec.Message, Attempt: rec.Attempts + 1,
			PossibleDuplicate: rec.PossibleDuplicate || inDoubt || rec.MayRepeat,
		},
		rec: rec, bucket: b, channel: c, doubt: rec.PossibleDuplicate || inDoubt,
		next: postdate.Far, Begins: rec.ExecutionTime,
	}
	if rec.Occurrence != 0 {
		it.recurs()
	}
	// A client that truncated its time to the millisecond meant up to one more, so the whole
	// millisecond must be over.
	it.due = max(it.Begins+1, rec.AttemptTime)
	b.hand[rec.Key] = it
	heap.Push(&b.oldest, it)
	if rec.Parked {
		it.channel.looks++
	}
	m.count(it.channel, 1)
	m.readAgain(b, rec.Key)
	m.handBytes += rec.Bytes()
	if it.due <= now.Wall {
		m.makeReady(it)
	} else {
		heap.Push(&m.waiting, it)
	}
}

// release moves what is due from waiting to its channel.
func (m *Machine) release(now postdate.Now) {
	for len(m.waiting) > 0 && (m.waiting[0].due <= now.Wall || m.waiting[0].stage == stageDone) {
		if it := heap.Pop(&m.waiting).(*Item); it.stage == stageWaiting {
			m.makeReady(it)
		}
	}
}

// drop takes an item out of the hand.
func (m *Machine) drop(it *Item) {
	b := it.bucket
	switch {
	case it.stage == stageSettling:
		it.channel.settling--
	case it.rec.Parked:
		it.channel.looks--
	}
	it.stage = stageDone
	delete(b.hand, it.rec.Key)
	b.oldest.remove(it)
	if b.polling {
		b.letGo[it.rec.Key] = it.rec.State
	}
	m.handBytes -= it.rec.Bytes()
	m.count(it.channel, -1)
	if it.next != postdate.Far {
		m.nudge(b.hold.Bucket, spanOf(it.next))
	}
}

// dropWaiting drops what is not yet with a broker. It stays PENDING in the store.
func (m *Machine) dropWaiting(b *owned) {
	for _, it := range b.items() {
		if it.stage == stageWaiting || it.stage == stageReady {
			m.drop(it)
		}
	}
}

// items lists the hand of a bucket for a caller that may drop some. A map has no fixed order.
func (b *owned) items() []*Item { return slices.Clone(b.oldest.itemHeap) }

// itemHeap is a heap by due time.
type itemHeap []*Item

func (h itemHeap) Len() int           { return len(h) }
func (h itemHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h itemHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *itemHeap) Push(x any)        { *h = append(*h, x.(*Item)) }

func (h *itemHeap) Pop() any {
	last := (*h)[len(*h)-1]
	(*h)[len(*h)-1] = nil
	*h = (*h)[:len(*h)-1]
	return last
}

// attemptHeap is a heap by attempt time. Its items know their places, so that any can be removed.
type attemptHeap struct{ itemHeap }

func (h attemptHeap) Less(i, j int) bool {
	return h.itemHeap[i].rec.AttemptTime < h.itemHeap[j].rec.AttemptTime
}

func (h attemptHeap) Swap(i, j int) {
	h.itemHeap.Swap(i, j)
	h.itemHeap[i].place, h.itemHeap[j].place = i, j
}

func (h *attemptHeap) Push(x any) {
	x.(*Item).place = h.Len()
	h.itemHeap.Push(x)
}

// remove removes an item that is there.
func (h *attemptHeap) remove(it *Item) { heap.Remove(h, it.place) }

// first is the item with the earliest attempt time, or nil.
func (h *attemptHeap) first() *Item {
	if h.Len() == 0 {
		return nil
	}
	return h.itemHeap[0]
}
