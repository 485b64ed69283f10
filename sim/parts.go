package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// part is a part of the store, every third bucket, in which calls of some sorts fail for a
// while.
type part struct {
	from, until time.Duration
	first       int
	calls       []string      // their names; nil: all that touch these buckets
	hangs       bool          // they do not come back
	takes       time.Duration // until a call fails that has no effect
	unknown     float64       // else: how likely a call that fails was done all the same
}

// partCalls are the sorts of calls that fail together.
var partCalls = [][]string{
	{"claim"}, {"unpark"}, {"find parked"}, {"claim", "unpark", "find parked"}, {"settle"}, {"claim", "settle", "unpark", "find parked"},
}

func (x part) has(bucket int) bool { return bucket%3 == x.first }

// fails says whether a call that arrives now fails.
func (x part) fails(now time.Duration, c *storeCall) bool {
	return now < x.until && (x.calls == nil || slices.Contains(x.calls, c.name)) && slices.ContainsFunc(c.buckets, x.has)
}

// fate draws how a call that fails ends.
func (x part) fate(w *world) how {
	switch {
	case x.hangs:
		return hangs
	case w.chance(x.unknown):
		return failsAfter
	}
	return failsBefore
}

// ended ends what still fails, and returns all parts that ever failed.
func (x *weather) ended(now time.Duration) []part {
	for i := range x.parts {
		x.parts[i].until = min(x.parts[i].until, now)
	}
	return x.parts
}

// excuses is up to when nothing of a bucket counts as late. What hangs is waited for, and
// tried again by and by; the other buckets wait until the first call with both is given up.
// What fails at once is tried again within two seconds, joins the others a second after that,
// and has then to catch up what came meanwhile: the stores of these worlds take more than
// twice as much as is due.
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

// ofParked says whether only what is parked comes late: calls of other sorts do not fail.
func (x part) ofParked() bool {
	return x.calls != nil && !slices.ContainsFunc(x.calls, func(c string) bool { return c != "unpark" && c != "find parked" })
}

// excusesParked is up to when nothing that was parked counts as late in a bucket outside of
// the part that got its owner at moved. Its owner may be asking already; then it asks about
// all buckets that are new to it, and where that fails, about one after the other: each of
// the part may come before.
func (x part) excusesParked(bucket, buckets int, moved time.Duration) time.Duration {
	if x.takes == 0 || x.has(bucket) || moved > x.until {
		return 0
	}
	calls := 2 + (buckets+2-x.first)/3
	return min(max(x.from, moved)+time.Duration(calls)*(x.takes+time.Second), x.until+x.takes+3*time.Second)
}

// cameBack is when what was parked for a channel that was down is to be back at the latest,
// but for the usual lateness: a probe comes within ProbeMax. The URLs of one host are down
// until all of them are up: each probe may go to one that is not.
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

// hostOf is the host of a channel that is a URL, or nothing.
func hostOf(c postdate.Channel) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(c.Target(), "//"), "/")
	if c.Broker() != "https" {
		return ""
	}
	return host
}
