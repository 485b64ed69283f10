package poller

import (
	"container/heap"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// agenda orders the buckets of the common lane by when they need something, so that the cost of
// a step depends on what is due and not on how many buckets there are. A bucket with a claim
// under way is in none of its lists.
type agenda struct {
	byDue   bucketHeap // by the earliest attempt time that is not read
	bySweep bucketHeap // by when a sweep is to begin
	busy    []*owned   // those with something to do that waits for no time
}

// bucketHeap is a heap of buckets, each of which knows its place in it.
type bucketHeap struct {
	list  []*owned
	sweep bool // by sweepAt, else by due
}

func (h *bucketHeap) place(b *owned) *int {
	if h.sweep {
		return &b.inSweep
	}
	return &b.inDue
}

func (h *bucketHeap) Len() int { return len(h.list) }

func (h *bucketHeap) Less(i, j int) bool {
	if h.sweep {
		return h.list[i].sweepAt < h.list[j].sweepAt
	}
	return h.list[i].due < h.list[j].due
}

func (h *bucketHeap) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.place(h.list[i]), *h.place(h.list[j]) = i+1, j+1
}

// Push implements heap.Interface.
func (h *bucketHeap) Push(x any) {
	h.list = append(h.list, x.(*owned))
	*h.place(x.(*owned)) = len(h.list)
}

// Pop implements heap.Interface.
func (h *bucketHeap) Pop() any {
	last := h.list[len(h.list)-1]
	h.list = h.list[:len(h.list)-1]
	*h.place(last) = 0
	return last
}

// put puts b at its place in the heap, or takes it out if in is false.
func (h *bucketHeap) put(b *owned, in bool) {
	switch at := *h.place(b); {
	case in && at == 0:
		heap.Push(h, b)
	case in:
		heap.Fix(h, at-1)
	case at != 0:
		heap.Remove(h, at-1)
	}
}

// put files b where it belongs, or takes it out of both heaps if in is false.
func (a *agenda) put(b *owned, in bool) {
	a.byDue.put(b, in)
	a.bySweep.put(b, in && !b.sweeping && !b.resting())
	if in && b.wanting() && !b.busy {
		b.busy = true
		a.busy = append(a.busy, b)
	}
}

// wanting reports whether b may have something to do right away. An unanswered claim of one
// channel must be made again, because it takes up that channel's room.
func (b *owned) wanting() bool {
	return b.late != nowhere || b.resting() || slices.ContainsFunc(b.unheard,
		func(u unheard) bool { return u.only != nil })
}

// take removes and returns the buckets that are due by a wall-clock time or to be swept by a
// monotonic one, limited by most, and all busy ones. Touching them puts them back.
func (a *agenda) take(most int, due postdate.Time, sweep time.Duration) (all []*owned) {
	add := func(b *owned) {
		a.byDue.put(b, false)
		a.bySweep.put(b, false)
		all = append(all, b)
	}
	for len(a.byDue.list) > 0 && len(all) < most && a.byDue.list[0].due <= due {
		add(a.byDue.list[0])
	}
	for len(a.bySweep.list) > 0 && len(all) < most && a.bySweep.list[0].sweepAt <= sweep {
		add(a.bySweep.list[0])
	}
	for _, b := range a.busy {
		b.busy = false
		if b.inDue != 0 { // else it is among them, has left the common lane, or is polling
			add(b)
		}
	}
	a.busy = a.busy[:0]
	return all
}

// touch notes that a bucket has changed. Its place on the agenda, and the time up to which
// nudges matter, are determined again before the step ends.
func (m *Machine) touch(b *owned) {
	if !b.touched {
		b.touched = true
		m.touched = append(m.touched, b)
	}
}

// fileTouched files the touched buckets, and says up to when nudges matter from now on. While a
// scan is under way every nudge matters: the scan may have passed its place already.
func (m *Machine) fileTouched() {
	for _, b := range m.touched {
		b.touched = false
		m.agenda.put(b, !b.lost && !b.polling && b.lane == m.common)
		before := b.due
		switch {
		case b.lost:
			before = 0
		case b.polling:
			before = postdate.Far
		case bucket.Position{Time: b.due}.Before(b.read): // a page ended within that millisecond
			before = b.due + 1
		}
		if before != b.horizon {
			b.horizon = before
			m.emit(Horizon{b.hold.Bucket, before})
		}
	}
	m.touched = m.touched[:0]
}
