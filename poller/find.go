package poller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// startFind asks which channels have parked messages. It asks about buckets that are new here
// and, every FindEvery, about all of them, because memory must not hide what is stored. One
// bucket that is out of reach fails the call for all buckets in it. So buckets that are apart
// wait until they have rejoined the others, and those of a failed call come after all others:
// the earliest failures first, in calls of about an eighth of the size that failed last.
func (m *Machine) startFind(now postdate.Now) {
	if m.finding || now.Mono < m.nextFind {
		return
	}
	if now.Mono >= m.findAllAt {
		m.findAllAt = now.Mono + m.c.FindEvery
		m.find = slices.Sorted(maps.Keys(m.buckets))
	}
	if len(m.find) == 0 {
		return
	}
	var find, failed, later []int
	for _, number := range m.find {
		switch b := m.buckets[number]; {
		case b == nil: // it was lost meanwhile
		case b.lane != m.common:
			later = append(later, number)
		case b.findFailedAt != 0:
			failed = append(failed, number)
		default:
			find = append(find, number)
		}
	}
	if len(find) == 0 {
		slices.SortFunc(failed, func(a, b int) int {
			return cmp.Or(cmp.Compare(m.buckets[a].findFailedAt, m.buckets[b].findFailedAt), cmp.Compare(a, b))
		})
		some := min(len(failed), m.findMax)
		find, failed = failed[:some], failed[some:]
	}
	m.find = append(later, failed...)
	if len(find) == 0 {
		m.nextFind = now.Mono + m.c.RetryAfter // not with each step
		return
	}
	m.finding = true
	m.emit(FindParked{find})
}

// parkedFound assumes that a channel for which an earlier owner parked messages is down, until
// a probe shows otherwise. A failed call may still have found something.
func (m *Machine) parkedFound(now postdate.Now, ev ParkedFound) {
	m.finding = false
	failedAt := time.Duration(0)
	if ev.Err != nil {
		failedAt = now.Mono
		m.find = append(m.find, ev.Buckets...)
		m.findMax, m.nextFind = max(len(ev.Buckets)/8, 1), now.Mono+m.c.RetryAfter
	}
	for _, number := range ev.Buckets {
		if b := m.buckets[number]; b != nil {
			b.findFailedAt = failedAt
		}
	}
	for _, f := range ev.Found {
		b := m.buckets[f.Bucket]
		if b == nil {
			continue
		}
		c := m.channelOf(f.Route)
		if len(c.site.channels) == 1 && c.hand == c.looks && c.parkedIn.len() == 0 && !c.site.down {
			m.goDown(now, c.site, "not tried since this node took the bucket", true)
			c.site.probeAt, c.site.tried = now.Mono, false
		}
		m.noteParked(c, b)
	}
}
