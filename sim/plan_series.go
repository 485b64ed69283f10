package sim

import (
	"math/rand/v2"
	"time"

	"github.com/postdate/postdate"
)

// series draws messages that recur, in two of three worlds. It has luck of its own, so that what else
// happens in a world is the same with them and without.
func (d *draw) series(seed uint64) {
	d.r = rand.New(rand.NewPCG(seed, 3))
	if d.r.IntN(3) == 0 {
		return
	}
	pause := []time.Duration{3 * time.Second, 8 * time.Second, 20 * time.Second}[d.r.IntN(3)]
	for at := time.Second; at < d.p.length-5*time.Second; at += d.upTo(2 * pause) {
		d.oneSeries(at, [...]int{0, 0, 0, 1, 1, 2, 2, 3}[d.r.IntN(8)], d.between(time.Second, 40*time.Second))
	}
	c := d.r.IntN(len(d.p.channels))
	fast := d.p.kinds[c] != channelSlow && d.p.kinds[c] != channelTrickles // it catches up in the end
	if fast && d.r.IntN(3) == 0 {
		// So many occurrences that even fire_all skips some, if it is behind for long.
		it := d.oneSeries(time.Second+d.upTo(d.p.length/2), c, 0)
		it.recurs.Every, it.recurs.Jitter, it.recurs.Cron, it.recurs.Timezone = 100*time.Millisecond, 0, "", ""
		it.recurs.Misfire, it.recurs.MisfireAfter = postdate.MisfireAll, time.Second
		it.recurs.MaxRuns, it.recurs.End = 0, epoch.Add(d.p.length+20*time.Second)
	}
}

// oneSeries draws a series that is over after about that time, and what clients do with it.
func (d *draw) oneSeries(at time.Duration, channel int, lasts time.Duration) item {
	it := item{at: at, kind: opSeries, a: d.n, b: channel}
	d.n++
	if lasts > 0 && d.p.kinds[len(d.p.kinds)-1] == channelGone && d.r.IntN(8) == 0 {
		it.b = len(d.p.kinds) - 1
	}
	if d.r.IntN(5) == 0 {
		it.p = 1 // with the id of an expired message
	}
	r := d.recurrence(at, min(lasts, d.p.length+30*time.Second-at))
	it.recurs = r
	d.add(it)
	withdrawals := d.r.IntN(3)
	if d.p.profile == profileRaces {
		withdrawals++
	}
	for range max(withdrawals-1, 0) {
		then := at + d.upTo(lasts+2*time.Second)
		if n := int64(lasts / max(r.Every, time.Second)); d.r.IntN(3) > 0 { // close to the time of an occurrence
			then = at + max(r.Every, time.Second)*time.Duration(1+d.r.Int64N(n+1)) + d.around(30*time.Millisecond)
		}
		k := opCancel
		if d.r.IntN(4) == 0 {
			k = opRepeat
		}
		for range 1 + d.r.IntN(2) {
			d.add(item{at: max(then, at) + d.upTo(time.Second), kind: k, a: it.a})
		}
	}
	return it
}

// recurrence draws a rule that begins about now and is over after that time.
func (d *draw) recurrence(at, lasts time.Duration) *postdate.Recurrence {
	r := &postdate.Recurrence{Misfire: postdate.Misfire(d.r.IntN(3))}
	r.MisfireAfter = [...]time.Duration{0, 1, 500, 5_000, 15_000}[d.r.IntN(5)] * time.Millisecond
	r.End = epoch.Add(at + lasts)
	if d.r.IntN(20) == 0 {
		r.Cron = []string{"* * * * * *", "*/3 * * * * *", "1,2,30 * * * * *", "* * * * *"}[d.r.IntN(4)]
		r.Timezone = []string{"UTC", "America/New_York"}[d.r.IntN(2)]
		return r
	}
	r.Every = []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second, time.Second, 2 * time.Second,
		5 * time.Second}[d.r.IntN(6)]
	r.Every += d.upTo(r.Every / 4).Truncate(time.Millisecond)
	if d.r.IntN(3) > 0 {
		r.MaxRuns = 1 + d.r.IntN(max(int(lasts/r.Every), 1)+1)
	}
	if d.r.IntN(3) == 0 {
		r.Jitter = d.upTo(r.Every).Truncate(time.Millisecond)
	}
	if d.r.IntN(4) == 0 {
		r.Start = min(epoch.Add(at+d.around(5*time.Second)), r.End)
	}
	if d.r.IntN(4) == 0 {
		r.Anchor = epoch.Add(at + d.around(10*time.Second))
	}
	return r
}
