package poller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// Settlements that fail are tried ever more rarely and by themselves, also while the claims
// of their bucket go through.
func TestSettlementsThatFailBesideClaims(t *testing.T) {
	d := newCounter(t, 8, nil)
	d.log = nil
	for end := d.now.Mono + 5*time.Second; d.now.Mono < end; d.wait(5 * ms) {
		for b := range 5 {
			d.add(b, "x:a", -ms)
		}
		for len(d.calls) > 0 {
			c := d.calls[0]
			d.broken = func(b int) bool { return c.settle != nil && b == 3 }
			d.answerWith(c)
		}
	}
	at, sizes := d.begun(false, 3)
	if len(at) > 10 || slices.Max(sizes[1:]) > 1 {
		t.Errorf("settlements of the bucket are tried %d times in 5 s, beside those of up to %d buckets", len(at), slices.Max(sizes[1:]))
	}
	for b, rows := range d.rows {
		if b != 3 && len(rows) > 8 {
			t.Errorf("%d messages of bucket %d wait to be settled", len(rows), b)
		}
	}
}

// Buckets that were apart are back among the others soon after all is well, also where so much
// is due that each of their calls finds another one under way.
func TestLanesJoinUnderLoad(t *testing.T) {
	const buckets = 8
	for _, takes := range []struct{ claim, settle time.Duration }{{5 * ms, 10 * ms}, {2 * ms, 40 * ms}, {5 * ms, 150 * ms}, {20 * ms, 40 * ms}} {
		d := newCounter(t, buckets, nil)
		d.mute = func(postdate.Channel) bool { return true }
		for end := d.begin + 4*time.Second; d.now.Mono < end; d.wait(ms) {
			at := d.now.Mono - d.begin
			if at%(4*ms) == 0 {
				for b := range buckets {
					d.add(b, "x:a", -ms)
				}
			}
			for _, c := range slices.Clone(d.calls) {
				if c.claim != nil && at >= c.at+takes.claim || c.settle != nil && at >= c.at+takes.settle {
					d.broken = func(int) bool { return c.settle != nil && at >= time.Second && at < 1200*ms }
					d.answerWith(c)
				}
			}
			d.confirm(buckets * buckets)
		}
		left := 0
		for _, rows := range d.rows {
			left += len(rows)
		}
		if len(d.m.apart) > 0 || left > 500 {
			t.Errorf("where a claim takes %s and a settlement %s, %d lanes are apart, and %d messages wait", takes.claim, takes.settle, len(d.m.apart), left)
		}
	}
}

// Buckets whose settlements fail do not fill their channel's room: it goes on in the others.
func TestSettlementsThatFailLeaveRoom(t *testing.T) {
	const buckets = 24
	d := newCounter(t, buckets, nil)
	fails := func(b int) bool { return b%3 == 0 }
	for end := d.now.Mono + 6*time.Second; d.now.Mono < end; d.wait(5 * ms) {
		for range 5 {
			d.add(d.added%buckets, "x:a", -ms)
		}
		for len(d.calls) > 0 {
			c := d.calls[0]
			d.broken = func(b int) bool { return c.settle != nil && fails(b) }
			d.answerWith(c)
		}
	}
	d.broken = func(int) bool { return false }
	for b, rows := range d.rows {
		if !fails(b) && len(rows) > 8 {
			t.Errorf("%d messages of bucket %d, where all is well, are left", len(rows), b)
		}
	}
	d.work(10 * time.Second)
	for b, rows := range d.rows {
		if len(rows) > 0 {
			t.Errorf("%d messages of bucket %d are left when all is well", len(rows), b)
		}
	}
	together(t, d)
}

// Lanes whose buckets are lost, and of which nothing is left to settle, end.
func TestLanesOfLostBucketsEnd(t *testing.T) {
	d := newCounter(t, 130, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
	d.mute = func(c postdate.Channel) bool { return strings.HasPrefix(string(c), "x:late") }
	var holds []store.Hold
	for b := range 130 {
		d.add(b, postdate.Channel(fmt.Sprint("x:late", b)), 50*ms)
		holds = append(holds, store.Hold{Bucket: b, Token: 1})
	}
	d.add(1, "x:latest", 50*ms)
	for range 2 {
		d.wait(60 * ms)
		d.answerAll()
	}
	d.step(fence.Lost{Holds: holds})
	slices.SortStableFunc(d.unanswered, func(p, q Publish) int {
		return strings.Compare(fmt.Sprint(p.Channel == "x:latest"), fmt.Sprint(q.Channel == "x:latest"))
	})
	d.confirm(130) // all but the latest
	d.wait(10 * ms)
	broken := func(broken bool) { d.broken = func(int) bool { return broken } }
	broken(true)
	d.answer(settles)
	d.answer(settles)
	d.wait(110 * ms) // each lane tries, and hangs
	d.confirm(1)
	d.wait(150 * ms)
	broken(false)
	d.answer(func(c call) bool { return slices.Contains(c.buckets, 65) })
	broken(true) // the one that began later, of the same lane
	d.answer(func(c call) bool { return slices.Contains(c.buckets, 1) })
	broken(false)
	d.work(time.Hour)
	if n := len(d.m.apart); n > 0 {
		t.Errorf("%d lanes are left an hour after all is well", n)
	}
}

// A delivery that could not be written when its bucket was lost is written all the same.
func TestLostWhileItsSettlementFails(t *testing.T) {
	d := newCounter(t, 2, nil)
	d.add(0, "x:a", -ms)
	for end := d.now.Mono + time.Second; d.now.Mono < end; d.wait(5 * ms) {
		for len(d.calls) > 0 {
			c := d.calls[0]
			d.broken = func(int) bool { return c.settle != nil }
			d.answerWith(c)
		}
	}
	d.step(fence.Lost{Holds: []store.Hold{{Bucket: 0, Token: 1}}})
	d.broken = func(int) bool { return false }
	d.work(10 * time.Second)
	if n := len(d.rows[0]); n > 0 {
		t.Errorf("%d deliveries are not written", n)
	}
}

// What is parked in buckets that are out of reach keeps nothing parked in the others.
func TestUnparksThatFailLeaveTheirPlaces(t *testing.T) {
	const buckets = 64
	d := newCounter(t, buckets, func(c *Config) { c.SweepEvery = 2 * time.Second })
	d.add(0, "x:a", -ms)
	d.work(time.Second) // the channel answers
	var found []store.ParkedChannel
	for b := range buckets {
		d.add(b, "x:a", time.Hour)
		d.rows[b][0].Parked, d.rows[b][0].ExecutionTime = true, d.now.Wall-1
		found = append(found, store.ParkedChannel{Bucket: b, Channel: "x:a"})
	}
	d.broken = func(b int) bool { return b%3 == 0 }
	d.step(ParkedFound{Found: found})
	d.work(20 * time.Second)
	for b, rows := range d.rows {
		if !d.broken(b) && len(rows) > 0 {
			t.Errorf("bucket %d, where all is well, has something parked", b)
		}
	}
	d.broken = func(int) bool { return false }
	d.work(20 * time.Second)
	for b, rows := range d.rows {
		if len(rows) > 0 {
			t.Errorf("bucket %d has something parked when all is well", b)
		}
	}
}

// Where only buckets that are apart have something parked for a channel, it is tried there in
// half of the places.
func TestUnparksOfBucketsThatAreApart(t *testing.T) {
	const apart = 10
	d := newDesk(t, func(c *Config) { c.UnparksMax = 4 })
	d.gain(apart + 1)
	d.tell(Nudged{[]Nudge{{apart, d.now.Wall - 1}}})
	d.answer(d.take(), append(d.messages(apart, "x:gone", 1), d.messages(apart, "x:well", 1)...)...)
	var found []store.ParkedChannel
	var due []Nudge
	for b := range apart {
		due = append(due, Nudge{b, d.now.Wall - 1})
		found = append(found, store.ParkedChannel{Bucket: b, Channel: "x:gone"})
	}
	d.tell(Nudged{due})
	d.lose(d.take())
	d.tell(ParkedFound{Found: append(found, store.ParkedChannel{Bucket: apart, Channel: "x:well"})})
	d.reply("x:gone", publisher.Confirmed)
	d.reply("x:well", publisher.Confirmed)
	at := map[postdate.Channel][]int{}
	for _, u := range d.unparks {
		at[u.Unpark.Channel] = append(at[u.Unpark.Channel], u.Unpark.Bucket)
	}
	if !slices.Equal(at["x:gone"], []int{0, 1}) || !slices.Equal(at["x:well"], []int{apart}) {
		t.Errorf("unparks begin: %v", at)
	}
}

// What an owner before has parked is found and comes, though a part of the store is out of
// reach when the buckets are taken.
func TestParkedIsFoundBesideWhatFails(t *testing.T) {
	const buckets = 16
	d := newCounter(t, 0, func(c *Config) { c.SweepEvery = 2 * time.Second })
	var ps []bucket.Partition
	for b := range buckets {
		d.add(b, "x:a", time.Hour)
		d.rows[b][0].Parked, d.rows[b][0].ExecutionTime = true, d.now.Wall-1
		d.record[b] = bucket.Partition{Bucket: b, Owner: "n", Token: 1}
		ps = append(ps, d.record[b])
	}
	d.broken = func(b int) bool { return b%3 == 0 }
	d.step(fence.Gained{Partitions: ps})
	d.work(20 * time.Second)
	for b, rows := range d.rows {
		if !d.broken(b) && len(rows) > 0 {
			t.Errorf("bucket %d, where all is well, has something parked", b)
		}
	}
	d.broken = func(int) bool { return false }
	d.work(20 * time.Second)
	for b, rows := range d.rows {
		if len(rows) > 0 {
			t.Errorf("bucket %d has something parked when all is well", b)
		}
	}
}
