package sim

import (
	"fmt"
	"time"

	"github.com/postdate/postdate"
)

// orderly draws orderly stops and starts, at most one at a time.
func (d *draw) orderly() {
	for at := 20 * time.Second; at < d.p.length-30*time.Second; at += d.between(20*time.Second, 60*time.Second) {
		d.add(item{at: at, kind: faultStop, a: d.r.IntN(len(d.p.clocks)), d: d.between(time.Second, 12*time.Second)})
	}
}

// ghosts draws members that do not exist. Believing in them must not make a node late.
func (d *draw) ghosts() {
	for at := 10 * time.Second; at < d.p.length; at += d.between(20*time.Second, 60*time.Second) {
		d.add(item{at: at, kind: faultGhost, a: d.r.IntN(len(d.p.clocks)), d: d.between(5*time.Second, 20*time.Second)})
	}
}

// shards draws times in which a part of the store cannot be reached.
func (d *draw) shards() {
	for at := 20 * time.Second; at < d.p.length-time.Minute; at += d.between(50*time.Second, 2*time.Minute) {
		d.add(item{at: at, kind: faultShard, b: d.r.IntN(3), d: d.between(5*time.Second, 40*time.Second)})
	}
}

// floods draws very many messages of the first tenant to the slow channel, due at one time, and a few
// of the second tenant among them, which the others must not hold up. In every other world they are
// even more, to more channels than a bucket's record can name; in others they have a low priority, and
// a few of the same tenant to the same channel a high one.
func (d *draw) floods() {
	many, to := 800, []int{int(channelSlow)}
	if d.p.floodsMany = d.r.IntN(2) == 0; d.p.floodsMany {
		many, to = 6_400, nil
		n := []int{40, 400}[d.r.IntN(2)] // the brokers or the store are what takes the time
		d.p.poller.HandMax += 4 * n
		d.p.poller.DoubtMax = 32 // few are read at a time
		for i := range n {
			to = append(to, len(d.p.channels))
			d.p.channels = append(d.p.channels, postdate.Channel(fmt.Sprintf("rabbitmq:slow-%d", i)))
			d.p.kinds = append(d.p.kinds, channelSlow)
		}
	}
	d.p.floodsLow = !d.p.floodsMany && d.r.IntN(2) == 0
	for at := 10 * time.Second; at < d.p.length-30*time.Second; at += d.between(20*time.Second, time.Minute) {
		due := at + 2*time.Second
		for i := range many {
			if ofSecondTenant(d.n) {
				d.n++
			}
			it := item{at: at, kind: opSchedule, a: d.n, b: to[i%len(to)], d: due - at}
			if d.p.floodsLow {
				it.priority = postdate.PriorityLow
			}
			d.add(it)
			d.n++
		}
		for i := range 16 {
			second := i%2 == 0
			if !second && !d.p.floodsLow {
				continue
			}
			for ofSecondTenant(d.n) != second {
				d.n++
			}
			it := item{at: at, kind: opSchedule, a: d.n, b: int(channelSlow), d: due - at + d.upTo(2*time.Second)}
			if !second {
				it.priority = postdate.PriorityHigh
			}
			d.add(it)
			d.n++
		}
	}
}

// crowd draws many more channels in trouble, with a backlog each: URLs of a few hosts, and
// queues.
func (d *draw) crowd() {
	n := []int{0, 12, 40, 400}[d.r.IntN(4)]
	d.p.poller.HandMax += 4 * n // per channel as many as with 4,000 in the product
	for i := range n {
		kind := []channelKind{channelMute, channelDead, channelTight, channelSlow}[d.r.IntN(4)]
		name := postdate.Channel(fmt.Sprintf("rabbitmq:crowd-%d", i))
		if kind == channelDead && d.r.IntN(2) == 0 {
			name = postdate.Channel(fmt.Sprintf("https://host-%d.example/%d", i%3, i))
		}
		d.p.channels, d.p.kinds = append(d.p.channels, name), append(d.p.kinds, kind)
		at := 5*time.Second + d.upTo(d.p.length/2)
		for range 4 + d.r.IntN(1+1_200/n) {
			d.add(item{at: at + d.upTo(time.Second), kind: opSchedule, a: d.n, b: len(d.p.channels) - 1,
				d: d.upTo(2 * time.Second)})
			d.n++
		}
	}
}

// firstMessages draws healthy channels with one message each: inboxes, queues and URLs.
// Meanwhile so many hosts do not answer that they occupy between a quarter and a half of the
// hand of a node that has its share of them.
func (d *draw) firstMessages() {
	if d.r.IntN(2) == 0 {
		return
	}
	begin := d.upTo(d.p.length / 2)
	d.p.poller.HandMax = max(d.p.poller.HandMax, 1_024) // so that the shares are about equal
	for i := range d.p.poller.HandMax * 29 / 100 * min(len(d.p.clocks), 3) {
		d.one(fmt.Sprintf("https://mute-%d.example/", i), channelMute, begin)
	}
	for i := range 40 {
		name := []string{"inbox:new-%d", "rabbitmq:new-%d", "https://new-%d.example/", "https://new.example/%d"}[i%4]
		d.one(fmt.Sprintf(name, i), channelGood, begin+time.Second+d.upTo(8*time.Second))
	}
}

// one draws a channel with a single message.
func (d *draw) one(name string, kind channelKind, at time.Duration) {
	d.p.channels, d.p.kinds = append(d.p.channels, postdate.Channel(name)), append(d.p.kinds, kind)
	d.add(item{at: at, kind: opSchedule, a: d.n, b: len(d.p.channels) - 1, d: d.upTo(2 * time.Second)})
	d.n++
}

// badChannels draws faults of every channel but the first.
func (d *draw) badChannels() {
	for at := 5 * time.Second; at < d.p.length; at += d.upTo(12 * time.Second) {
		d.brokerFault(at, 1+d.r.IntN(len(d.p.channels)-1))
	}
	for at := 10 * time.Second; at < d.p.length; at += d.between(10*time.Second, 60*time.Second) {
		for range 1_200 { // a flood for a slow channel
			d.add(item{at: at + d.upTo(time.Second), kind: opSchedule, a: d.n, b: 1, d: d.upTo(2 * time.Second)})
			d.n++
		}
	}
}

// backlogs gives a slow channel more to do than it can while nodes stop in an orderly way: it
// is flooded, limited, paused, or does not answer.
func (d *draw) backlogs() {
	for at := 12 * time.Second; at < d.p.length; at += d.between(20*time.Second, 60*time.Second) {
		for range 300 {
			d.add(item{at: at + d.upTo(time.Second), kind: opSchedule, a: d.n, b: int(channelSlow),
				d: d.upTo(4 * time.Second)})
			d.n++
		}
		it := item{at: at, kind: faultLimit, b: int(channelSlow), d: d.between(10*time.Second, 50*time.Second)}
		switch d.r.IntN(4) {
		case 0: // paused
		case 1, 2:
			it.e = d.between(time.Second, 20*time.Second)
		default:
			it.kind, it.d = faultBlocked, d.upTo(20*time.Second)
		}
		d.add(it)
	}
	for at := time.Second; at < d.p.length; at += d.upTo(800 * time.Millisecond) {
		d.add(item{at: at, kind: opSchedule, a: d.n, d: d.upTo(4 * time.Second)})
		d.n++
	}
}

// drainsWhileToldOf makes a node come back shortly after others have taken its buckets. They
// must hand them back while the broker is still being told of them, and the store does not hear
// of it immediately.
func (d *draw) drainsWhileToldOf() {
	for at := 8 * time.Second; at < d.p.length; at += d.between(15*time.Second, 45*time.Second) {
		down := d.between(3*time.Second, 5*time.Second)
		d.add(item{at: at, kind: faultCrash, a: d.r.IntN(len(d.p.clocks)), d: down})
		d.add(item{at: at + down, kind: faultLoseRequest, d: d.upTo(4 * time.Second), p: 0.3 + 0.4*d.r.Float64()})
	}
}

// storm draws faults of every sort; the larger often, the more. It is 1 in a storm.
func (d *draw) storm(often float64) {
	pause := time.Duration(float64(3*time.Second) / often)
	for at := 3 * time.Second; at < d.p.length; at += d.upTo(2 * pause) {
		switch d.r.IntN(4) {
		case 0:
			d.nodeFault(at)
		case 1:
			d.storeFault(at)
		case 2:
			d.brokerFault(at, d.r.IntN(len(d.p.channels)))
		default:
			d.gossipFault(at)
		}
	}
}

func (d *draw) nodeFault(at time.Duration) {
	it := item{at: at, a: d.r.IntN(len(d.p.clocks))}
	switch d.r.IntN(10) {
	case 9:
		it.kind, it.d = faultFreeze, d.upTo(8*time.Second)
	case 0, 1:
		it.kind, it.d = faultCrash, d.upTo(8*time.Second)
	case 2, 3:
		it.kind, it.d = faultPause, d.upTo(8*time.Second)
	case 4:
		it.kind, it.d = faultPause, d.upTo(500*time.Millisecond)
	case 5:
		it.kind, it.d = faultStop, d.upTo(10*time.Second)
	case 6:
		it.kind, it.d = faultJump, d.around(900*time.Millisecond)
	case 7:
		it.kind, it.d = faultJump, d.around(90*time.Second)
	default:
		it.kind, it.b = faultDrift, d.r.IntN(20_001)-10_000
	}
	d.add(it)
	switch it.kind { // later it is set right again
	case faultJump:
		d.add(item{at: at + d.upTo(10*time.Second), kind: faultJump, a: it.a, d: -it.d})
	case faultDrift:
		d.add(item{at: at + d.upTo(30*time.Second), kind: faultDrift, a: it.a})
	}
}

func (d *draw) gossipFault(at time.Duration) {
	it := item{at: at, a: d.r.IntN(len(d.p.clocks)), b: d.r.IntN(len(d.p.clocks)), d: d.upTo(20 * time.Second)}
	switch d.r.IntN(4) {
	case 0:
		it.kind = faultCut
	case 1:
		it.kind, it.p = faultGossip, d.r.Float64()
	case 2:
		it.kind = faultGhost
	default:
		it.kind = faultBlind
	}
	d.add(it)
}

func (d *draw) storeFault(at time.Duration) {
	it := item{at: at, d: d.upTo(8 * time.Second), p: 0.6 * d.r.Float64()}
	switch d.r.IntN(12) {
	case 11:
		it.kind, it.b = faultShard, d.r.IntN(3)
	case 9, 10:
		it.kind = faultStray
	case 0:
		it.kind = faultLoseRequest
	case 1, 2:
		it.kind, it.p = faultLoseAnswer, d.r.Float64()
	case 3:
		it.kind = faultHang
	case 4:
		it.kind, it.e = faultSlow, d.upTo(2*time.Second)
	case 5:
		it.kind, it.d = faultOutage, d.upTo(6*time.Second)
	case 6:
		it.kind, it.d = faultFailover, d.upTo(6*time.Second)
	case 7:
		it.kind, it.a = faultNoStore, d.r.IntN(len(d.p.clocks))
	default:
		it.kind, it.b = faultForgotten, d.r.IntN(d.p.buckets)
	}
	d.add(it)
}

func (d *draw) brokerFault(at time.Duration, channel int) {
	it := item{at: at, b: channel, d: d.upTo(10 * time.Second), p: d.r.Float64()}
	switch d.r.IntN(8) {
	case 7:
		it.kind, it.e = faultLimit, time.Duration(d.r.IntN(3))*d.upTo(40*time.Second)
	case 0, 1:
		it.kind = faultDown
	case 2:
		it.kind = faultBlocked
	case 3:
		it.kind = faultRefuse
	case 4:
		it.kind = faultLoseConfirm
	case 5:
		it.kind = faultSilent
	default:
		it.kind, it.e = faultLateConfirm, d.upTo(3*time.Second)
	}
	d.add(it)
}

// lostAnswers draws times in which calls of the store take effect but their answers are lost:
// clients and owners then race against their own repetitions.
func (d *draw) lostAnswers() {
	for at := 5 * time.Second; at < d.p.length; at += d.upTo(30 * time.Second) {
		k := []kind{faultLoseAnswer, faultHang}[d.r.IntN(2)]
		d.add(item{at: at, kind: k, d: d.upTo(5 * time.Second), p: 0.7 * d.r.Float64()})
	}
}

// lateClaims draws claims that take effect late, while a bucket is drained and claimed does not
// move: messages at a broker that does not answer keep the drain from ending, and others arrive
// behind the checkpoint.
func (d *draw) lateClaims() {
	for at := 10 * time.Second; at < d.p.length; at += d.between(20*time.Second, 60*time.Second) {
		d.add(item{at: at - time.Second, kind: faultBlocked, b: int(channelSlow), d: 12 * time.Second})
		d.add(item{at: at, kind: faultStop, a: d.r.IntN(len(d.p.clocks)), d: 14 * time.Second})
		d.add(item{at: at, kind: faultStray, d: 8 * time.Second, p: 0.6 * d.r.Float64()})
		for range 40 {
			d.add(item{at: at + d.between(-500*time.Millisecond, 8*time.Second), kind: opSchedule, a: d.n,
				b: int(channelSlow), d: -d.upTo(9 * time.Second)})
			d.n++
		}
	}
}
