package sim

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// clientDeadline is when a client gives up on an answer.
const clientDeadline = 15 * time.Second

// request is a client's request, and its answer.
type request struct {
	kind    kind
	story   *story
	edition string // the payload that it carries; "" for a cancel
	began   time.Duration
	ended   time.Duration
	outcome outcome

	version uint64        // of the series that it changes, or at which the message failed
	extra   string        // the edition of the occurrence that it triggered
	at      postdate.Time // the time of that
}

// outcome is a client's answer.
type outcome uint8

const (
	unknown  outcome = iota // no answer, or a 5xx
	done                    // 2xx
	tooLate                 // 409: delivery may have begun, or it ended
	missing                 // 404
	conflict                // 409: the id is taken, or another change came first
)

func (o outcome) String() string {
	return [...]string{"unknown", "done", "too late", "not found", "conflict"}[o]
}

func outcomeOf(err error) outcome {
	if err == nil {
		return done
	}
	switch postdate.KindOf(err) {
	case postdate.KindTooLate:
		return tooLate
	case postdate.KindNotFound:
		return missing
	case postdate.KindConflict, postdate.KindExists:
		return conflict
	}
	return unknown
}

// happen plays item i of the plan.
func (w *world) happen(i int) {
	it := w.plan.items[i]
	w.mark(12, uint64(i))
	if it.kind.isFault() {
		w.fault(it)
		return
	}
	w.operations++
	p := w.anyProcess()
	if p == nil {
		return // no node answers
	}
	w.tell(p.n, "is asked to %s m%d %q (item %d)", it.kind, it.a, strconv.Itoa(i), i)
	switch it.kind {
	case opSchedule, opReuse:
		if it.kind == opReuse {
			w.history.inherit(it.a)
		}
		s := w.history.story(it.a)
		s.request = w.message(it, s.key, strconv.Itoa(i))
		w.schedule(p, s, *s.request)
	case opSeries:
		if it.p > 0 {
			w.history.inherit(it.a)
		}
		s := w.history.story(it.a)
		if m, ok := w.recurring(it, s.key, strconv.Itoa(i)); ok {
			s.request = m
			w.schedule(p, s, *m)
		}
	case opRepeat:
		if s := w.history.known(it.a); s != nil && s.request != nil {
			w.schedule(p, s, *s.request)
		}
	case opCancel:
		w.cancel(p, w.history.story(it.a))
	case opPause, opResume, opChange, opTrigger:
		if s := w.history.known(it.a); s != nil && s.tale != nil {
			w.changeSeries(p, s, it)
		}
	case opRedrive, opPurge:
		w.withFailed(p, it, i)
	case opMove:
		w.move(p, w.history.story(it.a), it, strconv.Itoa(i))
	case opExpire:
		e := store.Expiry{SettledBefore: w.wall().Add(-it.d), Limit: math.MaxInt}
		for b := range w.plan.buckets {
			e.Buckets = append(e.Buckets, b)
		}
		p.call(&storeCall{
			name: "expire", effect: []func(){func() { w.store.expireFor(deletion{}, e) }},
			answer: func() {}, failed: func(error) {},
		})
	case opList:
		p.call(&storeCall{
			name:   "list",
			effect: []func(){func() { w.store.List(ctx, store.ListQuery{Tenant: postdate.DefaultTenant, Limit: 100}) }},
			answer: func() {}, failed: func(error) {},
		})
	}
}

// anyProcess returns a process that accepts requests, or nil.
func (w *world) anyProcess() *process {
	var up []*process
	for _, n := range w.nodes {
		if n.up() && n.proc.serves && !n.proc.stopping {
			up = append(up, n.proc)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[w.r.IntN(len(up))]
}

// message returns the message that item it schedules.
func (w *world) message(it item, key postdate.Key, edition string) *postdate.Message {
	m := &postdate.Message{
		Key: key, Channel: w.plan.channels[it.b], ExecutionTime: w.wall().Add(it.d), CreatedAt: w.wall(),
		Payload: []byte(edition), Priority: it.priority, MayRepeat: it.a%37 == 36,
		Retry: postdate.RetryPolicy{MaxAttempts: 3 + it.a%5,
			MinBackoff: []time.Duration{50 * time.Millisecond, time.Second}[it.a%2], MaxBackoff: 5 * time.Second},
	}
	if m.FailureChannel = w.plan.failureChannelOf(it.a, it.b); m.FailureChannel == m.Channel {
		m.FailureChannel = ""
	}
	if it.e > 0 {
		m.ExpiresAt = max(m.ExecutionTime, w.wall()).Add(it.e)
	}
	m.Digest = postdate.DigestOf(m, fmt.Sprint(it.d))
	return m
}

// ask begins a request, and returns what its answer calls. The first answer counts; none by the
// deadline means unknown.
func (w *world) ask(k kind, s *story, edition string) func(outcome) {
	r := &request{kind: k, story: s, edition: edition, began: w.now}
	s.requests = append(s.requests, r)
	if edition != "" {
		w.history.about[edition] = s
	}
	answered := false
	answer := func(o outcome) {
		if !answered {
			answered = true
			r.ended, r.outcome = w.now, o
			w.mark(13, uint64(o))
			w.tell(nil, "%s of %s: %s", k, s.key.ScheduleID, o)
			w.history.note(factAnswer{r})
		}
	}
	w.after(clientDeadline, func() { answer(unknown) })
	return answer
}

// reachable fails requests about a message that has expired: they are lost on the way. They
// would concern the id's next message, and the two stories are kept apart. The replace of a
// move is not lost: its version tells the messages apart.
func (s *story) reachable() error {
	if s.expired {
		return errLost
	}
	return nil
}

func (w *world) schedule(p *process, s *story, m postdate.Message) {
	answer := w.ask(opSchedule, s, string(m.Payload))
	var got store.Inserted
	p.call(&storeCall{
		name: "insert", effect: []func(){func() {
			if got.Err = s.reachable(); got.Err == nil {
				got = w.store.Insert(ctx, []postdate.Message{m})[0]
			}
		}},
		answer: func() {
			if got.Err == nil && got.Status == postdate.Pending {
				p.scheduled(m.Bucket, got.ExecutionTime)
			}
			answer(outcomeOf(got.Err))
		},
		failed: func(error) { answer(unknown) },
	})
}

func (w *world) cancel(p *process, s *story) {
	answer := w.ask(opCancel, s, "")
	var got store.Cancelled
	p.call(&storeCall{
		name: "cancel", effect: []func(){func() {
			if got.Err = s.reachable(); got.Err == nil {
				got = w.store.Cancel(ctx, []postdate.Key{s.key}, p.wall())[0]
			}
		}},
		answer: func() {
			if got.Err == nil && got.State.Occurrence != 0 {
				w.cancelRetried(p, s, answer)
				return
			}
			answer(outcomeOf(got.Err))
		},
		failed: func(error) { answer(unknown) },
	})
}

// move reschedules a message, as PATCH does: it reads the message, and replaces it by a new
// version.
func (w *world) move(p *process, s *story, it item, edition string) {
	answer := w.ask(opMove, s, edition)
	var old, next postdate.Record
	var err error
	replace := &storeCall{
		name: "replace",
		effect: []func(){func() {
			m := old.Message
			m.ExecutionTime, m.Payload = w.wall().Add(it.d), []byte(edition)
			if it.a%2 == 0 {
				m.Priority = it.priority
			}
			m.Digest = postdate.DigestOf(&m, "patched "+edition)
			if m.ExpiresAt != 0 {
				m.ExpiresAt = max(m.ExpiresAt, max(m.ExecutionTime, w.wall())+1)
			}
			next, err = w.store.Replace(ctx, postdate.NewRecord(m, old.Version+1), old)
		}},
		answer: func() {
			if err == nil {
				p.scheduled(s.key.Bucket, next.ExecutionTime)
			}
			if s.expired { // the record is another message's
				err = errLost
			}
			answer(outcomeOf(err))
		},
		failed: func(error) { answer(unknown) },
	}
	p.call(&storeCall{
		name: "get", effect: []func(){func() {
			if err = s.reachable(); err == nil {
				old, err = w.store.Get(ctx, s.key)
			}
		}},
		answer: func() {
			if err != nil {
				answer(outcomeOf(err))
				return
			}
			p.call(replace)
		},
		failed: func(error) { answer(unknown) },
	})
}

// tenants are whose messages there are: every fifth one is the second tenant's. What operators set
// for channels in these worlds, they set for the first one.
var tenants = [...]string{postdate.DefaultTenant, "acme"}

func ofSecondTenant(n int) bool { return n%5 == 4 }

// keyOf returns the key of message number n.
func (w *world) keyOf(n int) postdate.Key {
	return bucket.KeyOf(tenants[b2u(ofSecondTenant(n))], fmt.Sprint("m", n), w.plan.buckets)
}
