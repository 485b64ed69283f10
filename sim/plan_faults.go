package sim

import "time"

// orderly draws stops and starts in order, at most one at a time.
func (d *draw) orderly() {
	for at := 20 * time.Second; at < d.p.length-30*time.Second; at += d.between(20*time.Second, 60*time.Second) {
		d.add(item{at: at, kind: faultStop, a: d.r.IntN(len(d.p.clocks)), d: d.between(time.Second, 12*time.Second)})
	}
}

// ghosts draws members that are none: whoever believes in them is not to be late.
func (d *draw) ghosts() {
	for at := 10 * time.Second; at < d.p.length; at += d.between(20*time.Second, 60*time.Second) {
		d.add(item{at: at, kind: faultGhost, a: d.r.IntN(len(d.p.clocks)), d: d.between(5*time.Second, 20*time.Second)})
	}
}

// badChannels draws trouble with every channel but the first.
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

// storm draws faults of every sort. often is 1 for a storm.
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
	switch it.kind { // and somebody sets it right again
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
	switch d.r.IntN(11) {
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

// lostAnswers draws times in which the store takes effect and does not say so:
// clients and owners then race with their own repetitions.
func (d *draw) lostAnswers() {
	for at := 5 * time.Second; at < d.p.length; at += d.upTo(30 * time.Second) {
		k := []kind{faultLoseAnswer, faultHang}[d.r.IntN(2)]
		d.add(item{at: at, kind: k, d: d.upTo(5 * time.Second), p: 0.7 * d.r.Float64()})
	}
}

// lateClaims draws claims that take effect late, while a bucket is drained and claimed
// stands: what is with a broker that does not answer keeps the drain from its end, and
// messages come behind the checkpoint meanwhile.
func (d *draw) lateClaims() {
	for at := 10 * time.Second; at < d.p.length; at += d.between(20*time.Second, 60*time.Second) {
		d.add(item{at: at - time.Second, kind: faultBlocked, b: int(channelSlow), d: 12 * time.Second})
		d.add(item{at: at, kind: faultStop, a: d.r.IntN(len(d.p.clocks)), d: 14 * time.Second})
		d.add(item{at: at, kind: faultStray, d: 8 * time.Second, p: 0.6 * d.r.Float64()})
		for range 40 {
			d.add(item{at: at + d.between(-500*time.Millisecond, 8*time.Second), kind: opSchedule, a: d.n, b: int(channelSlow), d: -d.upTo(9 * time.Second)})
			d.n++
		}
	}
}
