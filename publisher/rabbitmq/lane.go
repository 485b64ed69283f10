package rabbitmq

import (
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postdate/postdate/publisher"
)

const (
	// lanePerWindow bounds a lane's unconfirmed messages, in windows: that many routes may
	// stall completely before they hold up the others.
	lanePerWindow = 4

	// quietTime is how long a message that must go alone waits for those before it. A message
	// without a confirm by then went to a queue that confirms nothing at present.
	quietTime = 200 * time.Millisecond

	// verdictTime is how long an exchange stays refused before it is tried again.
	verdictTime = time.Second
)

// stage says how far an item has got.
type stage uint8

const (
	queued   stage = iota // not handed to the connection: surely not delivered
	taken                 // being written
	written               // waits for its confirm
	finished              // has a result
)

// confirm is the broker's answer to one message, as amqp091 gives it: done when it has arrived
// or cannot arrive any more.
type confirm interface {
	Done() <-chan struct{}
	Acked() bool
}

// item is one message on its way through a lane.
type item struct {
	name    name
	msg     amqp.Publishing // emptied once it is written
	stage   stage
	result  publisher.Result // once finished
	left    bool             // reported as Unknown; it still takes up room until the broker answers
	link    *link            // on which it was written
	confirm confirm
	since   time.Time     // when it was written
	bell    chan struct{} // rung when the stage changes; shared by a batch
}

// name is the part of a message by which the broker's return identifies it. No two messages of
// one name are in flight in a lane, so that a return identifies exactly one.
type name struct{ key, id string }

// lane is the way to one exchange, and has one AMQP channel at a time. When the broker closes a
// channel (because the exchange is missing or forbidden), messages for other exchanges are not
// affected. A lane decides and does no I/O; its caller holds the publisher's lock.
//
// When the broker closes a channel, it does not say over which message. So the first message of
// a channel goes alone, and so does, later, every message that was in flight when a channel
// broke: there is then only one message that the broker can mean.
type lane struct {
	exchange string
	window   int // how many unconfirmed messages one route may have

	routes   map[string]*route // those with something queued or in flight
	ready    []*route          // those that may have something to send, in turn
	open     map[name]*item    // taken or written, and not answered
	returned map[name]string   // why the broker returned them

	link     *link // the AMQP channel, or nil
	proven   bool  // link has carried a message without breaking
	alone    *item // the item that is being tried alone
	suspects map[name]struct{}

	refusal      string // what the broker says about the exchange as a whole
	refusedUntil time.Time
	idleSince    time.Time
}

// route is one routing key of the lane's exchange.
type route struct {
	key   string
	queue []*item
	open  int
	ready bool
}

// exception is the reason why a channel broke.
type exception struct {
	words string // "404 NOT_FOUND - no exchange …"
	code  int
	named bool // the broker closed this channel over a message on it
	ours  bool // the broker closed the channel or the connection because of something sent
}

func newLane(exchange string, window int) *lane {
	return &lane{
		exchange: exchange, window: window,
		routes: map[string]*route{}, open: map[name]*item{}, returned: map[name]string{}, suspects: map[name]struct{}{},
	}
}

func (l *lane) idle() bool { return len(l.routes) == 0 }

// push queues an item, or finishes it if its exchange was refused a moment ago.
func (l *lane) push(it *item, now time.Time) {
	if now.Before(l.refusedUntil) {
		it.finish(publisher.Result{Outcome: publisher.Refused, Reason: l.refusal})
		return
	}
	r := l.routes[it.name.key]
	if r == nil {
		r = &route{key: it.name.key}
		l.routes[it.name.key] = r
	}
	r.queue = append(r.queue, it)
	l.stir(r)
}

func (l *lane) stir(r *route) {
	if !r.ready {
		r.ready = true
		l.ready = append(l.ready, r)
	}
}

// take returns up to limit items that may be written. If alone is true, it returns one item, to
// be tried alone.
func (l *lane) take(limit int, now time.Time) (burst []*item, alone bool) {
	for len(l.ready) > 0 && len(burst) < limit && len(l.open) < lanePerWindow*l.window {
		r := l.ready[0]
		it := r.head()
		if it == nil || r.open >= l.window || l.open[it.name] != nil {
			l.ready, r.ready = l.ready[1:], false // release makes it ready again
			l.drop(r)
			continue
		}
		_, suspect := l.suspects[it.name]
		if suspect || !l.proven {
			if len(burst) > 0 || !l.quiet(now) {
				return burst, false
			}
			l.alone, alone, limit = it, true, 1
		}
		r.queue = r.queue[1:]
		r.open++
		l.open[it.name] = it
		it.stage = taken
		burst = append(burst, it)
		l.ready = append(l.ready[1:], r) // the next route's turn
	}
	return burst, alone
}

// head returns the first item that still waits.
func (r *route) head() *item {
	for len(r.queue) > 0 && r.queue[0].stage != queued {
		r.queue = r.queue[1:]
	}
	if len(r.queue) == 0 {
		return nil
	}
	return r.queue[0]
}

// quiet reports whether no item written within quietTime is unanswered.
func (l *lane) quiet(now time.Time) bool {
	for _, it := range l.open {
		if it.stage == taken || now.Sub(it.since) < quietTime {
			return false
		}
	}
	return true
}

// wrote notes that an item was handed to the connection.
func (l *lane) wrote(it *item, on *link, answer confirm, now time.Time) {
	it.link, it.confirm, it.since = on, answer, now
	it.msg = amqp.Publishing{}
	if it.stage == taken {
		it.stage = written
		it.ring()
	}
}

// putBack queues an item again that was taken but surely not written.
func (l *lane) putBack(it *item) {
	r := l.release(it)
	if it.stage != taken {
		l.drop(r)
		return // its caller has left
	}
	it.stage = queued
	r.queue = append([]*item{it}, r.queue...)
	l.stir(r)
}

// passed notes that the item tried alone did not break the channel.
func (l *lane) passed() {
	delete(l.suspects, l.alone.name)
	l.alone, l.proven = nil, true
}

// answered finishes an item that was confirmed, or nacked, on an open channel. Earlier returns
// must already be in l.returned.
func (l *lane) answered(it *item, acked bool) {
	words, returned := l.returned[it.name]
	delete(l.returned, it.name)
	l.drop(l.release(it))
	switch {
	case !acked:
		it.finish(publisher.Result{Outcome: publisher.Refused,
			Reason: "the broker answered with a nack: a full queue that rejects, or an error in the queue"})
	case returned:
		it.finish(publisher.Result{Outcome: publisher.Refused, Reason: words})
	default:
		it.finish(publisher.Result{Outcome: publisher.Confirmed})
	}
}

// broke finishes what was written on a channel that broke and was not confirmed before.
func (l *lane) broke(on *link, why exception, now time.Time) {
	for _, it := range l.open {
		if it.link != on || it.stage == taken {
			continue
		}
		if it.confirm.Acked() {
			l.answered(it, true)
			continue
		}
		result := publisher.Result{Outcome: publisher.Unknown, Reason: why.words}
		if why.named && it == l.alone {
			result.Outcome, result.Permanent = publisher.Refused, why.code == amqp.PreconditionFailed
			delete(l.suspects, it.name)
		} else if why.ours {
			l.suspect(it)
		}
		l.drop(l.release(it))
		delete(l.returned, it.name)
		if it == l.alone && why.named && why.wholeExchange() {
			l.refuse(why.words, now)
		}
		it.finish(result)
	}
	if l.link == on {
		l.link, l.proven = nil, false
	}
}

func (l *lane) suspect(it *item) {
	if len(l.suspects) >= 2*lanePerWindow*l.window {
		clear(l.suspects) // most never came back; forgetting the others may break one more channel
	}
	l.suspects[it.name] = struct{}{}
}

// wholeExchange reports whether every message to the exchange would get the same refusal.
func (e exception) wholeExchange() bool {
	return e.code == amqp.NotFound || e.code == amqp.AccessRefused && !strings.Contains(e.words, "topic")
}

// refuse finishes all that is queued, and whatever is pushed within verdictTime.
func (l *lane) refuse(words string, now time.Time) {
	l.refusal, l.refusedUntil = words, now.Add(verdictTime)
	l.finishQueued(publisher.Result{Outcome: publisher.Refused, Reason: words})
}

// finishQueued gives one result to all items that were not handed to the connection.
func (l *lane) finishQueued(result publisher.Result) {
	for _, r := range l.routes {
		for it := r.head(); it != nil; it = r.head() {
			it.finish(result)
		}
		l.drop(r)
	}
}

// leave finishes an item whose caller has stopped waiting: Down if it surely was not sent,
// Unknown if it may have been.
func (l *lane) leave(it *item, why string) {
	switch it.stage {
	case queued:
		it.finish(publisher.Result{Outcome: publisher.Down, Reason: why + " before there was room to send it"})
		if r := l.routes[it.name.key]; r != nil && r.head() == nil {
			l.drop(r)
		}
	case taken, written:
		it.left = true
		it.finish(publisher.Result{Outcome: publisher.Unknown, Reason: why + " before the broker confirmed it"})
	}
}

// release frees an item's room.
func (l *lane) release(it *item) *route {
	r := l.routes[it.name.key]
	if l.open[it.name] == it {
		delete(l.open, it.name)
		r.open--
	}
	if len(r.queue) > 0 {
		l.stir(r)
	}
	return r
}

// drop forgets a route that has nothing left.
func (l *lane) drop(r *route) {
	if len(r.queue) == 0 && r.open == 0 && l.routes[r.key] == r {
		delete(l.routes, r.key)
	}
}

func (it *item) finish(result publisher.Result) {
	if it.stage != finished {
		result.Reason = publisher.WithoutPlaces(result.Reason)
		it.stage, it.result = finished, result
		it.ring()
	}
}

func (it *item) ring() {
	select {
	case it.bell <- struct{}{}:
	default: // it is ringing already
	}
}
