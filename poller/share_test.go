package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// A call may bring half of what there is room for, in messages and in bytes: what is in
// hand, and what other calls may bring, is room no more, until they are answered.
func TestACallMayBringHalfOfTheRoom(t *testing.T) {
	d := newDesk(t, func(c *Config) {
		c.HandMax, c.HandBytesMax, c.PayloadBytesMax, c.DoubtMax, c.PageMax = 1_000, 1<<20, 1<<10, 1<<20, 1<<20
		c.RetryAfter = time.Hour
	})
	d.gain(8)
	hand, handBytes, coming, comingBytes := 0, 0, 0, 0
	ask := func(number int) Claim {
		t.Helper()
		call := d.ask(number)
		scan := call.Claims[0].Scan
		messages, bytes := (1_000-hand-coming)/2, (1<<20-handBytes-comingBytes)/2
		if scan.Limit != messages || scan.BytesMax != bytes {
			t.Fatalf("a call may bring %d messages and %d bytes, want %d and %d", scan.Limit, scan.BytesMax, messages, bytes)
		}
		coming += scan.Limit
		comingBytes += scan.BytesMax
		return call
	}
	answered := func(call Claim) {
		coming -= call.Claims[0].Scan.Limit
		comingBytes -= call.Claims[0].Scan.BytesMax
	}
	first, second := ask(0), ask(1)
	due := d.messages(0, "x:mute", 40)
	for i := range due {
		due[i].Payload = make([]byte, 1_000)
	}
	hand, handBytes = 40, 40_000
	d.answer(first, due...)
	answered(first)
	ask(2)
	d.lose(second)
	answered(second)
	third := ask(3)
	d.answer(third)
	answered(third)
	ask(4)
}

// Claims of any channel that are under way bring no more together than half of what may
// be in doubt of one channel: all may be of one. So do those of which it is not known
// whether they were written, until the next one of their bucket tells.
func TestClaimsOfAnyChannelTogether(t *testing.T) {
	d := newDesk(t, func(c *Config) { c.DoubtMax = 320 })
	d.gain(8)
	ask := func(number, want int) Claim {
		t.Helper()
		call := d.ask(number)
		if got := call.Claims[0].Scan.Limit; got != want {
			t.Fatalf("a claim may bring %d messages, want %d", got, want)
		}
		return call
	}
	all := []Claim{ask(0, 80), ask(1, 40), ask(2, 20), ask(3, 10)}
	for _, call := range all {
		d.answer(call)
	}
	lost := ask(0, 80)
	d.lose(lost)
	d.tell(Nudged{[]Nudge{{1, d.now.Wall - 1}}})
	other := d.take()
	if got := other.Claims[0].Scan.Limit; got != 40 {
		t.Errorf("beside a claim that may be written another one may bring %d messages, want 40", got)
	}
	d.answer(other)
	d.answer(ask(0, 1)) // apart, to see whether it goes through
	d.answer(ask(0, 80))
	d.answer(ask(1, 80))
}

// To ask for the same again takes no more room than the claim that was lost: what it may
// have claimed counts once.
func TestWhatWasLostCountsOnce(t *testing.T) {
	d := newDesk(t, func(c *Config) { c.DoubtMax = 320 })
	d.gain(2)
	one, lost := d.messages(0, "x:a", 1), d.ask(0)
	d.lose(lost)     // of up to 80 messages, which it may have claimed up to its end
	d.lose(d.ask(0)) // of one of them
	d.after(retryMax)
	d.tell(fence.Tick{})
	again := d.take()
	at := bucket.PositionOf(one[0].Key, one[0].AttemptTime)
	d.tell(Claimed{Call: again.Call, Results: []store.ClaimResult{{Due: one, To: at, Ended: at}}}) // there is more
	more := d.take()
	if c := more.Claims[0]; c.Bucket != 0 || c.Scan.Limit != (160-78)/2 {
		t.Fatalf("beside 78 messages that may have been claimed it asks for %+v", c)
	}
	beside := d.ask(1)
	if got := beside.Claims[0].Scan.Limit; got != (160-78)/2 {
		t.Errorf("while that is asked for, another claim may bring %d messages", got)
	}
	d.answer(beside)
	d.answer(more)
	for len(d.calls) > 0 { // sweeps
		d.answer(d.take())
	}
	if d.m.comingOfAny != 0 || len(d.m.buckets[0].unheard) > 0 {
		t.Errorf("%d messages count when all is known, %v", d.m.comingOfAny, d.m.buckets[0].unheard)
	}
}

// A call has no more claims than messages may come: each may bring one.
func TestACallHasNoMoreClaimsThanRoom(t *testing.T) {
	const n = 6
	t.Run("of any channel", func(t *testing.T) {
		d := newDesk(t, func(c *Config) { c.DoubtMax = 16 }) // room for 4
		var all []bucket.Partition
		for b := range n {
			all = append(all, bucket.Partition{Bucket: b, Token: 1, Owner: "me"})
		}
		d.tell(fence.Gained{Partitions: all})
		if call := d.take(); len(call.Claims) != 4 || call.Claims[3].Scan.Limit != 1 {
			t.Errorf("where 4 messages may come: %+v", call)
		}
	})
	t.Run("of one channel", func(t *testing.T) {
		d := newDesk(t, nil)
		d.hold("x:a")
		var behind []bucket.Partition
		var due []Nudge
		for b := range n {
			behind = append(behind, d.behind("x:a"))
			due = append(due, Nudge{b, d.now.Wall.Add(time.Second)})
		}
		d.gainRecords(behind...)
		d.tell(Nudged{due})
		d.after(time.Second)
		d.tell(Limits{[]store.ChannelSettings{{Channel: "x:a", MaxInFlight: 1}}}) // room for 2
		call := d.take()
		if in := only(call)["x:a"]; len(in) != 2 || call.Claims[0].Scan.Limit != 1 {
			t.Errorf("where 2 messages may come, a channel catches up in buckets %v", in)
		}
	})
}

// One channel fills no more than half of the hand, and where the hand is almost full no
// more than all others.
func TestTheShareOfAChannel(t *testing.T) {
	small := func(c *Config) { c.HandMax = 64 }
	t.Run("half", func(t *testing.T) {
		d := newDesk(t, small)
		d.gain(1)
		d.prove("x:a")
		d.bring("x:a", 40)
		d.wantShare("x:a", 32, 8)
	})
	for _, test := range []struct{ brought, flying int }{{14, 14}, {15, 10}} { // 47 and 48 in hand, of three channels
		t.Run(fmt.Sprint("almost full by ", test.brought), func(t *testing.T) {
			d := newDesk(t, small)
			d.gain(1)
			d.prove("x:a", "x:b", "x:c")
			d.bring("x:a", 32)
			d.bring("x:c", 1)
			d.bring("x:b", test.brought)
			d.wantShare("x:b", test.flying, test.brought-test.flying)
		})
	}
	for _, test := range []struct{ coming, flying int }{{0, 8}, {24, 2}} { // of twelve channels
		t.Run(fmt.Sprint("almost full by what comes: ", test.coming), func(t *testing.T) {
			d := newDesk(t, small)
			d.gain(2)
			d.prove("x:a", "x:b")
			d.bring("x:a", 6)
			for i := range 10 {
				d.bring(postdate.Channel(fmt.Sprint("x:other-", i)), 1)
			}
			if test.coming > 0 {
				if got := d.ask(1).Claims[0].Scan.Limit; got != test.coming {
					t.Fatalf("%d messages may come, want %d", got, test.coming)
				}
			}
			d.bring("x:b", 8)
			d.wantShare("x:b", test.flying, 8-test.flying)
		})
	}
	t.Run("a limit", func(t *testing.T) {
		d := newDesk(t, nil)
		d.tell(Limits{[]store.ChannelSettings{{Channel: "x:narrow", MaxInFlight: 3}}})
		d.gain(1)
		d.prove("x:narrow")
		d.bring("x:narrow", 20)
		d.wantShare("x:narrow", 3, 14)
	})
}

// Sites of a broker that have not answered yet hold a quarter of the hand, none of them
// more than it may before its first answer, and another quarter with one message each.
func TestTheShareOfSitesThatNeverAnswered(t *testing.T) {
	d := newDesk(t, func(c *Config) { c.HandMax = 256 })
	d.gain(1)
	d.bring("x:first", 70)
	d.wantShare("x:first", windowMin, 6)
	d.bring("x:second", 5)
	d.wantShare("x:second", 1, 4)
	for i := range 62 {
		d.bring(postdate.Channel(fmt.Sprint("x:other-", i)), 1)
	}
	d.bring("x:last", 1)
	d.wantShare("x:last", 1, 0)
	d.bring("x:beyond", 1)
	d.wantShare("x:beyond", 0, 1)
	d.bring("y:other", 1)
	d.wantShare("y:other", 1, 0)
}

// A site that has messages on their way and has not answered yet gets more as long as it
// and the others of its broker have room.
func TestMoreForASiteThatHasNotAnswered(t *testing.T) {
	for _, test := range []struct{ others, flying int }{{0, 64}, {40, 24}} {
		d := newDesk(t, func(c *Config) { c.HandMax = 256 })
		d.gain(1)
		d.bring("x:first", 10)
		d.bring("x:second", test.others)
		d.bring("x:first", 60)
		d.wantShare("x:first", test.flying, 70-test.flying)
	}
}

// What is parked because its channel has its fill waits for that channel where it has never
// answered: it may be down. Else it does not: that is no reason to give it up.
func TestSinceWhenASurplusWaits(t *testing.T) {
	for _, proven := range []bool{false, true} {
		d := newDesk(t, nil)
		d.tell(Limits{[]store.ChannelSettings{{Channel: "x:narrow", MaxInFlight: 1}}})
		d.gain(1)
		if proven {
			d.prove("x:narrow")
		}
		d.bring("x:narrow", 3)
		parked := d.writes[len(d.writes)-1]
		want := d.now.Wall
		if proven {
			want = 0
		}
		if parked.How != store.SettlePark || parked.DownSince != want {
			t.Errorf("it has answered %t: the surplus is settled as %+v, want it parked since %d", proven, parked, want)
		}
	}
}

// What is not settled yet is in doubt: a channel with as much of that as may be is left
// behind, though nothing waits for its broker.
func TestWhatIsNotSettledTakesRoom(t *testing.T) {
	for _, n := range []int{9, 10} {
		d := newDesk(t, func(c *Config) { c.DoubtMax = 20 })
		d.gain(1)
		d.slow = true
		call := d.ask(0)
		d.answer(call, d.messages(0, "x:a", 5)...)
		d.bring("x:a", n-5)
		d.reply("x:a", publisher.Refused)
		if _, left := d.ask(0).Claims[0].Behind["x:a"]; left != (n == 10) {
			t.Errorf("with %d messages that are not settled the channel is left behind: %t", n, left)
		}
	}
}
