//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/account"
)

const (
	tick        = 20 * time.Millisecond
	callsMax    = 512 // calls in flight; beyond that, a tick's messages are skipped
	repeatsMax  = 8   // of a schedule without an answer, at any node
	repeatAfter = 250 * time.Millisecond
)

// load schedules messages at a steady rate, whatever happens to the nodes. It cancels and
// reschedules some of them, half of those close to their due time.
type load struct {
	ledger *account.Ledger
	nodes  []*cluster.Node
	queues []string // channels
	rate   int      // messages a second
	races  float64  // the share of messages that are cancelled or moved

	mu     sync.Mutex
	random *rand.Rand

	calls   chan struct{}
	running sync.WaitGroup
	ids     atomic.Int64
	left    atomic.Int64 // messages skipped because too many calls were in flight

	series map[string][]string // the message-ids of their occurrences, by schedule id
}

func newLoad(ledger *account.Ledger, nodes []*cluster.Node, rate int, seed uint64) *load {
	return &load{ledger: ledger, nodes: nodes, rate: rate, random: rand.New(rand.NewPCG(seed, 1)),
		calls: make(chan struct{}, callsMax)}
}

// roll returns a random number in [0, 1).
func (l *load) roll() float64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.random.Float64()
}

// between returns a random duration.
func (l *load) between(from, to time.Duration) time.Duration {
	return from + time.Duration(l.roll()*float64(to-from))
}

// api returns the client of a node that should answer, or errNoNode.
func (l *load) api() (*client.Client, error) {
	first := int(l.roll() * float64(len(l.nodes)))
	for i := range l.nodes {
		if n := l.nodes[(first+i)%len(l.nodes)]; n.Up() {
			return n.API(), nil
		}
	}
	return nil, errNoNode
}

// run sends messages until stop is closed, and returns when all calls have ended.
func (l *load) run(stop <-chan struct{}) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	start, sent := time.Now(), 0
	for {
		select {
		case <-stop:
			l.running.Wait()
			return
		case <-ticker.C:
		}
		due := int(time.Since(start).Seconds() * float64(l.rate))
		count := min(due-sent, l.rate/5+1) // no burst after a pause of this program
		sent = due
		l.begin(count/2, true)
		for range count - count/2 {
			l.begin(1, false)
		}
	}
}

const seriesCount = 60 // that fire each second

// scheduleSeries schedules series that fire each second for d, at the same instants. Each occurrence has an
// entry of its own in the ledger, under its message-id.
func (l *load) scheduleSeries(d time.Duration) error {
	l.series = map[string][]string{}
	api, err := l.api()
	if err != nil {
		return err
	}
	first := time.Now().Add(2 * time.Second).Truncate(time.Millisecond)
	for i := range seriesCount {
		m := client.Message{
			ScheduleID: fmt.Sprintf("s%d", i), Channel: l.queues[i%len(queues)],
			Recurrence: &client.Recurrence{Every: time.Second, Start: first, MaxRuns: int(d / time.Second),
				MisfireAfter: time.Hour}, // a fault must not make it skip
			Payload: fmt.Appendf(nil, `{"fill":%q}`, fill), Retry: &client.Retry{MaxAttempts: 50},
		}
		for k := range m.Recurrence.MaxRuns {
			at := first.Add(time.Duration(k) * time.Second)
			id := m.ScheduleID + "/" + postdate.TimeOf(at).String()
			l.series[m.ScheduleID] = append(l.series[m.ScheduleID], id)
			l.ledger.Sent(id, m.Channel, at)
		}
		if _, err := api.Schedule(context.Background(), m); err != nil {
			return fmt.Errorf("scheduling a series: %w", err)
		}
		for _, id := range l.series[m.ScheduleID] {
			l.ledger.Scheduled(id, account.Done, time.Now())
		}
	}
	return nil
}

// begin schedules count messages in one call, in a goroutine of its own.
func (l *load) begin(count int, batch bool) {
	if count == 0 {
		return
	}
	select {
	case l.calls <- struct{}{}:
	default:
		l.left.Add(int64(count))
		return
	}
	l.running.Go(func() {
		ms := make([]client.Message, count)
		dues := make([]time.Time, count)
		for i := range ms {
			ms[i], dues[i] = l.message()
		}
		l.schedule(ms, batch)
		<-l.calls
		for i, m := range ms {
			if l.ledger.Acknowledged(m.ScheduleID) {
				l.decide(m.ScheduleID, dues[i])
			}
		}
	})
}

func (l *load) message() (client.Message, time.Time) {
	id := fmt.Sprintf("c%d", l.ids.Add(1))
	ahead := l.between(300*time.Millisecond, 4*time.Second)
	if l.roll() < 0.05 {
		ahead = l.between(4*time.Second, 12*time.Second)
	}
	due := time.Now().Add(ahead).Truncate(time.Millisecond)
	channel := l.queues[int(l.roll()*float64(len(l.queues)))]
	l.ledger.Sent(id, channel, due)
	return client.Message{
		ScheduleID: id, Channel: channel, ExecutionTime: due,
		Payload: fmt.Appendf(nil, `{"id":%q,"fill":%q}`, id, fill),
		Retry:   &client.Retry{MaxAttempts: 50}, // a fault must not make a message fail
	}, due
}

// fill pads a payload to about 256 bytes.
var fill = strings.Repeat("x", 230)

// decide cancels some messages and moves others.
func (l *load) decide(id string, due time.Time) {
	fate := l.roll()
	if fate >= l.races {
		return
	}
	at := due.Add(l.between(-80*time.Millisecond, 30*time.Millisecond))
	if l.roll() < 0.5 {
		at = time.Now().Add(l.between(0, time.Until(due)))
	}
	l.running.Go(func() {
		time.Sleep(time.Until(at)) // to race with the delivery
		if fate < l.races/2 {
			l.cancel(id)
		} else {
			l.move(id, due)
		}
	})
}

// schedule sends messages and records the answers. It repeats half of the calls without an
// answer; nobody learns the outcome of the other half.
func (l *load) schedule(ms []client.Message, batch bool) {
	wants := l.roll() < 0.5
	for range repeatsMax {
		if l.attempt(ms, batch) || !wants {
			return
		}
		time.Sleep(repeatAfter)
	}
}

// attempt schedules messages once, and reports whether all of them were acknowledged.
func (l *load) attempt(ms []client.Message, batch bool) bool {
	results := make([]client.Result, len(ms))
	api, err := l.api()
	switch {
	case err != nil:
	case batch:
		results, err = api.ScheduleAll(context.Background(), ms)
	default:
		_, err = api.Schedule(context.Background(), ms[0])
	}
	if err != nil {
		o := outcomeOf(l.ledger, "a schedule of "+ms[0].ScheduleID, err)
		for _, m := range ms {
			l.ledger.Scheduled(m.ScheduleID, o, time.Now())
		}
		return false
	}
	known := true
	for i, m := range ms {
		o := outcomeOf(l.ledger, "a batch's item "+m.ScheduleID, results[i].Err())
		l.ledger.Scheduled(m.ScheduleID, o, time.Now())
		known = known && o == account.Done
	}
	return known
}

func (l *load) cancel(id string) {
	api, err := l.api()
	if err == nil {
		err = api.Cancel(context.Background(), id)
	}
	if client.TypeOf(err) == client.NotFound {
		l.ledger.Missing(id)
		return
	}
	l.ledger.Cancelled(id, outcomeOf(l.ledger, "a cancel of "+id, err))
}

func (l *load) move(id string, due time.Time) {
	to := due.Add(l.between(200*time.Millisecond, 3*time.Second)).Truncate(time.Millisecond)
	api, err := l.api()
	if err == nil {
		_, err = api.Patch(context.Background(), id, client.Change{ExecutionTime: to})
	}
	if client.TypeOf(err) == client.NotFound {
		l.ledger.Missing(id)
		return
	}
	l.ledger.Moved(id, to, outcomeOf(l.ledger, "a reschedule of "+id, err))
}

// errNoNode is the error of a call that was not made.
var errNoNode error = &client.NoAnswer{Err: errors.New("no node is up")}

// outcomeOf says what the end of a call means. It records one that no client should see.
func outcomeOf(ledger *account.Ledger, what string, err error) account.Outcome {
	switch client.TypeOf(err) {
	case client.TooLate:
		return account.TooLate
	case client.Unavailable, client.NotReady, client.StoreFull, client.Conflict:
		return account.NotDone
	case client.UnknownOutcome, client.Internal:
		return account.Unknown
	}
	var none *client.NoAnswer
	switch {
	case err == nil:
		return account.Done
	case !errors.As(err, &none) || errors.Is(err, client.ErrGarbled):
		ledger.Odd(fmt.Sprintf("%s ended with: %v", what, err))
		return account.Unknown
	case none.MayBeDone:
		return account.Unknown
	}
	return account.NotDone
}
