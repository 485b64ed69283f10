package fence

import (
	"slices"
	"time"

	"github.com/postdate/postdate/bucket"
)

// watch judges other runs by their leases, on this node's own monotonic clock alone. A lease
// has certainly stood still from the end of the look that first saw its present state to the
// beginning of the last look that saw it. Its holder counts the lease's duration from before it
// wrote that state, and the lease itself says how long that is.
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

// wait is how long the lease must be seen to stand still. An earlier renewal may have promised
// a longer time than the last one, so the longest counts. If none is known, because an older
// version wrote the lease or it is missing, it is the longest that a node can be set to.
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

// blind reports whether a look came so late that the watch of a lease begins anew: this node
// slept or could not reach the store, and a holder that did the same gets time to renew. No
// promise needs this, since the lease has ended by then; it spares the holder's buckets a move.
// A gap is too long if it exceeds the lease's own wait, so that one gap cannot be a whole
// watch. But a gap within this node's lease time is normal, however short the other lease is:
// otherwise a node whose looks are that far apart would never see it stand still.
func (w *watch) blind(began time.Duration, s sighting) bool {
	return began-w.looked > max(s.wait(), w.own)
}

// stoodStill reports whether a look that began at the given time had seen a lease stand still
// for as long as it lasts.
func (w *watch) stoodStill(began time.Duration, lease string) bool {
	s := w.seen[lease]
	return began-s.since >= s.wait()
}

// alive lists the leases that did not stand still for that long, in order.
func (w *watch) alive(ev Saw) (ids []string) {
	for _, l := range ev.Leases {
		if !w.stoodStill(ev.Began, l.ID) {
			ids = append(ids, l.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
