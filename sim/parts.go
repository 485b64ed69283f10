package sim

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// part is a part of the store, every third bucket, in which calls of some sorts fail for a
// while.
type part struct {
	from, until time.Duration
	first       int
	calls       []string // their names; nil: all that touch these buckets
	hangs       bool     // they do not come back
	unknown     float64  // else: how likely a call that fails was done all the same
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
		return x.until + 3*time.Second + (x.until - x.from)
	}
	return 0
}

// parts draws that a part of the store fails again and again: for milliseconds, for seconds,
// or for up to a minute. Every other time there is a steady load, so that some call is always
// under way. Meanwhile channels go down and come back. At times a node stops in order, so that
// others have to find what it parked.
func (d *draw) parts() {
	p := d.p
	// So that one claim of many buckets brings enough, and one call settles that; and so that
	// one node with a slow store takes more than twice as much as is due.
	p.poller.HandMax, p.poller.DoubtMax, p.poller.SettleMax = 2_048, 512, 256
	p.poller.BatchMax, p.poller.UnparkMax = 32, 64
	p.channels, p.kinds = append(p.channels, "rabbitmq:comes-and-goes", "kafka:comes-and-goes"), append(p.kinds, channelGood, channelGood)
	for at := 10 * time.Second; at < p.length-30*time.Second; at += d.between(60*time.Second, 90*time.Second) {
		lasts := 20*time.Millisecond + d.upTo([]time.Duration{100 * time.Millisecond, 5 * time.Second}[d.r.IntN(2)])
		if d.r.IntN(2) == 0 {
			lasts = d.between(20*time.Second, time.Minute)
		}
		calls := d.r.IntN(len(partCalls))
		d.add(item{at: at, kind: faultPart, a: calls, b: d.r.IntN(3), d: lasts, p: max(d.r.Float64()-0.5, 0)})
		if d.r.IntN(2) == 0 {
			d.load(at-3*time.Second, min(lasts, 15*time.Second)+15*time.Second)
		}
		for c := range 2 {
			d.comesAndGoes(at+d.between(-5*time.Second, lasts/3), len(p.channels)-1-c)
		}
		if stops := lasts < stopMax/2 || !slices.Contains(partCalls[calls], "settle"); stops && d.r.IntN(2) == 0 { // else it waits for its settlements
			d.add(item{at: at + d.upTo(lasts/3), kind: faultStop, a: d.r.IntN(len(p.clocks)), d: d.between(time.Second, 12*time.Second)})
		}
	}
}

// load draws a steady load on the first channel, and a store whose calls take so long that
// one of each bucket is always under way.
func (d *draw) load(at, lasts time.Duration) {
	settles := []int{0, 50, 200}[d.r.IntN(3)]
	d.add(item{at: at, kind: faultSlow, b: settles, d: lasts, e: d.between(4*time.Millisecond, 40*time.Millisecond)})
	pause := time.Second / time.Duration(60*d.p.buckets)
	for end := at + lasts; at < end; at += d.upTo(2 * pause) {
		d.add(item{at: at, kind: opSchedule, a: d.n, d: d.upTo(2 * time.Second)})
		d.n++
	}
}

// comesAndGoes draws a channel that goes down, and comes back to what was parked meanwhile.
func (d *draw) comesAndGoes(at time.Duration, channel int) {
	down := d.between(time.Second, 10*time.Second)
	d.add(item{at: at, kind: faultDown, b: channel, d: down})
	for range 20 + d.r.IntN(60) {
		d.add(item{at: at - time.Second + d.upTo(down), kind: opSchedule, a: d.n, b: channel, d: d.upTo(2 * time.Second)})
		d.n++
	}
}

// flaps draws a channel that goes down and comes back again and again while a slow store
// settles and does not say so: parking, unparking and reading of one message overlap.
func (d *draw) flaps() {
	const lasts = 8 * time.Second
	settles := slices.IndexFunc(partCalls, func(calls []string) bool { return calls[0] == "settle" })
	for begin := 10 * time.Second; begin < d.p.length; begin += d.between(20*time.Second, time.Minute) {
		d.add(item{at: begin, kind: faultSlow, d: lasts, e: d.upTo(300 * time.Millisecond)})
		for at := begin; at < begin+lasts; at += d.upTo(time.Second) {
			d.add(item{at: at, kind: faultDown, d: d.upTo(500 * time.Millisecond)})
			d.add(item{at: at + d.upTo(time.Second), kind: faultPart, a: settles, b: d.r.IntN(3), d: d.upTo(400 * time.Millisecond), p: 1})
		}
		for range 200 {
			it := item{at: begin + d.upTo(lasts), kind: opSchedule, a: d.n, d: d.upTo(time.Second)}
			d.n++
			d.add(it)
			d.add(item{at: it.at + d.upTo(4*time.Second), kind: opCancel, a: it.a})
		}
	}
}

// cameBack is when what was parked for a channel that was down is to be back at the latest,
// but for the usual lateness: a probe comes within ProbeMax.
func (h *history) cameBack(c postdate.Channel) postdate.Time {
	b := h.w.channels[c]
	if b.down == 0 {
		return 0
	}
	return epoch.Add(b.down + poller.DefaultConfig().ProbeMax + 2*time.Second)
}
