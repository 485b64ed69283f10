package fence

import (
	"slices"
	"time"

	"github.com/postdate/postdate/bucket"
)

// watch judges other runs by their leases, on this node's own monotonic clock
// alone. A lease stands still for certain from the end of the look that saw its
// present state first, up to the beginning of the last look that saw it: its holder
// counts the same time from before it wrote that state. How long it counts, the lease
// itself says.
type watch struct {
	own    time.Duration // the own lease time
	looked time.Duration // when the last look began
	seen   map[string]sighting
}

// sighting is a lease as it was first seen in its present state.
type sighting struct {
	renewals uint64
	lasts    time.Duration // the longest that it was ever said to last; 0: never said
	since    time.Duration
}

// wait is how long the lease must be seen to stand still: an earlier renewal may
// still hold by a longer time than the last one's, so the longest counts. Where
// nobody said one, because an older version wrote the record or it is not there, it
// is the longest that a node can be set to.
func (s sighting) wait() time.Duration {
	if s.lasts <= 0 {
		return LeaseMax
	}
	return s.lasts
}

// look takes in what a look saw.
func (w *watch) look(now time.Duration, ev Saw) {
	leases := make(map[string]bucket.Lease, len(ev.Leases))
	for _, l := range ev.Leases {
		leases[l.ID] = l
	}
	for _, p := range ev.Partitions {
		if _, known := leases[p.Lease]; !known && p.Owner != "" {
			leases[p.Lease] = bucket.Lease{ID: p.Lease} // its lease is not there: that stands still too
		}
	}
	seen := make(map[string]sighting, len(leases))
	for id, l := range leases {
		s, known := w.seen[id]
		s.lasts = max(s.lasts, l.Lasts)
		if !known || s.renewals != l.Renewals || w.blind(ev.Began, s) {
			s.renewals, s.since = l.Renewals, now
		}
		seen[id] = s
	}
	w.looked, w.seen = ev.Began, seen
}

// blind says whether a look came so late that the watch of a lease begins anew: this
// node slept or could not reach the store, and whoever did so with it gets the time
// to renew. No promise needs it, for the lease has ended by then; it spares its
// holder's buckets a move. Late is what exceeds the lease's own wait, so that a gap
// cannot be all that was watched of it. A gap within the node's own lease time is
// usual, though, however short the other's lease is: else nobody whose looks are
// that far apart would ever see it stand still.
func (w *watch) blind(began time.Duration, s sighting) bool {
	return began-w.looked > max(s.wait(), w.own)
}

// stoodStill says whether a lease was seen to stand still for as long as it lasts, by
// a look that began at a time.
func (w *watch) stoodStill(began time.Duration, lease string) bool {
	s := w.seen[lease]
	return began-s.since >= s.wait()
}

// alive lists the leases that did not stand still for so long, in order.
func (w *watch) alive(ev Saw) (ids []string) {
	for _, l := range ev.Leases {
		if !w.stoodStill(ev.Began, l.ID) {
			ids = append(ids, l.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
