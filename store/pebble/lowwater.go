package pebble

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// nowhere lies after every message.
var nowhere = bucket.Position{Time: postdate.Far}

// lowWater says where the waiting messages of a bucket begin. What is deleted stays in the tree
// until it is merged away, and whoever begins at the bucket's start steps over all of it:
// after a large drain each sweep would read everything that was delivered. A new store
// begins with the zero mark, and the first sweep raises it.
//
// The bucket's lock guards it: a write that is decided before begin is seen by a snapshot
// that is made after it, and one that comes later is noted in put.
type lowWater struct {
	mark bucket.Position // nothing waits before it
	put  bucket.Position // the first that came to wait since the last look began
	look uint64          // how many looks began: only the last one knows what came since
}

// begin begins a look. Nothing waits before from in a snapshot that is made after it.
func (w *lowWater) begin() (from bucket.Position, look uint64) {
	w.put = nowhere
	w.look++
	return w.mark, w.look
}

// note says that a message waits at p from now on.
func (w *lowWater) note(p bucket.Position) {
	w.mark, w.put = w.mark.Earliest(p), w.put.Earliest(p)
}

// end raises the mark to the first message that the look saw.
func (w *lowWater) end(look uint64, first bucket.Position) {
	if look == w.look {
		w.mark = first.Earliest(w.put)
	}
}

// begun is a scan's look from the start of a bucket; the zero one is of any other scan.
type begun struct {
	from bucket.Position
	look uint64
}

// beginLook begins the look of a scan from the start of the bucket. It comes before the scan's snapshot.
func (s *Store) beginLook(bucket int) (l begun) {
	s.locks[bucket].Lock()
	defer s.locks[bucket].Unlock()
	l.from, l.look = s.low[bucket].begin()
	return l
}

// endLook ends it, with the first message that was seen.
func (s *Store) endLook(bucket int, l begun, first bucket.Position) {
	s.locks[bucket].Lock()
	defer s.locks[bucket].Unlock()
	s.low[bucket].end(l.look, first)
}
