package sim

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// calm reports whether store and network work without faults in this sort of world.
func (p *plan) calm() bool {
	return p.profile == profileQuiet || p.profile == profileChannels || p.profile == profileBacklog ||
		p.profile == profileDrains ||
		p.profile == profileAloneQuiet || p.profile == profileParts
}

// quiet reports whether there are no faults at all.
func (p *plan) quiet() bool { return p.profile == profileQuiet || p.profile == profileAloneQuiet }

// fault starts one fault.
func (w *world) fault(it item) {
	w.faults[it.kind.String()]++
	w.tell(nil, "FAULT %s", it)
	until := w.now + it.d
	switch it.kind {
	case faultCrash, faultPause, faultFreeze, faultStop, faultJump, faultDrift, faultCut, faultGossip, faultGhost,
		faultBlind, faultNoStore:
		w.nodeFault(w.nodes[it.a%len(w.nodes)], it)
	case faultDown, faultBlocked, faultRefuse, faultLoseConfirm, faultLateConfirm, faultLimit, faultSilent:
		w.brokerFault(w.channels[w.plan.channels[it.b]], it)
	case faultLoseRequest:
		w.weather.loseRequest = window{until, it.p}
	case faultLoseAnswer:
		w.weather.loseAnswer = window{until, it.p}
	case faultHang:
		w.weather.hang = window{until, it.p}
	case faultStray:
		w.weather.stray = window{until, it.p}
	case faultSlow:
		settles := time.Duration(it.b) * time.Millisecond
		w.weather.slowUntil, w.weather.slowBy, w.weather.settlesSlowBy = until, it.e, settles
		w.weather.settlesSlowMin = time.Duration(it.p * float64(settles))
	case faultOutage:
		w.weather.outage = until
	case faultFailover:
		w.weather.failover = until
		w.weather.failovers++
		w.store.failOver()
	case faultShard:
		w.weather.parts = append(w.weather.parts, part{from: w.now, until: until, first: it.b, hangs: true})
	case faultPart:
		w.weather.parts = append(w.weather.parts, part{from: w.now, until: until, first: it.b, calls: partCalls[it.a],
			unknown: it.p, takes: it.e})
	case faultForgotten:
		w.store.forget(it.b)
	}
}

func (w *world) nodeFault(n *node, it item) {
	until, other := w.now+it.d, it.b%len(w.nodes)
	switch it.kind {
	case faultCrash:
		n.crash()
		w.after(it.d, n.start)
	case faultPause:
		n.pause(it.d)
	case faultFreeze:
		n.freeze(it.d)
	case faultStop:
		n.stop()
		w.restart(n, it.d)
	case faultJump:
		n.clock.jump(it.d)
	case faultDrift:
		n.clock.drift(int64(it.b))
	case faultCut:
		n.cut[other] = until
	case faultGossip:
		n.deaf = window{until, it.p}
	case faultGhost:
		n.ghost = until
	case faultBlind:
		n.blind[other] = until
	case faultNoStore:
		n.noStore = until
	}
}

// restart starts a node some time after it was told to stop.
func (w *world) restart(n *node, d time.Duration) {
	w.after(d, func() {
		if n.up() {
			if !w.healed {
				w.restart(n, time.Second)
			}
			return
		}
		n.start()
	})
}

func (w *world) brokerFault(b *broker, it item) {
	until := w.now + it.d
	switch it.kind {
	case faultDown:
		b.down = until
		b.outages++
	case faultBlocked:
		b.blocked = until
	case faultRefuse:
		b.refuse = window{until, it.p}
	case faultLoseConfirm:
		b.lose = window{until, it.p}
	case faultLateConfirm:
		b.late, b.lateBy = until, it.e
	case faultLimit:
		w.limit(b, store.ChannelSettings{Route: postdate.Route(b.name), Paused: it.e == 0, MaxPerSecond: it.e.Seconds(),
			MaxInFlight: it.a})
		w.after(it.d, func() { w.limit(b, store.ChannelSettings{}) })
	case faultSilent:
		b.deleted = until
	}
}

// limit sets an operator's settings of a channel, and tells every process.
func (w *world) limit(b *broker, set store.ChannelSettings) {
	if set.Paused && !b.limit.Paused {
		b.paused = w.now
	}
	b.limit = set
	for _, n := range w.nodes {
		if n.up() {
			n.proc.after(w.upTo(10*time.Millisecond), n.proc.limits)
		}
	}
}

// limits passes the operators' settings to the poller.
func (p *process) limits() {
	var all []store.ChannelSettings
	for _, c := range p.w.plan.channels {
		l := p.w.channels[c].limit
		if l.Route != "" {
			all = append(all, l)
		}
		if p.paused[c] && !l.Paused {
			p.resumed[c] = p.w.now
		}
		p.paused[c] = l.Paused
	}
	p.step(poller.Limits{Settings: all})
}

// heal ends all faults: everything runs, is reachable and is right.
func (w *world) heal() {
	w.tell(nil, "everything heals")
	w.healed = true
	w.weather = weather{failovers: w.weather.failovers, parts: w.weather.ended(w.now)}
	for _, n := range w.nodes {
		n.clock.right()
		clear(n.cut)
		clear(n.blind)
		n.deaf, n.ghost, n.noStore = window{}, 0, 0
		if n.paused {
			n.resume() // perhaps to stop, if that was asked for meanwhile
		}
		switch {
		case !n.up():
			n.start()
		case n.proc.stopping:
			w.after(upWithin, n.start)
		}
	}
	for _, c := range w.plan.channels {
		b := w.channels[c]
		b.down, b.blocked, b.deleted, b.late, b.refuse, b.lose = 0, 0, 0, 0, window{}, window{}
		if b.limit.Route != "" {
			w.limit(b, store.ChannelSettings{})
		}
	}
}
