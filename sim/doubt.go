package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/publisher"
)

// tooMuchDoubt says whether a crash of the process that wrote a claim would leave too many of a
// tenant's messages to a channel in doubt, of all priorities together. Allowed are the poller's bound
// or, if that is more, what the process confirmed in the best two seconds of the ten before it took
// them; and one more for each bucket whose last claim had no answer. For a while after a lease has
// lapsed, what was then in doubt may add as much again, if it could not be read again within a second.
// What an earlier owner left in doubt does not count, nor what was written into the range already
// claimed. Only every eighth claim is checked.
func (h *history) tooMuchDoubt(f factClaim) string {
	if f.claim.Number%8 != 0 {
		return ""
	}
	var p *process
	for _, n := range h.w.nodes {
		if n.up() && n.proc.lease == f.after.Lease {
			p = n.proc
		}
	}
	if p == nil {
		return ""
	}
	if h.claimedBy(p) <= h.w.plan.poller.DoubtMax {
		return "" // quickly, as nearly always
	}
	doubt, now := h.inDoubt(p), p.n.clock.monoNow()
	for _, route := range h.w.routes {
		most := h.w.plan.poller.DoubtMax
		if doubt[route] <= most {
			continue
		}
		most = max(most, p.confirmed[route].best(now))
		if since := now - p.lapsedAt; p.lapsedAt != 0 && since >= time.Second && since < 20*time.Second {
			most += min(p.hadInDoubt[route], most)
		}
		if n := doubt[route]; n > most+len(p.unheard) {
			return fmt.Sprintf("a crash of %s would leave %d messages of %s in doubt", p.lease, n, route)
		}
	}
	return ""
}

// claimedBy counts what a crash of a process could leave in doubt at most: what it has claimed, whatever the route.
func (h *history) claimedBy(p *process) (n int) {
	for b := range h.w.store.Records {
		record := &h.w.store.Records[b]
		if record.Lease != p.lease {
			continue
		}
		for _, r := range h.w.store.Waiting[b] {
			if r.AttemptTime > record.Claimed.Time {
				break
			}
			if r.AttemptTime > record.Checkpoint && !r.Late && !r.Parked {
				n++
			}
		}
	}
	return n
}

// inDoubt counts the messages of each tenant to each channel that a crash of a process would leave in doubt.
func (h *history) inDoubt(p *process) map[postdate.Route]int {
	doubt := map[postdate.Route]int{}
	for b, record := range h.w.store.Records {
		if record.Lease != p.lease {
			continue
		}
		before, has := h.gains[gain{p, b, record.Token}]
		if !has {
			continue // the process does not know yet that it owns the bucket: the doubt is its predecessor's
		}
		claimed := map[postdate.Route]bucket.Position{} // what record says of each
		for _, r := range h.w.store.Waiting[b] {
			at := bucket.PositionOf(r.Key, r.AttemptTime)
			if record.Claimed.Before(at) {
				break
			}
			if r.Late || r.Parked || at.Time <= record.Checkpoint {
				continue
			}
			to, known := claimed[r.Route()]
			if !known {
				to = record.ClaimedFor(r.Route())
				claimed[r.Route()] = to
			}
			if !to.Before(at) && !before.InDoubt(r.Route(), at) {
				doubt[postdate.RouteOf(r.Tenant, r.Channel)]++
			}
		}
	}
	return doubt
}

// noteRenewed records a renewal, when it began, and whether the lease had ended before its
// answer came: because its time was over, or because the wall clock was set.
func (p *process) noteRenewed(began time.Duration) {
	now := p.n.clock.monoNow()
	if p.leaseUntil != 0 && (now >= p.leaseUntil || p.n.clock.set > p.renewedAt) {
		p.lapsedAt, p.hadInDoubt = now, p.w.history.inDoubt(p)
	}
	p.renewedAt, p.leaseUntil = now, max(p.leaseUntil, began+p.lasts)
}

// confirms are the times at which messages of a tenant to a channel were confirmed to a process, in order,
// by its monotonic clock, which stands still while its machine is frozen.
type confirms []time.Duration

func (p *process) noteConfirmed(route postdate.Route, results []publisher.Result) {
	for _, r := range results {
		if r.Outcome == publisher.Confirmed {
			p.confirmed[route] = append(p.confirmed[route], p.n.clock.now().Mono)
		}
	}
}

// best returns the most confirms in any two of the last twenty seconds, because what is in hand
// may be from a better ten; plus a tenth of time, because the process hears of confirms late.
func (all confirms) best(now time.Duration) (most int) {
	first, _ := slices.BinarySearch(all, now-(20*time.Second+2200*time.Millisecond))
	for last := first; last < len(all); last++ {
		for all[first] < all[last]-2200*time.Millisecond {
			first++
		}
		if all[first] > now-20*time.Second {
			most = max(most, last-first+1)
		}
	}
	return most
}
