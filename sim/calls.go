package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
)

// window is a fault that lasts for a while, with a strength.
type window struct {
	until    time.Duration
	strength float64
}

func (x window) now(now time.Duration) float64 {
	if now < x.until {
		return x.strength
	}
	return 0
}

// weather is what goes wrong with the store. Times are the ends of faults.
type weather struct {
	loseRequest, loseAnswer, hang, stray window
	slowUntil                            time.Duration
	slowBy                               time.Duration
	// until slowUntil, settlements take this much longer: at least, and at most
	settlesSlowMin, settlesSlowBy time.Duration
	outage                        time.Duration // until then
	failover                      time.Duration // until then; the outcome of calls under way is unknown
	failovers                     int
	parts                         []part // those that fail, or have failed
}

// storeCall is one call of the store.
type storeCall struct {
	name     string
	buckets  []int           // that it touches, if that matters
	deadline time.Duration   // after which its driver gives up; 0: storeDeadline
	slowly   time.Duration   // how long it takes to fail without an effect
	effect   []func()        // its steps; other calls may come between them
	ordered  bool            // by contract, it has no effect after it was given up
	fate     how             // unless the weather has another one for it
	lingers  bool            // if it hangs, it may have its effect after it was given up, in any store
	half     func()          // the part of the effect that a failure midway leaves done; nil: all or nothing
	answer   func()          // gives the process the result
	failed   func(err error) // tells the process that the call failed
}

// storeDeadline is when a driver gives up on an answer.
const storeDeadline = 10 * time.Second

var (
	errLost = postdate.E(postdate.KindUnknown, "the answer was lost")
	errDown = postdate.E(postdate.KindUnavailable, "the store takes nothing at present")
)

// how is the fate of a call.
type how uint8

const (
	wellDone how = iota
	failsBefore
	failsAfter
	failsHalfway
	hangs // without effect
	hangsWithEffect
	strays // takes effect after it was given up
)

// latency returns how long one way takes, to the store or back.
func (w *world) latency() time.Duration {
	d := 100*time.Microsecond + w.upTo(2*time.Millisecond)
	switch {
	case w.now < w.weather.slowUntil:
		d += w.upTo(w.weather.slowBy)
	case w.plan.calm():
	case w.r.IntN(200) == 0:
		d += w.upTo(60 * time.Millisecond)
	}
	return d
}

// fate decides the fate of a call when it arrives.
func (w *world) fate(n *node, k int) how {
	if how, ok := w.inject.fate(k); ok {
		return how
	}
	x := &w.weather
	switch {
	case w.now < n.noStore || w.now < x.outage || w.now < x.failover:
		return []how{failsBefore, hangs}[w.r.IntN(2)]
	case w.chance(x.loseRequest.now(w.now)):
		return failsBefore
	case w.chance(x.loseAnswer.now(w.now)):
		return []how{failsAfter, failsHalfway}[w.r.IntN(2)]
	case w.chance(x.stray.now(w.now)):
		return strays
	case w.chance(x.hang.now(w.now)):
		return []how{hangs, hangsWithEffect}[w.r.IntN(2)]
	}
	return wellDone
}

// call sends a call to the store and returns its answer.
func (p *process) call(c *storeCall) {
	w := p.w
	w.calls++
	k := w.calls
	w.markText(c.name)
	if c.deadline == 0 {
		c.deadline = storeDeadline
	}
	began := w.now
	p.after(w.upTo(100*time.Microsecond), func() { // a process that is paused here sends it when it resumes
		way := w.latency()
		if c.name == "settle" && w.now < w.weather.slowUntil {
			way += w.between(w.weather.settlesSlowMin, w.weather.settlesSlowBy)
		}
		p.inStore(way, func() {
			f := w.fate(p.n, k)
			if f == wellDone {
				f = c.fate
			}
			for _, x := range w.weather.parts {
				if x.fails(w.now, c) {
					f, c.slowly = x.fate(w), x.takes
				}
			}
			p.arrive(c, f, began)
		})
	})
}

// arrive carries out a call at the store.
func (p *process) arrive(c *storeCall, f how, began time.Duration) {
	w := p.w
	w.mark(7, uint64(f))
	if f != wellDone {
		w.tell(p.n, "%s: fate %d", c.name, f)
	}
	giveUp := max(began+c.deadline-w.now, time.Millisecond)
	if w.r.IntN(2) == 0 {
		giveUp = w.upTo(giveUp) // the connection breaks
	}
	back := func(d time.Duration, do func()) { w.after(d, func() { p.run(do) }) }
	switch f {
	case failsBefore:
		err := []error{errLost, errDown}[w.r.IntN(2)]
		back(w.latency()+c.slowly, func() { c.failed(err) })
		return
	case hangs:
		back(giveUp, func() { c.failed(errLost) })
		if c.lingers && w.r.IntN(2) == 0 {
			p.inStore(giveUp+w.upTo(3*time.Second), func() { p.takeEffect(c.effect, func() {}) })
		}
		return
	case strays:
		if c.ordered {
			p.takeEffect(c.effect, func() {})
			back(giveUp, func() { c.failed(errLost) })
			return
		}
		back(giveUp, func() { c.failed(errLost) })
		p.inStore(giveUp+w.upTo(3*time.Second), func() { p.takeEffect(c.effect, func() {}) })
		return
	case failsHalfway:
		if c.half != nil {
			c.half()
			back(w.latency(), func() { c.failed(errLost) })
			return
		}
	}
	failovers := w.weather.failovers
	p.takeEffect(c.effect, func() {
		switch {
		case f == hangsWithEffect:
			back(giveUp, func() { c.failed(errLost) })
		case f != wellDone, failovers != w.weather.failovers:
			back(w.latency(), func() { c.failed(errLost) })
		default:
			back(w.latency(), c.answer)
		}
	})
}

// takeEffect carries out the steps of a call's effect, with a short time between them.
func (p *process) takeEffect(steps []func(), then func()) {
	w := p.w
	steps[0]()
	switch {
	case len(steps) == 1:
		then()
	case w.r.IntN(2) == 0:
		p.takeEffect(steps[1:], then)
	case w.bug == bugClaimCostsAll:
		p.inStore(time.Duration(len(w.store.Rows))*time.Millisecond, func() { p.takeEffect(steps[1:], then) })
	case w.plan.profile == profileRaces: // the claim and its read are far apart
		p.inStore(w.upTo(12*time.Millisecond), func() { p.takeEffect(steps[1:], then) })
	default:
		p.inStore(w.latency(), func() { p.takeEffect(steps[1:], then) })
	}
}

var ctx = context.Background()

func (p *process) claim(e poller.Claim) {
	w := p.w
	results := make([]store.ClaimResult, len(e.Claims))
	var buckets []int
	for _, c := range e.Claims {
		buckets = append(buckets, c.Bucket)
		w.mark(8, uint64(c.Bucket), c.Token, uint64(c.Checkpoint), uint64(c.To.Time), uint64(c.Scan.After.Time),
			uint64(c.Scan.Limit), uint64(len(c.Behind)))
		w.markText(string(c.Only))
		w.tell(p.n, "claims bucket %d, token %d: claim %d, (%d, %s], only of %q, behind %v, reads %d from %s",
			c.Bucket, c.Token, c.Number, c.Checkpoint-epoch, at(c.To), c.Only, c.Behind, c.Scan.Limit, at(c.Scan.After))
	}
	write := func(claims []store.Claim) {
		for i, c := range claims {
			results[i].To, results[i].Err = w.store.write(p.n.name, c)
		}
	}
	read := func() {
		for i, c := range e.Claims {
			if results[i].Err == nil {
				results[i] = w.store.read(c, results[i].To)
			}
		}
	}
	effect := []func(){func() { write(e.Claims) }, read}
	if w.bug == bugClaimAfterRead {
		for i, c := range e.Claims {
			results[i].To = c.To
		}
		effect = []func(){read, func() { write(e.Claims) }}
	}
	p.call(&storeCall{
		name: "claim", effect: effect, buckets: buckets,
		half: func() { write(e.Claims[:len(e.Claims)/2]) },
		answer: func() {
			for _, b := range buckets {
				delete(p.unheard, b)
			}
			p.step(poller.Claimed{Call: e.Call, Results: results})
		},
		failed: func(err error) {
			for i := range results {
				results[i] = store.ClaimResult{Err: err}
				p.unheard[buckets[i]] = true
			}
			p.step(poller.Claimed{Call: e.Call, Results: results})
		},
	})
}

// at is a position for the log, which formats it only if somebody reads the log.
type at bucket.Position

func (p at) String() string { return fmt.Sprintf("%d/%s", p.Time-epoch, p.ScheduleID) }

func (p *process) settle(e poller.Settle) {
	w := p.w
	var buckets []int
	for i := range e.Settlements {
		s := &e.Settlements[i]
		buckets = append(buckets, s.Key.Bucket)
		w.markText(s.Key.ScheduleID)
		w.mark(9, uint64(s.How), uint64(s.AttemptTime), uint64(s.Attempts))
		w.tell(p.n, "settles %s version %d: how %d, attempts %d, attempt time %d, doubt %t (%s)",
			s.Key.ScheduleID, s.Version, s.How, s.Attempts, s.AttemptTime-epoch, s.PossibleDuplicate, s.Reason)
	}
	all := slices.Clone(e.Settlements)
	p.call(&storeCall{
		name: "settle", ordered: true, buckets: buckets, effect: []func(){func() { w.store.Settle(ctx, all) }},
		half:   func() { w.store.Settle(ctx, all[:len(all)/2]) },
		answer: func() { p.step(poller.Settled{Call: e.Call}) },
		failed: func(err error) { p.step(poller.Settled{Call: e.Call, Err: err}) },
	})
}

func (p *process) unpark(e poller.Unpark) {
	var moved, early int
	var err error
	u := e.Unpark
	p.w.tell(p.n, "unparks %d of %s in bucket %d at %d", u.Limit, u.Route, u.Bucket, u.At-epoch)
	p.w.mark(10, uint64(u.Bucket), uint64(u.At), uint64(u.Limit))
	if wait := u.At.Sub(p.n.clock.now().Wall); wait > 3*time.Second { // even if its clock ran ahead and was set back
		p.w.violate(1, "%s brings back messages of %s for a time that is %s ahead", p.n.name, u.Route, wait)
	}
	p.call(&storeCall{
		name: "unpark", buckets: []int{u.Bucket},
		effect: []func(){func() { moved, early, err = p.w.store.Unpark(ctx, u) }},
		answer: func() { p.step(poller.Unparked{Unpark: u, Moved: moved, Early: early, Err: err}) },
		failed: func(err error) { p.step(poller.Unparked{Unpark: u, Err: err}) },
	})
}

func (p *process) findParked(e poller.FindParked) {
	var found []store.ParkedRoute
	p.call(&storeCall{
		name: "find parked", buckets: e.Buckets,
		effect: []func(){func() { found, _ = p.w.store.Parked(ctx, e.Buckets) }},
		answer: func() { p.step(poller.ParkedFound{Buckets: e.Buckets, Found: p.parkedFound(found)}) },
		failed: func(err error) { p.step(poller.ParkedFound{Buckets: e.Buckets, Err: err}) },
	})
}

// locks carries out the fence's calls of the store, as the product's loop does: it gives up a
// call that hangs after a lease time.
func (p *process) locks(e fence.Effect) {
	w, began := p.w, p.n.clock.now()
	began.Mono = p.now().Mono
	switch e := e.(type) {
	case fence.Look:
		saw := fence.Saw{Began: began.Mono}
		p.call(&storeCall{
			name: "look", deadline: p.lasts,
			effect: []func(){func() { saw.Partitions, saw.Leases, _ = w.store.Look(ctx, e.Buckets) }},
			answer: func() { p.step(saw) },
			failed: func(err error) { p.step(fence.Saw{Began: began.Mono, Err: err}) },
		})
	case fence.Renew:
		renewed, sent, offset := fence.Renewed{Began: began}, w.now, p.n.clock.offset
		p.call(&storeCall{
			name: "renew", deadline: p.lasts,
			effect: []func(){func() { renewed.Store, _ = w.store.Renew(ctx, e.Lease) }},
			answer: func() {
				renewed.WallEnded = p.n.clock.now().Wall
				w.renewalMax = max(w.renewalMax, w.now-sent)
				p.noteRenewed(began.Mono)
				p.step(renewed)
				if began.Mono >= p.n.clock.set {
					p.judged = offset
				}
				p.serves = p.serves || !w.plan.alone() && p.m.Status().Ahead == 0
			},
			failed: func(err error) { p.step(fence.Renewed{Began: began, Err: err}) },
		})
	case fence.Take:
		var took []store.Acquired
		p.call(&storeCall{
			name: "take", deadline: p.lasts,
			effect: []func(){func() { took, _ = w.store.Acquire(ctx, e.Wants) }},
			half:   func() { w.store.Acquire(ctx, e.Wants[:len(e.Wants)/2]) },
			answer: func() { p.step(fence.Took{Results: took}) },
			failed: func(err error) { p.step(fence.Took{Err: err}) },
		})
	case fence.GiveBack:
		p.call(&storeCall{
			name: "give back", deadline: p.lasts,
			effect: []func(){func() { w.store.Release(ctx, e.Holds) }},
			half:   func() { w.store.Release(ctx, e.Holds[:len(e.Holds)/2]) },
			answer: func() { p.step(fence.GaveBack{Holds: e.Holds}) },
			failed: func(err error) { p.step(fence.GaveBack{Holds: e.Holds, Err: err}) },
		})
	}
}

// expire deletes what is past its retention.
func (p *process) expire(e machine.Expire) {
	var count int
	by := p.deletion()
	p.call(&storeCall{
		name: "expire",
		effect: []func(){func() {
			count = p.w.store.expireFor(by, e.Expiry)
		}},
		answer: func() { p.step(machine.Expired{Count: count}) },
		failed: func(err error) { p.step(machine.Expired{Err: err}) },
	})
}
