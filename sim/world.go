package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// epoch is the wall-clock time at which every world begins.
const epoch postdate.Time = 1_900_000_000_000

// world is one run: true time, the events to come, and everyone in it.
type world struct {
	plan   *plan
	keep   map[int]bool // nil: everything
	bug    bug
	inject *injection
	say    func(string)
	seed   uint64
	luck   *rand.PCG // the source of r
	r      *rand.Rand
	turn   uint64 // the number of the event within this moment

	now   time.Duration // true time
	queue queue
	seq   uint64

	store    *Store
	nodes    []*node
	channels map[postdate.Channel]*broker
	routes   []postdate.Route // of all tenants to them
	weather  weather
	history  *history

	renewalMax time.Duration // of a renewal of a lease, the longest
	upSince    time.Duration // when the first node started when none was up
	frozenMax  time.Duration // the longest freeze of a node, which cannot notice that time

	healed      bool
	violation   *Violation
	trace       uint64
	steps       int
	calls       int
	callsBefore int // before everything heals
	operations  int
	faults      map[string]int
}

func newWorld(o Options, p *plan) *world {
	luck := rand.NewPCG(o.Seed, 1)
	w := &world{
		plan: p, bug: o.bug, inject: o.inject, say: o.Say, seed: o.Seed, luck: luck, r: rand.New(luck),
		channels: map[postdate.Channel]*broker{}, routes: p.routes(), faults: map[string]int{},
		trace: 14695981039346656037,
	}
	if o.Keep != nil {
		w.keep = map[int]bool{}
		for _, i := range o.Keep {
			w.keep[i] = true
		}
	}
	w.store, w.history = newStore(w), newHistory(w)
	w.store.Watch = w.history.recordChanged
	for i, c := range p.clocks {
		w.nodes = append(w.nodes, newNode(w, i, c))
	}
	for i, name := range p.channels {
		b := &broker{name: name, kind: p.kinds[i]}
		switch b.kind {
		case channelTight:
			b.limit = store.ChannelSettings{Route: postdate.Route(name), MaxPerSecond: 1}
		case channelDead:
			b.down = p.length
		}
		w.channels[name] = b
	}
	return w
}

// routes lists the routes of all tenants.
func (p *plan) routes() (all []postdate.Route) {
	for _, channel := range p.channels {
		for _, tenant := range tenants {
			all = append(all, postdate.RouteOf(tenant, channel))
		}
	}
	return all
}

// wall is true wall-clock time.
func (w *world) wall() postdate.Time { return epoch + postdate.Time(w.now/time.Millisecond) }

// plays says whether item i of the plan is played.
func (w *world) plays(i int) bool { return w.keep == nil || w.keep[i] }

// play plays the plan, then heals everything and waits until all is settled.
func (w *world) play() {
	for i := range w.plan.items {
		if w.plays(i) {
			w.at(w.plan.items[i].at, func() { w.happen(i) })
		}
	}
	for i, n := range w.nodes {
		if i < w.plan.starting {
			w.after(w.upTo(300*time.Millisecond), n.start)
		}
	}
	w.run(w.plan.length)
	w.callsBefore = w.calls
	w.heal()
	for end := w.plan.length + max(healMax, w.plan.rest()); w.violation == nil && w.now < end &&
		(w.history.unfinished() || w.now < w.plan.length+w.plan.rest()); {
		w.run(w.now + 2*time.Second)
	}
	if w.violation == nil {
		w.history.note(factEnd{})
	}
}

// healMax is how long settling everything may take once everything works. It includes back-offs
// of a minute.
const healMax = 6 * time.Minute

// run runs the world until that time, or until a promise is broken.
func (w *world) run(until time.Duration) {
	for len(w.queue) > 0 && w.queue[0].at <= until && w.violation == nil {
		e := w.queue.pop()
		w.draw(e.at)
		e.do()
	}
	if w.violation == nil {
		w.now = until
	}
}

// draw moves time on, and makes randomness depend on time alone. If an item of the plan is left
// out, whatever it does not touch goes on as before.
func (w *world) draw(at time.Duration) {
	w.turn++
	if at > w.now {
		w.now, w.turn = at, 0
	}
	w.luck.Seed(w.seed, (uint64(w.now)+w.turn*0x9e3779b97f4a7c15)*0xbf58476d1ce4e5b9)
}

func (w *world) at(t time.Duration, do func()) {
	w.seq++
	w.queue.push(event{max(t, w.now), w.seq, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(w.now+d, do) }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d) + 1)) }

func (w *world) between(from, to time.Duration) time.Duration { return from + w.upTo(to-from) }

func (w *world) chance(p float64) bool { return p > 0 && w.r.Float64() < p }

// violate records the first broken promise. The world stops there.
func (w *world) violate(promise int, format string, args ...any) {
	if w.violation == nil {
		w.violation = &Violation{promise, fmt.Sprintf(format, args...), w.now}
		w.tell(nil, "%s", w.violation)
	}
}

// mark adds numbers to the trace.
func (w *world) mark(xs ...uint64) {
	h := w.trace
	for _, x := range xs {
		h = mixed(h, x)
	}
	w.trace = mixed(h, uint64(w.now))
}

func mixed(h, x uint64) uint64 {
	h = (h ^ x) * 1099511628211
	return h ^ h>>29
}

// markText adds a text to the trace.
func (w *world) markText(s string) {
	h := w.trace
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	w.trace = h
}

// tell logs what happens, if there is a listener. n is nil if it concerns no node.
func (w *world) tell(n *node, format string, args ...any) {
	if w.say == nil {
		return
	}
	who := "world"
	if n != nil {
		who = n.name
	}
	w.say(fmt.Sprintf("%12.6f %-6s %s", w.now.Seconds(), who, fmt.Sprintf(format, args...)))
}

// event is something that will happen.
type event struct {
	at  time.Duration
	seq uint64 // orders events of the same time by when they were planned
	do  func()
}

// queue is a heap of events. It is written out because it is the innermost loop.
type queue []event

func (e event) before(f event) bool { return e.at < f.at || e.at == f.at && e.seq < f.seq }

func (q *queue) push(e event) {
	*q = append(*q, e)
	h := *q
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			return
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

func (q *queue) pop() event {
	h := *q
	first, last := h[0], len(h)-1
	h[0], h[last] = h[last], event{}
	h = h[:last]
	*q = h
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if h[child].before(h[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
