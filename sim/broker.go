package sim

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// broker is one channel: its nature, and what goes wrong at present.
type broker struct {
	name    postdate.Channel
	kind    channelKind
	down    time.Duration // until when
	paused  time.Duration // when the last pause began
	blocked time.Duration
	deleted time.Duration
	refuse  window
	lose    window // confirms
	late    time.Duration
	lateBy  time.Duration
	limit   store.ChannelSettings // what an operator set of it for the default tenant; zero: nothing
	outages int                   // a publish in flight when an outage begins has an unknown outcome
}

// publishDeadline is when a publisher gives up on a confirm.
const publishDeadline = 10 * time.Second

// fateOf is the fate of one publish.
type fateOf struct {
	result  publisher.Result
	took    time.Duration // until the result is known
	arrives bool
	arrival time.Duration
}

// publish hands a batch to its broker, and returns the results when all are known.
func (p *process) publish(e poller.Publish) {
	w := p.w
	w.calls++
	k := w.calls
	emissions := make([]*emission, len(e.Batch))
	for i, it := range e.Batch {
		d := it.Delivery
		marked := d.PossibleDuplicate && w.bug != bugNoMark
		w.markText(d.Message.ScheduleID)
		w.mark(11, uint64(d.Attempt), b2u(marked))
		w.tell(p.n, "publishes %s %q attempt %d marked %t", d.Message.ScheduleID, d.Message.Payload, d.Attempt, marked)
		emissions[i] = w.history.emitted(p, d, marked, e.Settlements != nil)
	}
	if e.Settlements != nil {
		p.deliver(e, emissions)
		return
	}
	wait := w.upTo(100 * time.Microsecond)
	if w.bug == bugOneByOne {
		wait += max(p.publishing-w.now, 0)
	}
	p.after(wait, func() {
		b := w.channels[e.Channel]
		outages := b.outages
		results := make([]publisher.Result, len(e.Batch))
		longest := time.Duration(0)
		how, injected := w.inject.fate(k)
		for _, m := range emissions {
			m.handedOver, m.delivered = w.dated(), p.wall()
		}
		for i := range e.Batch {
			f := p.brokerFate(b)
			if injected {
				f = injectedFate(how)
			}
			f = p.brokerBug(f)
			results[i] = f.result
			longest = max(longest, f.took)
			if f.arrives {
				m := emissions[i]
				m.mayArrive = true
				w.after(f.arrival, func() { w.history.arrived(m) })
			}
		}
		p.publishing = w.now + longest
		w.after(longest, func() {
			if outages != b.outages && w.bug == "" { // the connection was lost before the answer was sent
				for i := range results {
					if results[i].Outcome == publisher.Confirmed || results[i].Outcome == publisher.Refused {
						results[i] = publisher.Result{Outcome: publisher.Unknown, Reason: "the connection was lost"}
					}
				}
			}
			p.run(func() {
				for _, m := range emissions {
					m.answered = w.dated()
				}
				m := e.Batch[0].Delivery.Message
				p.noteConfirmed(postdate.RouteOf(m.Tenant, m.Channel), results)
				p.step(poller.Published{Batch: e.Batch, Results: results})
			})
		})
	})
}

// deliver asks the store to put a batch into its inbox and to settle it.
func (p *process) deliver(e poller.Publish, emissions []*emission) {
	w := p.w
	buckets := make([]int, len(emissions))
	for i, m := range emissions {
		buckets[i] = m.message.Bucket
		m.handedOver, m.delivered, m.answered = w.dated(), p.wall(), w.dated()
	}
	deliver := func(n int) {
		for i, m := range emissions[:n] {
			w.store.deliver(m, e.Settlements[i])
		}
	}
	publish := func(r publisher.Result) {
		results := publisher.All(len(emissions), r)
		m := emissions[0].message
		p.noteConfirmed(postdate.RouteOf(m.Tenant, m.Channel), results)
		p.step(poller.Published{Batch: e.Batch, Results: results})
	}
	fate, b := wellDone, w.channels[e.Channel]
	switch {
	case w.now < b.blocked:
		fate = hangs
	case w.chance(b.lose.now(w.now)):
		fate = []how{failsBefore, failsAfter, failsHalfway}[w.r.IntN(3)]
	}
	p.call(&storeCall{
		name: "deliver", buckets: buckets, fate: fate, lingers: true,
		effect: []func(){func() { deliver(len(emissions)) }},
		half:   func() { deliver(len(emissions) / 2) },
		answer: func() { publish(publisher.Result{Outcome: publisher.Confirmed, Settled: true}) },
		failed: func(err error) {
			r := publisher.Result{Outcome: publisher.Unknown, Reason: err.Error()}
			if postdate.KindOf(err) == postdate.KindUnavailable {
				r.Outcome = publisher.Down
			}
			publish(r)
		},
	})
}

// brokerFate draws the fate of one publish.
func (p *process) brokerFate(b *broker) fateOf {
	w := p.w
	took := 200*time.Microsecond + w.upTo(3*time.Millisecond)
	switch b.kind {
	case channelSlow:
		took = w.upTo(400 * time.Millisecond)
	case channelTrickles:
		took = w.upTo(9 * time.Second)
	}
	f := fateOf{result: publisher.Result{Outcome: publisher.Confirmed}, took: took, arrives: true, arrival: took / 2}
	switch {
	case w.now < b.down, b.kind == channelGone:
		return fateOf{result: publisher.Result{Outcome: publisher.Down, Reason: "the broker is down"}, took: took}
	case w.now < b.blocked, b.kind == channelMute && !w.healed:
		f.result = publisher.Result{Outcome: publisher.Unknown, Reason: "no confirm in time"}
		f.took, f.arrives, f.arrival = publishDeadline, w.r.IntN(2) == 0, w.upTo(publishDeadline+3*time.Second)
	case b.kind == channelMissing, w.now < b.deleted:
		f.result, f.arrives = publisher.Result{Outcome: publisher.Refused, Reason: "NO_ROUTE"}, false
		if w.bug == bugNotMandatory { // it is dropped, and confirmed
			f.result = publisher.Result{Outcome: publisher.Confirmed}
		}
	case b.kind == channelPicky && w.r.IntN(3) > 0, w.chance(b.refuse.now(w.now)):
		f.result, f.arrives = publisher.Result{Outcome: publisher.Refused, Reason: "nacked"}, false
		if w.r.IntN(8) == 0 {
			f.result.RetryAfter = w.upTo(2 * time.Second)
		}
	case w.chance(b.lose.now(w.now)):
		f.result, f.arrives = publisher.Result{Outcome: publisher.Unknown, Reason: "the connection was lost"},
			w.r.IntN(2) == 0
		f.arrival = w.upTo(2 * took)
	case w.now < b.late:
		f.took += w.upTo(b.lateBy)
	}
	return f
}

// injectedFate is the fate of a publish that is made to fail.
func injectedFate(h how) fateOf {
	f := fateOf{result: publisher.Result{Outcome: publisher.Unknown, Reason: "made to fail"},
		took: 2 * time.Millisecond, arrival: time.Millisecond}
	f.arrives = h == failsAfter || h == hangsWithEffect
	if h == hangs || h == hangsWithEffect {
		f.took = publishDeadline
	}
	return f
}

func b2u(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
