package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
)

// The channels of worlds in which parts fail. After those of every world come the channels that
// come and go with many messages, those with few messages (queues, and URLs of one host), and
// those whose answers trickle in.
const (
	manyAt, manyChannels       = 4, 2
	fewAt, fewQueues, fewURLs  = manyAt + manyChannels, 6, 6
	trickleAt, trickleChannels = fewAt + fewQueues + fewURLs, 600
)

// parts draws faults of a part of the store, which last for milliseconds, for seconds or
// longer. Meanwhile channels go down and come back.
func (d *draw) parts() {
	p := d.p
	// One claim of many buckets must return enough messages, one call must settle them, and one
	// node with a slow store must be able to take more than twice the load.
	p.poller.HandMax, p.poller.DoubtMax, p.poller.SettleMax = 2_048, 512, 256
	p.poller.PageMax, p.poller.BatchMax, p.poller.UnparkMax = 64, 32, 64
	d.channel(channelGood, "rabbitmq:comes-and-goes")
	d.channel(channelGood, "kafka:comes-and-goes")
	for i := range fewQueues {
		d.channel(channelGood, "rabbitmq:few-%d", i)
	}
	for i := range fewURLs {
		d.channel(channelGood, "https://comes-and-goes/%d", i)
	}
	for i := range trickleChannels {
		d.channel(channelTrickles, "rabbitmq:trickles-%d", i)
	}
	for at := 10 * time.Second; at < p.length-30*time.Second; at += d.between(60*time.Second, 90*time.Second) {
		switch d.r.IntN(6) {
		case 0:
			at += d.findsFail(at)
		case 1:
			d.unparksFail(at)
		case 2:
			d.settlesFail(at)
		default:
			d.partFails(at)
		}
	}
}

// channel adds one channel.
func (d *draw) channel(kind channelKind, name string, args ...any) {
	d.p.channels, d.p.kinds = append(d.p.channels, postdate.Channel(fmt.Sprintf(name, args...))), append(d.p.kinds,
		kind)
}

// part draws a fault of calls of some sorts in every third bucket, from first on.
func (d *draw) part(at, lasts time.Duration, first int, calls ...string) *item {
	sorts := slices.IndexFunc(partCalls, func(c []string) bool { return slices.Equal(c, calls) })
	d.add(item{at: at, kind: faultPart, a: sorts, b: first, d: lasts})
	return &d.p.items[len(d.p.items)-1]
}

// partFails draws a fault of calls of some sorts in a part of the store. Every other time there
// is a steady load, so that a call is always under way. Sometimes a node stops in an orderly
// way, so that others must find what it parked.
func (d *draw) partFails(at time.Duration) {
	lasts := 20*time.Millisecond + d.upTo([]time.Duration{100 * time.Millisecond, 5 * time.Second}[d.r.IntN(2)])
	if d.r.IntN(2) == 0 {
		lasts = d.between(20*time.Second, time.Minute)
	}
	calls := partCalls[d.r.IntN(len(partCalls))]
	d.part(at, lasts, d.r.IntN(3), calls...).p = max(d.r.Float64()-0.5, 0)
	if d.r.IntN(2) == 0 {
		d.load(at-3*time.Second, min(lasts, 15*time.Second)+15*time.Second)
	}
	for c := range manyChannels {
		d.comesAndGoes(at+d.between(-5*time.Second, lasts/3), manyAt+c)
	}
	// Otherwise it waits for its settlements.
	if stops := lasts < stopMax/2 || !slices.Contains(calls, "settle"); stops && d.r.IntN(2) == 0 {
		d.stop(at + d.upTo(lasts/3))
	}
}

// stop draws an orderly stop of a node, which comes back.
func (d *draw) stop(at time.Duration) {
	d.add(item{at: at, kind: faultStop, a: d.r.IntN(len(d.p.clocks)), d: d.between(time.Second, 12*time.Second)})
}

// findsFail draws a fault in which some buckets cannot be asked what is parked in them; the
// call fails only at its deadline. A node stops in an orderly way while channels are down, and
// others must find what it parked in the other buckets. It returns how much longer than usual
// it lasts: each of the failing buckets may hold up the others once.
func (d *draw) findsFail(at time.Duration) (longer time.Duration) {
	lasts := d.between(70*time.Second, 100*time.Second)
	d.part(at, lasts, d.r.IntN(3), "find parked").e = storeDeadline
	for c := range manyChannels {
		d.comesAndGoes(at+d.upTo(time.Second), manyAt+c)
	}
	d.stop(at + d.between(500*time.Millisecond, 3*time.Second))
	return lasts - time.Minute
}

// unparksFail draws that unparking fails everywhere for a moment, and then in a part of the
// store for long, while channels with few messages come back: some have messages only in that
// part, some only elsewhere. URLs of one host come back together.
func (d *draw) unparksFail(at time.Duration) {
	down, moment := d.between(time.Second, 5*time.Second), 20*time.Millisecond+d.upTo(4*time.Second)
	from, many := fewAt+[]int{0, 0, fewQueues}[d.r.IntN(3)], fewQueues+fewURLs
	for c := from; c < fewAt+many; c++ {
		d.add(item{at: at, kind: faultDown, b: c, d: down})
		for range 1 + d.r.IntN(3) {
			d.add(item{at: at - time.Second + d.upTo(down), kind: opSchedule, a: d.n, b: c, d: time.Second})
			d.n++
		}
	}
	begin := at + down - d.upTo(time.Second)
	for first := range 3 {
		d.part(begin, moment, first, "unpark")
	}
	d.part(begin, moment+d.between(25*time.Second, 45*time.Second), d.r.IntN(3), "unpark")
}

// settlesFail draws that settlements fail in a part of the store, for at most a second, and are
// slow for long after that, while answers to earlier messages of many channels trickle in.
func (d *draw) settlesFail(at time.Duration) {
	const before = 3 * time.Second
	d.load(at-before, 15*time.Second)
	for c := range trickleChannels {
		d.add(item{at: at - before + d.upTo(time.Second), kind: opSchedule, a: d.n, b: trickleAt + c,
			d: d.upTo(time.Second)})
		d.n++
	}
	d.add(item{at: at, kind: faultSlow, b: 400, d: 12 * time.Second, e: 4 * time.Millisecond, p: 0.75})
	d.part(at, d.between(100*time.Millisecond, time.Second), d.r.IntN(3), "settle")
}

// load draws a steady load on the first channel, and a store so slow that a call of each bucket
// is always under way.
func (d *draw) load(at, lasts time.Duration) {
	settles := []int{0, 50, 200}[d.r.IntN(3)]
	d.add(item{at: at, kind: faultSlow, b: settles, d: lasts, e: d.between(4*time.Millisecond, 40*time.Millisecond)})
	pause := time.Second / time.Duration(60*d.p.buckets)
	for end := at + lasts; at < end; at += d.upTo(2 * pause) {
		d.add(item{at: at, kind: opSchedule, a: d.n, d: d.upTo(2 * time.Second)})
		d.n++
	}
}

// comesAndGoes takes a channel down and lets it come back to the messages parked meanwhile.
func (d *draw) comesAndGoes(at time.Duration, channel int) {
	down := d.between(time.Second, 10*time.Second)
	d.add(item{at: at, kind: faultDown, b: channel, d: down})
	for range 20 + d.r.IntN(60) {
		d.add(item{at: at - time.Second + d.upTo(down), kind: opSchedule, a: d.n, b: channel,
			d: d.upTo(2 * time.Second)})
		d.n++
	}
}

// flaps draws a channel that goes down and comes back repeatedly while a slow store settles
// without answering: the parking, unparking and reading of one message overlap.
func (d *draw) flaps() {
	const lasts = 8 * time.Second
	settles := slices.IndexFunc(partCalls, func(calls []string) bool { return calls[0] == "settle" })
	for begin := 10 * time.Second; begin < d.p.length; begin += d.between(20*time.Second, time.Minute) {
		d.add(item{at: begin, kind: faultSlow, d: lasts, e: d.upTo(300 * time.Millisecond)})
		for at := begin; at < begin+lasts; at += d.upTo(time.Second) {
			d.add(item{at: at, kind: faultDown, d: d.upTo(500 * time.Millisecond)})
			d.add(item{at: at + d.upTo(time.Second), kind: faultPart, a: settles, b: d.r.IntN(3),
				d: d.upTo(400 * time.Millisecond), p: 1})
		}
		for range 200 {
			it := item{at: begin + d.upTo(lasts), kind: opSchedule, a: d.n, d: d.upTo(time.Second)}
			d.n++
			d.add(it)
			d.add(item{at: it.at + d.upTo(4*time.Second), kind: opCancel, a: it.a})
		}
	}
}
