package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/publisher/inbox"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

var worker = store.ConsumerName{Tenant: "t", Inbox: "x", Consumer: "worker"}

// shared is a store in memory that can answer a change of a consumer otherwise than it does it.
type shared struct {
	*storetest.Mem
	looks  chan struct{} // gets a value after each look that found nothing new; may be nil
	before func(ctx context.Context)
	after  func(done bool) (bool, error)
}

func (s *shared) SetConsumer(ctx context.Context, name store.ConsumerName, from uint64, to store.Consumer) (bool, error) {
	if s.before != nil {
		s.before(ctx)
	}
	done, err := s.Mem.SetConsumer(ctx, name, from, to)
	if s.after != nil {
		return s.after(done)
	}
	return done, err
}

func (s *shared) ReadInbox(ctx context.Context, tenant, name, after string, limit int) ([]store.InboxMessage, string, error) {
	messages, next, err := s.Mem.ReadInbox(ctx, tenant, name, after, limit)
	if s.looks != nil && len(messages) == 0 {
		s.looks <- struct{}{}
	}
	return messages, next, err
}

// consuming is a node of a cluster that shares a store, with a clock that only the test moves.
type consuming struct {
	*testing.T
	box   *shared
	clock atomic.Int64
	p     *inbox.Publisher
}

func newConsuming(t *testing.T) *consuming {
	c := &consuming{T: t, box: &shared{Mem: storetest.NewMem(4)}}
	c.clock.Store(1_800_000_000_000)
	c.p = c.node()
	return c
}

func (c *consuming) node() *inbox.Publisher {
	return inbox.New(c.box, nil, func() postdate.Time { return postdate.Time(c.clock.Load()) }, slog.New(slog.DiscardHandler))
}

func (c *consuming) append(n int) {
	c.Helper()
	for i := range n {
		m := store.InboxMessage{Tenant: "t", Inbox: "x", ScheduleID: strconv.Itoa(i), DeliveredAt: 1}
		if err := c.box.AppendInbox(c.Context(), []store.InboxMessage{m}); err != nil {
			c.Fatal(err)
		}
	}
}

// want expects a receive of up to limit to bring these, each as id/deliveries, and returns their receipts.
func (c *consuming) want(limit int, want ...string) (receipts []store.Receipt) {
	c.Helper()
	got, err := c.p.Receive(c.Context(), store.InboxReceive{ConsumerName: worker, Limit: limit, Visibility: time.Second})
	var ids []string
	for _, m := range got {
		ids = append(ids, fmt.Sprint(m.ScheduleID, "/", m.Deliveries))
		receipts = append(receipts, m.Receipt)
		if m.PossibleDuplicate != (m.Deliveries > 1) {
			c.Errorf("message %s, delivered %d times, is marked: %v", m.ScheduleID, m.Deliveries, m.PossibleDuplicate)
		}
	}
	if err != nil || fmt.Sprint(ids) != fmt.Sprint(want) {
		c.Errorf("received %v, %v; want %v", ids, err, want)
	}
	return receipts
}

func (c *consuming) acknowledge(receipts ...store.Receipt) (errs []error) {
	c.Helper()
	errs, err := c.p.Acknowledge(c.Context(), worker, receipts)
	if err != nil {
		c.Errorf("acknowledging: %v", err)
	}
	return errs
}

func TestConsume(t *testing.T) {
	c := newConsuming(t)
	c.append(4)
	old := c.want(3, "0/1", "1/1", "2/1")
	c.want(3, "3/1")
	c.want(3)
	c.acknowledge(old[1])
	c.clock.Add(999)
	c.want(9)
	c.clock.Add(1)
	again := c.want(9, "0/2", "2/2", "3/2")
	if errs := c.acknowledge(old[0], again[1], old[1]); postdate.KindOf(errs[0]) != postdate.KindTooLate || errs[1] != nil || errs[2] != nil {
		t.Errorf("acknowledging an old receipt, a new one and one twice: %v", errs)
	}
	c.clock.Add(1000)
	again = c.want(9, "0/3", "3/3")
	c.acknowledge(again...)
	c.clock.Add(1000)
	c.want(9)
}

// What large payloads leave no room for comes with the next receive: it is not taken for expired.
func TestLargeMessagesComeAPageAtATime(t *testing.T) {
	c := newConsuming(t)
	for i := range 5 {
		m := store.InboxMessage{Tenant: "t", Inbox: "x", ScheduleID: strconv.Itoa(i), DeliveredAt: 1,
			Payload: make([]byte, store.PageBytesMax/2)}
		if err := c.box.AppendInbox(t.Context(), []store.InboxMessage{m}); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i <= 3; i++ {
		for _, ids := range [][]string{{"0", "1"}, {"2", "3"}, {"4"}} {
			var want []string
			for _, id := range ids {
				want = append(want, fmt.Sprint(id, "/", i))
			}
			c.want(9, want...)
		}
		c.clock.Add(1000)
	}
}

// A message is received by one of many workers, on whatever node.
func TestWorkersShareMessages(t *testing.T) {
	const messages, workers = 500, 8
	c := newConsuming(t)
	nodes := []*inbox.Publisher{c.node(), c.node()}
	var mu sync.Mutex
	received := map[string]int{}
	var group sync.WaitGroup
	c.append(messages)
	for w := range workers {
		group.Go(func() {
			for {
				got, err := nodes[w%2].Receive(t.Context(), store.InboxReceive{ConsumerName: worker, Limit: 3, Visibility: time.Hour})
				if err != nil || len(got) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				receipts := make([]store.Receipt, len(got))
				for i, m := range got {
					receipts[i] = m.Receipt
					mu.Lock()
					received[m.ScheduleID]++
					mu.Unlock()
				}
				errs, err := nodes[w%2].Acknowledge(t.Context(), worker, receipts)
				for _, e := range append(errs, err) {
					if e != nil {
						t.Error(e)
					}
				}
			}
		})
	}
	group.Wait()
	if len(received) != messages {
		t.Errorf("%d messages were received, want %d", len(received), messages)
	}
	for id, n := range received {
		if n != 1 {
			t.Errorf("message %s was received %d times", id, n)
		}
	}
	if state, _ := c.box.Consumer(t.Context(), worker); len(state.Open) != 0 {
		t.Errorf("%d messages are open in the end", len(state.Open))
	}
}

// The workers of one node take turns: none loses a race, and reads for nothing. Who waits gives up with its context.
func TestWorkersTakeTurns(t *testing.T) {
	c := newConsuming(t)
	c.append(200)
	c.box.after = func(done bool) (bool, error) {
		if !done {
			t.Error("a worker lost a race against another one of its node")
		}
		return done, nil
	}
	c.box.before = func(context.Context) { // long enough for the others to come
		for range 20 {
			runtime.Gosched()
		}
	}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 25 {
				r := store.InboxReceive{ConsumerName: worker, Limit: 1, Visibility: time.Hour}
				if got, err := c.p.Receive(t.Context(), r); err != nil || len(got) != 1 {
					t.Errorf("received %v, %v", got, err)
				}
			}
		})
	}
	group.Wait()
	c.append(1)
	c.box.before = func(context.Context) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.p.Acknowledge(ended, worker, nil)
		if postdate.KindOf(err) != postdate.KindUnavailable {
			t.Errorf("who waits for its turn in vain is answered %v", err)
		}
	}
	c.want(1, "0/1")
}

// Nothing is answered before the store has it, and an unknown outcome loses nothing.
func TestUnknownReceive(t *testing.T) {
	c := newConsuming(t)
	c.append(2)
	c.box.after = func(bool) (bool, error) { return false, postdate.E(postdate.KindUnknown, "no answer") }
	for range 2 {
		got, err := c.p.Receive(t.Context(), store.InboxReceive{ConsumerName: worker, Limit: 1, Visibility: time.Second})
		if postdate.KindOf(err) != postdate.KindUnknown || got != nil {
			t.Errorf("received %v, %v", got, err)
		}
	}
	state, _ := c.box.Consumer(t.Context(), worker)
	_, err := c.p.Acknowledge(t.Context(), worker, []store.Receipt{{Place: state.Open[0].Place, ID: state.Open[0].Receipt}})
	if postdate.KindOf(err) != postdate.KindUnknown {
		t.Errorf("acknowledged: %v", err)
	}
	c.box.after = nil
	c.want(9)
	c.clock.Add(1000)
	c.acknowledge(c.want(9, "1/2")...) // the other one was acknowledged after all
}

// Whoever loses the race reads again, until its time is over.
func TestLostRaces(t *testing.T) {
	c := newConsuming(t)
	c.append(3)
	lost := 0
	c.box.before = func(context.Context) {
		if lost++; lost == 1 { // another node is quicker
			c.box.before = nil
			mine := c.p
			c.p = c.node()
			c.want(1, "0/1")
			c.p = mine
		}
	}
	receipts := c.want(1, "1/1")
	ctx, cancel := context.WithCancel(t.Context())
	c.box.before = func(ctx context.Context) {
		cancel()
		if ctx.Err() != nil {
			t.Error("the end of the caller's time cuts a write that has begun")
		}
	}
	c.box.after = func(bool) (bool, error) { return false, nil }
	_, err := c.p.Acknowledge(ctx, worker, receipts)
	if postdate.KindOf(err) != postdate.KindUnavailable {
		t.Errorf("who always loses is answered %v", err)
	}
}

// A receive that waits is woken by what comes, and finds what is due again.
func TestReceiveWaits(t *testing.T) {
	c := newConsuming(t)
	c.box.looks = make(chan struct{}, 1000)
	type answer struct {
		got []store.Received
		err error
	}
	receive := func() <-chan answer {
		answers := make(chan answer, 1)
		go func() {
			got, err := c.p.Receive(context.Background(), store.InboxReceive{ConsumerName: worker, Limit: 5, Visibility: time.Second, Wait: time.Minute})
			answers <- answer{got, err}
		}()
		<-c.box.looks // it has found nothing
		return answers
	}
	waits := receive()
	c.append(1)
	if a := <-waits; a.err != nil || len(a.got) != 1 || a.got[0].Deliveries != 1 {
		t.Errorf("received %+v", a)
	}
	waits = receive()
	c.clock.Add(1000)
	if a := <-waits; a.err != nil || len(a.got) != 1 || a.got[0].Deliveries != 2 {
		t.Errorf("received again %+v", a)
	}
	waits = receive()
	if err := c.p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := <-waits; a.err != nil || a.got != nil {
		t.Errorf("closed: %+v", a)
	}
}

// What was received under a clock that was far ahead comes again once the clock is right.
func TestReceivedByAClockThatWasWrong(t *testing.T) {
	c := newConsuming(t)
	c.append(1)
	const year = int64(365 * 24 * time.Hour / time.Millisecond)
	c.clock.Add(year)
	c.want(1, "0/1")
	c.clock.Add(-year)
	c.want(1, "0/2")
	c.want(1)
	c.clock.Add(1000)
	c.want(1, "0/3")
}

// What expired is dropped, and makes room.
func TestExpiredIsDropped(t *testing.T) {
	c := newConsuming(t)
	c.append(3)
	receipts := c.want(2, "0/1", "1/1")
	if n, err := c.box.Expire(t.Context(), store.Expiry{Buckets: []int{0, 1, 2, 3}, DeliveredBefore: 2, Limit: 9}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	c.clock.Add(1000)
	c.append(1)
	c.want(9, "0/1")
	if state, _ := c.box.Consumer(t.Context(), worker); len(state.Open) != 1 {
		t.Errorf("%d messages are open", len(state.Open))
	}
	if errs := c.acknowledge(receipts...); errs[0] != nil || errs[1] != nil {
		t.Errorf("acknowledging what expired: %v", errs)
	}
}

// What expired makes room for what is new at once: no answer is empty while something waits.
func TestExpiredMakesRoomAtOnce(t *testing.T) {
	c := newConsuming(t)
	c.append(postdate.ConsumerOpenMax)
	all := store.InboxReceive{ConsumerName: worker, Limit: postdate.ConsumerOpenMax, Visibility: time.Second}
	if got, err := c.p.Receive(t.Context(), all); len(got) != postdate.ConsumerOpenMax || err != nil {
		t.Fatal(len(got), err)
	}
	c.box.Expire(t.Context(), store.Expiry{Buckets: []int{0, 1, 2, 3}, DeliveredBefore: 2, Limit: 5000})
	c.clock.Add(1000)
	c.append(1)
	c.want(10, "0/1")
}

// A message that no worker can handle does not hold up what is new, though each receives one at a time.
func TestOneThatNobodyCanHandle(t *testing.T) {
	c := newConsuming(t)
	c.append(3)
	seen := map[string]int{}
	for range 100 {
		r := store.InboxReceive{ConsumerName: worker, Limit: 1, Visibility: time.Second}
		got, err := c.p.Receive(t.Context(), r)
		if err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		seen[got[0].ScheduleID]++
		c.clock.Add(1000)
	}
	if len(seen) != 3 || seen["0"] < 2 {
		t.Errorf("100 receives brought %v", seen)
	}
}

// A consumer whose cursor the store does not know is the node's trouble, not the client's mistake.
func TestConsumerOfAnotherStore(t *testing.T) {
	c := newConsuming(t)
	if _, err := c.box.Mem.SetConsumer(t.Context(), worker, 0, store.Consumer{Version: 1, Cursor: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.p.Receive(t.Context(), store.InboxReceive{ConsumerName: worker, Limit: 1, Visibility: time.Second}); postdate.KindOf(err) != postdate.KindInternal {
		t.Errorf("received: %v", err)
	}
}
