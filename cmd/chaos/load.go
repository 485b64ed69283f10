//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postdate/postdate/cmd/chaos/internal/account"
	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/nodetest"
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
}

func newLoad(ledger *account.Ledger, nodes []*cluster.Node, rate int, seed uint64) *load {
	return &load{ledger: ledger, nodes: nodes, rate: rate, random: rand.New(rand.NewPCG(seed, 1)), calls: make(chan struct{}, callsMax)}
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

// node picks a node that should answer; nil if there is none.
func (l *load) node() *cluster.Node {
	first := int(l.roll() * float64(len(l.nodes)))
	for i := range l.nodes {
		if n := l.nodes[(first+i)%len(l.nodes)]; n.Up() {
			return n
		}
	}
	return nil
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
		ms := make([]nodetest.Message, count)
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

func (l *load) message() (nodetest.Message, time.Time) {
	id := fmt.Sprintf("c%d", l.ids.Add(1))
	ahead := l.between(300*time.Millisecond, 4*time.Second)
	if l.roll() < 0.05 {
		ahead = l.between(4*time.Second, 12*time.Second)
	}
	due := time.Now().Add(ahead).Truncate(time.Millisecond)
	channel := l.queues[int(l.roll()*float64(len(l.queues)))]
	l.ledger.Sent(id, channel, due)
	return nodetest.Message{
		ScheduleID: id, Channel: channel, ExecutionTime: nodetest.At(due), Payload: map[string]string{"id": id, "fill": fill},
		Retry: &nodetest.Retry{MaxAttempts: 50}, // a fault must not make a message fail
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
func (l *load) schedule(ms []nodetest.Message, batch bool) {
	wants := l.roll() < 0.5
	for range repeatsMax {
		if l.attempt(ms, batch) || !wants {
			return
		}
		time.Sleep(repeatAfter)
	}
}

// attempt schedules messages once, and reports whether all outcomes are known.
func (l *load) attempt(ms []nodetest.Message, batch bool) bool {
	path, body := "/v1/messages", any(ms[0])
	if batch {
		path, body = "/v1/messages/batch", ms
	}
	a := l.call(http.MethodPost, path, body)
	if !batch || a.code != http.StatusOK {
		o := a.outcome(l.ledger, "a schedule of "+ms[0].ScheduleID)
		for _, m := range ms {
			l.ledger.Scheduled(m.ScheduleID, o, time.Now())
		}
		return o == account.Done
	}
	var results struct{ Results []nodetest.BatchResult }
	if err := json.Unmarshal(a.body, &results); err != nil || len(results.Results) != len(ms) {
		l.ledger.Odd(fmt.Sprintf("a batch of %d was answered with %s", len(ms), a))
		return true
	}
	known := true
	for i, r := range results.Results {
		o := account.Done
		if r.Error != nil {
			o = answer{code: r.Error.Status, kind: r.Error.Type, body: []byte(r.Error.Detail)}.outcome(l.ledger, "a batch's item "+ms[i].ScheduleID)
			known = false
		}
		l.ledger.Scheduled(ms[i].ScheduleID, o, time.Now())
	}
	return known
}

func (l *load) cancel(id string) {
	a := l.call(http.MethodDelete, "/v1/messages/"+id, nil)
	if a.code == http.StatusNotFound {
		l.ledger.Missing(id)
		return
	}
	l.ledger.Cancelled(id, a.outcome(l.ledger, "a cancel of "+id))
}

func (l *load) move(id string, due time.Time) {
	to := due.Add(l.between(200*time.Millisecond, 3*time.Second)).Truncate(time.Millisecond)
	a := l.call(http.MethodPatch, "/v1/messages/"+id, nodetest.Message{ExecutionTime: nodetest.At(to)})
	if a.code == http.StatusNotFound {
		l.ledger.Missing(id)
		return
	}
	l.ledger.Moved(id, to, a.outcome(l.ledger, "a reschedule of "+id))
}

// answer is the answer to a call; code 0: there was none.
type answer struct {
	code int
	kind string // the type of a problem
	body []byte
}

func (a answer) String() string { return fmt.Sprintf("%d %.300s", a.code, a.body) }

// outcome says what an answer means. It records one that no client should get.
func (a answer) outcome(ledger *account.Ledger, what string) account.Outcome {
	kind := a.kind
	if kind == "" {
		kind = nodetest.Answer{Body: a.body}.Problem().Type
	}
	switch strings.TrimPrefix(kind, "urn:postdate:problem:") {
	case "too-late":
		return account.TooLate
	case "unavailable", "not-ready", "full", "conflict":
		return account.NotDone
	case "unknown-outcome", "internal":
		return account.Unknown
	}
	switch {
	case a.code == http.StatusOK || a.code == http.StatusCreated:
		return account.Done
	case a.code == 0:
		return account.Unknown
	}
	ledger.Odd(fmt.Sprintf("%s was answered with %s", what, a))
	return account.Unknown
}

// call makes one call to some node.
func (l *load) call(method, path string, body any) answer {
	n := l.node()
	if n == nil {
		return answer{}
	}
	return call(n, method, path, body)
}
