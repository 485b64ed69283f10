package fence

import (
	"slices"
	"time"
)

// watch judges other runs by their leases, on this node's own monotonic clock
// alone. A lease stands still for certain from the end of the look that saw its
// present state first, up to the beginning of the last look that saw it: its holder
// counts the same time from before it wrote that state.
type watch struct {
	still  time.Duration // the lease time
	looked time.Duration // when the last look began
	seen   map[string]sighting
}

// sighting is a lease as it was first seen in its present state.
type sighting struct {
	renewals uint64
	since    time.Duration
}

// look takes in what a look saw. After a look that came very late, because this
// node slept or could not reach the store, every watch begins anew: whoever slept
// with it gets the time to renew.
func (w *watch) look(now time.Duration, ev Saw) {
	renewals := make(map[string]uint64, len(ev.Leases))
	for _, l := range ev.Leases {
		renewals[l.ID] = l.Renewals
	}
	for _, p := range ev.Partitions {
		if _, known := renewals[p.Lease]; !known && p.Lease != "" {
			renewals[p.Lease] = 0 // its lease is not there: that stands still too
		}
	}
	blind := ev.Began-w.looked > w.still
	w.looked = ev.Began
	seen := make(map[string]sighting, len(renewals))
	for id, n := range renewals {
		s, known := w.seen[id]
		if !known || s.renewals != n || blind {
			s = sighting{renewals: n, since: now}
		}
		seen[id] = s
	}
	w.seen = seen
}

// stoodStill says whether a lease was seen to stand still for the lease time, by a
// look that began at a time.
func (w *watch) stoodStill(began time.Duration, lease string) bool {
	return began-w.seen[lease].since >= w.still
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
