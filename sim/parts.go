package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// part is a fault in a part of the store, every third bucket: calls of some sorts fail there
// for a while.
type part struct {
	from, until time.Duration
	first       int
	calls       []string      // their names; nil: all calls that touch these buckets
	hangs       bool          // they do not return
	takes       time.Duration // how long a call without effect takes to fail
	unknown     float64       // otherwise: how likely it is that a failed call was carried out
}

// partCalls are the sorts of calls that fail together.
var partCalls = [][]string{
	{"claim"}, {"unpark"}, {"find parked"}, {"claim", "unpark", "find parked"}, {"settle"},
	{"claim", "settle", "unpark", "find parked"},
}

func (x part) has(bucket int) bool { return bucket%3 == x.first }

// fails reports whether a call that arrives at now fails.
func (x part) fails(now time.Duration, c *storeCall) bool {
	return now < x.until && (x.calls == nil || slices.Contains(x.calls, c.name)) &&
		slices.ContainsFunc(c.buckets, x.has)
}

// fate draws how a failing call ends.
func (x part) fate(w *world) how {
	switch {
	case x.hangs:
		return hangs
	case w.chance(x.unknown):
		return failsAfter
	}
	return failsBefore
}

// ended ends the faults that still last, and returns all that ever were.
func (x *weather) ended(now time.Duration) []part {
	for i := range x.parts {
		x.parts[i].until = min(x.parts[i].until, now)
	}
	return x.parts
}

// excuses returns the time until which nothing in a bucket counts as late. A call that hangs is
// waited for, and its buckets are tried again gradually; other buckets wait until the first
// call with both is given up. A call that fails is repeated within two seconds. A second later
// its buckets join the others, and must then catch up: the stores of these worlds can take more
// than twice the load.
func (x part) excuses(bucket int) time.Duration {
	switch {
	case x.hangs && x.has(bucket):
		return x.until + storeDeadline + 3*time.Second
	case x.hangs:
		return x.from + storeDeadline + time.Second
	case x.has(bucket):
		return x.until + x.takes + 3*time.Second + (x.until - x.from)
	}
	return 0
}

// partFailed reports whether a part of the store fails, or did until a moment ago: what was held up then
// is no sign of what is usual.
func (x *weather) partFailed(now time.Duration) bool {
	return slices.ContainsFunc(x.parts, func(p part) bool {
		return now >= p.from && now < p.until+storeDeadline+5*time.Second
	})
}

// ofParked reports whether only parked messages are affected: no other sorts of calls fail.
func (x part) ofParked() bool {
	return x.calls != nil && !slices.ContainsFunc(x.calls,
		func(c string) bool { return c != "unpark" && c != "find parked" })
}

// excusesParked returns the time until which no parked message counts as late in a bucket
// outside the part; moved is when the bucket got its owner. The owner may be busy with another
// question. It then asks about all its new buckets and, if that fails, about one after the
// other: those of the part may come first.
func (x part) excusesParked(bucket, buckets int, moved time.Duration) time.Duration {
	if x.takes == 0 || x.has(bucket) || moved > x.until {
		return 0
	}
	calls := 2 + (buckets+2-x.first)/3
	return min(max(x.from, moved)+time.Duration(calls)*(x.takes+time.Second), x.until+x.takes+3*time.Second)
}

// cameBack returns when messages parked for a channel that was down must be back, apart from
// the usual lateness: a probe comes within ProbeMax. The URLs of one host count as down until
// all of them are up, because each probe may go to one that is not.
func (h *history) cameBack(c postdate.Channel) postdate.Time {
	down := h.w.channels[c].down
	if host := hostOf(c); host != "" {
		for _, o := range h.w.plan.channels {
			if hostOf(o) == host {
				down = max(down, h.w.channels[o].down)
			}
		}
	}
	if down == 0 {
		return 0
	}
	return epoch.Add(down + poller.DefaultConfig().ProbeMax + 2*time.Second)
}

// hostOf returns the host of a channel that is a URL, or "".
func hostOf(c postdate.Channel) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(c.Target(), "//"), "/")
	if c.Broker() != "https" {
		return ""
	}
	return host
}
