package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// play is one consumer with the inbox that it reads, and what must hold of both.
type play struct {
	t    testing.TB
	now  postdate.Time
	next uint64 // the next version

	inbox int // how many messages ever came; the n-th has the number n
	gone  int // how many of these expired

	c        store.Consumer
	sent     map[int][]delivery // by number
	received int                // deliveries
}

// delivery is a message as a worker got it.
type delivery struct {
	receipt store.Receipt
	until   postdate.Time
	acked   bool
}

func newPlay(t testing.TB) *play { return &play{t: t, now: 1000, next: 1, sent: map[int][]delivery{}} }

func (p *play) message(n int) store.InboxMessage {
	return store.InboxMessage{ScheduleID: fmt.Sprint(n), Place: store.InboxPlace{Number: int64(n)}, DeliveredAt: 1}
}

// receive receives as a node does.
func (p *play) receive(limit int, visibility postdate.Time) []store.Received {
	p.next++
	r := store.Reception{ID: p.next, Limit: limit, Now: p.now, Until: p.now + visibility, Due: p.c.Due(p.now, limit)}
	for _, place := range r.Due {
		if int(place.Number) >= p.gone {
			r.Kept = append(r.Kept, p.message(int(place.Number)))
		}
	}
	slices.Reverse(r.Kept)
	cursor := 0
	if p.c.Cursor != "" {
		fmt.Sscan(p.c.Cursor, &cursor)
	}
	cursor = max(cursor, p.gone)
	for n := p.c.Fresh(&r); n > 0 && cursor < p.inbox; n-- {
		r.New = append(r.New, p.message(cursor))
		cursor++
	}
	r.Next = fmt.Sprint(cursor)
	before := p.c.Version
	var got []store.Received
	p.c, got = p.c.Receive(&r)
	if len(got) > limit {
		p.t.Fatalf("a receive of at most %d got %d", limit, len(got))
	}
	if len(got) > 0 && p.c.Version != r.ID || len(r.Due)+len(got) == 0 && p.c.Version != before {
		p.t.Fatalf("it got %d messages, and went from version %d to %d", len(got), before, p.c.Version)
	}
	for _, m := range got {
		p.deliver(m, r.Until)
	}
	p.check()
	return got
}

// deliver checks one delivery against those before it, and notes it.
func (p *play) deliver(m store.Received, until postdate.Time) {
	n := int(m.Place.Number)
	before := p.sent[n]
	for _, d := range before {
		if d.acked {
			p.t.Fatalf("message %d comes again after it was acknowledged", n)
		}
		if d.until > p.now {
			p.t.Fatalf("message %d comes at %d, and is hidden until %d", n, p.now, d.until)
		}
	}
	if m.Deliveries != len(before)+1 || m.PossibleDuplicate != (len(before) > 0) || n < p.gone {
		p.t.Fatalf("message %d comes with %d deliveries, marked %v; %d came before", n, m.Deliveries,
			m.PossibleDuplicate, len(before))
	}
	p.sent[n] = append(before, delivery{receipt: m.Receipt, until: until})
	p.received++
}

// ack acknowledges a delivery of each of these messages: the k-th last.
func (p *play) ack(numbers []int, k int) {
	p.next++
	var receipts []store.Receipt
	var of []*delivery
	for _, n := range numbers {
		if all := p.sent[n]; k < len(all) {
			of = append(of, &all[len(all)-1-k])
			receipts = append(receipts, of[len(of)-1].receipt)
		}
	}
	before, unchanged := p.c, slices.Clone(p.c.Open)
	to, errs := p.c.Acknowledge(p.next, p.now, receipts)
	if !slices.Equal(before.Open, unchanged) {
		p.t.Fatal("the consumer from before was changed, which others may read")
	}
	p.c = to
	for i, err := range errs {
		n := int(receipts[i].Place.Number)
		last := &p.sent[n][len(p.sent[n])-1]
		open := slices.ContainsFunc(before.Open, func(o store.OpenMessage) bool { return o.Place == receipts[i].Place })
		if late := of[i] != last && open; late != (postdate.KindOf(err) == postdate.KindTooLate) || !late && err != nil {
			p.t.Fatalf("acknowledging delivery %d of message %d (open: %v) answers %v", k, n, open, err)
		}
		if err == nil {
			of[i].acked = true
		}
	}
	p.check()
}

// check says whether the consumer can be right.
func (p *play) check() {
	open := map[int]bool{}
	last := int64(-1)
	for _, o := range p.c.Open {
		if o.Place.Number <= last || o.Place.Number >= p.c.Reached {
			p.t.Fatalf("the open messages are out of order: %+v", p.c)
		}
		last = o.Place.Number
		open[int(last)] = true
	}
	if len(open) > postdate.ConsumerOpenMax {
		p.t.Fatalf("%d messages are open", len(open))
	}
	for n := p.gone; n < p.inbox; n++ { // nothing is lost
		acked := slices.ContainsFunc(p.sent[n], func(d delivery) bool { return d.acked })
		if all := p.sent[n]; len(all) > 0 && open[n] == acked || len(all) == 0 && n < int(p.c.Reached) {
			p.t.Fatalf("message %d was delivered %d times, acknowledged %v, and is open: %v", n, len(all), acked, open[n])
		}
	}
}

// drain receives and acknowledges until nothing comes, and expects all that is kept to be acknowledged.
func (p *play) drain() {
	p.now += 1 << 40
	for got := p.receive(1000, 1000); len(got) > 0; got = p.receive(1000, 1000) {
		for _, m := range got {
			p.ack([]int{int(m.Place.Number)}, 0)
		}
	}
	for n := p.gone; n < p.inbox; n++ {
		if all := p.sent[n]; len(all) == 0 || !all[len(all)-1].acked {
			p.t.Fatalf("message %d is not acknowledged in the end", n)
		}
	}
	if len(p.c.Open) != 0 {
		p.t.Fatalf("%d messages stay open", len(p.c.Open))
	}
}

// step takes one step that two bytes choose.
func (p *play) step(what, how byte) {
	n := int(how)
	switch what % 7 {
	case 0:
		p.inbox += n % 8
	case 1, 2:
		p.receive(1+n%5, postdate.Time(10+n))
	case 3:
		p.now += postdate.Time(n)
	case 4:
		p.ack([]int{n % max(p.inbox, 1), (n + 3) % max(p.inbox, 1)}, 0)
	case 5:
		p.ack([]int{n % max(p.inbox, 1)}, 1)
	case 6:
		p.gone = min(p.gone+n%3, p.inbox)
	}
}

// FuzzConsumer takes any steps, and expects every promise to hold.
func FuzzConsumer(f *testing.F) {
	f.Add([]byte{0, 7, 1, 3, 3, 200, 2, 3, 4, 0, 5, 1, 6, 2, 1, 4})
	f.Add([]byte{0, 7, 1, 4, 3, 255, 1, 4, 5, 0, 4, 0, 5, 0})
	f.Add([]byte{0, 7, 1, 4, 6, 2, 6, 2, 3, 255, 1, 4})
	f.Fuzz(func(t *testing.T, steps []byte) {
		p := newPlay(t)
		for i := 0; i+1 < len(steps) && i < 400; i += 2 {
			p.step(steps[i], steps[i+1])
		}
		p.drain()
	})
}

func TestConsumerInRandomOrder(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := newPlay(t)
		for range 150 {
			p.step(byte(random.Uint32()), byte(random.Uint32()))
		}
		p.drain()
		if p.inbox > p.gone && p.received == 0 {
			t.Fatal("nothing was received")
		}
	}
}

func TestConsumerIsBounded(t *testing.T) {
	p := newPlay(t)
	p.inbox = 3 * postdate.ConsumerOpenMax
	for range 5 {
		p.receive(300, 1000)
	}
	if n := len(p.c.Open); n != postdate.ConsumerOpenMax || p.c.Room() != 0 {
		t.Fatalf("%d messages are open, and there is room for %d", n, p.c.Room())
	}
	p.now += 1000
	if got := p.receive(1000, 1000); len(got) != postdate.ConsumerOpenMax || got[0].Deliveries != 2 {
		t.Errorf("a full consumer received %d messages again", len(got))
	}
	p.ack([]int{5, 6, 7}, 0)
	if got := p.receive(100, 1000); len(got) != 3 || got[0].Deliveries != 1 {
		t.Errorf("with room for 3 it received %d messages", len(got))
	}
	p.drain()
}

// Those that were due first come first, beside what is new.
func TestConsumerOrder(t *testing.T) {
	p := newPlay(t)
	p.inbox = 5
	p.receive(1, 300)
	p.receive(2, 200)
	p.receive(1, 100)
	p.now += 300
	var order []string
	for range 3 {
		for _, m := range p.receive(2, 1000) {
			order = append(order, fmt.Sprint(m.ScheduleID, "/", m.Deliveries))
		}
	}
	if want := []string{"3/2", "4/1", "1/2", "2/2", "0/2"}; !slices.Equal(order, want) {
		t.Errorf("they came as %v, want %v", order, want)
	}
}

// What is due again and what is new share an answer, and neither waits for the other. What the one leaves, the other
// gets.
func TestConsumerShares(t *testing.T) {
	for _, c := range []struct{ due, fresh, limit, again, first int }{
		{20, 20, 10, 5, 5},
		{3, 20, 10, 3, 7},
		{20, 3, 10, 7, 3},
		{20, 0, 10, 10, 0},
		{postdate.ConsumerOpenMax, 20, 10, 10, 0},
		{postdate.ConsumerOpenMax - 2, 20, 10, 8, 2},
	} {
		p := newPlay(t)
		p.inbox = c.due
		p.receive(c.due, 1000)
		p.inbox += c.fresh
		p.now += 1000
		got := p.receive(c.limit, 1000)
		again := 0
		for _, m := range got {
			if m.Deliveries > 1 {
				again++
			}
		}
		if again != c.again || len(got)-again != c.first {
			t.Errorf("of %d due again and %d new, a receive of %d got %d and %d, want %d and %d", c.due, c.fresh, c.limit,
				again, len(got)-again, c.again, c.first)
		}
		p.drain()
	}
}

// A consumer that was forgotten begins anew: what comes with its old receipts is too late.
func TestReceiptsOfAForgottenConsumer(t *testing.T) {
	p := newPlay(t)
	p.inbox = 2
	old := p.receive(2, 1000)
	p.c = store.Consumer{}
	receipts := []store.Receipt{old[0].Receipt, old[1].Receipt}
	_, errs := p.c.Acknowledge(77, p.now, receipts)
	if postdate.KindOf(errs[0]) != postdate.KindTooLate || postdate.KindOf(errs[1]) != postdate.KindTooLate {
		t.Errorf("receipts of a forgotten consumer answer %v", errs)
	}
	p.sent = map[int][]delivery{}
	p.receive(1, 1000)
	if _, errs = p.c.Acknowledge(78, p.now, receipts); postdate.KindOf(errs[0]) != postdate.KindTooLate {
		t.Errorf("a receipt from before it was forgotten answers %v", errs[0])
	}
}

// No message is used later than its consumer, whatever the nodes' clocks say: else the consumer could be forgotten
// before it.
func TestConsumerIsUsedLast(t *testing.T) {
	var c store.Consumer
	ahead := store.InboxMessage{DeliveredAt: 5000}
	c, _ = c.Receive(&store.Reception{ID: 1, Now: 1000, Until: 2000, New: []store.InboxMessage{ahead}, Next: "1"})
	if c.UsedAt != 5000 {
		t.Errorf("it was used at %d, want 5000", c.UsedAt)
	}
	c, _ = c.Acknowledge(2, 1500, []store.Receipt{{ID: 1}})
	if c.UsedAt != 5000 || c.Version != 2 || len(c.Open) != 0 {
		t.Errorf("after the acknowledgement it is %+v", c)
	}
	c, _ = c.Acknowledge(3, 9000, []store.Receipt{{ID: 1}})
	if c.Version != 2 {
		t.Errorf("acknowledging twice made version %d", c.Version)
	}
}
