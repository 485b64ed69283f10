package pebble

import (
	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// nowhere lies after every message.
var nowhere = bucket.Position{Time: postdate.Far}

// lowWater says where the waiting messages of a bucket begin. Deleted keys stay in the tree
// until they are merged away, and a scan from the bucket's start steps over all of them: after
// a large drain each sweep would read everything that was delivered. When a store is opened the
// mark is zero, and the first sweep raises it.
//
// The bucket's lock guards it. A write that was decided before a look began is in the look's
// snapshot, which is taken later; a write that comes after that is noted in since.
type lowWater struct {
	mark  bucket.Position // nothing waits before it
	since bucket.Position // the first message that came to wait since the last look began
	looks uint64          // how many looks began: only the last one may raise the mark
}

// begun is the look of a scan from the start of a bucket; it is zero for any other scan.
type begun struct {
	from bucket.Position // nothing waits before it in a snapshot that is taken after the look began
	look uint64          // its number
}

// begin begins a look.
func (w *lowWater) begin() begun {
	w.since = nowhere
	w.looks++
	return begun{w.mark, w.looks}
}

// note records that a message begins to wait at p.
func (w *lowWater) note(p bucket.Position) {
	w.mark, w.since = w.mark.Earliest(p), w.since.Earliest(p)
}

// end raises the mark to the first message that the look saw.
func (w *lowWater) end(l begun, first bucket.Position) {
	if l.look == w.looks {
		w.mark = first.Earliest(w.since)
	}
}

// waiting returns an iterator over the due space, and for each bucket the time before which nothing waits there. It
// holds all locks: a write in between could make something wait earlier.
func (s *Store) waiting() (due *lsm.Iterator, lows []postdate.Time, err error) {
	all := make([]int, s.c.Buckets)
	for b := range all {
		all[b] = b
	}
	lows = make([]postdate.Time, len(all))
	defer s.lock(all)()
	for b := range lows {
		lows[b] = s.low[b].mark.Time
	}
	due, err = s.db.NewIter(spaceOnly(spaceDue))
	return due, lows, err
}

// beginLook begins the look of a scan from the start of a bucket, before the scan's snapshot is
// taken.
func (s *Store) beginLook(bucket int) begun {
	s.locks[bucket].Lock()
	defer s.locks[bucket].Unlock()
	return s.low[bucket].begin()
}

// endLook ends a look; first is the first message that it saw.
func (s *Store) endLook(bucket int, l begun, first bucket.Position) {
	s.locks[bucket].Lock()
	defer s.locks[bucket].Unlock()
	s.low[bucket].end(l, first)
}
