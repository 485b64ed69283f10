package poller

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

// Settlements that fail are tried ever more rarely and by themselves, also while the claims
// of their bucket go through.
func TestSettlementsThatFailBesideClaims(t *testing.T) {
	s := newSlowShop(t, 8, nil)
	s.log = nil
	for end := s.now.Mono + 5*time.Second; s.now.Mono < end; s.sleep(5 * ms) {
		for b := range 5 {
			s.add(b, "x:a", 1, -ms)
		}
		for len(s.calls) > 0 {
			c := s.calls[0]
			s.broken = func(b int) bool { return c.settle != nil && b == 3 }
			s.answerWith(c)
		}
	}
	at, sizes := s.begun(false, 3)
	if len(at) > 10 || slices.Max(sizes[1:]) > 1 {
		t.Errorf("settlements of the bucket are tried %d times in 5 s, beside those of up to %d buckets", len(at), slices.Max(sizes[1:]))
	}
	for b, rows := range s.rows {
		if b != 3 && len(rows) > 8 {
			t.Errorf("%d messages of bucket %d wait to be settled", len(rows), b)
		}
	}
}

// Lanes whose buckets are lost, and of which nothing is left to settle, end.
func TestLanesOfLostBucketsEnd(t *testing.T) {
	s := newSlowShop(t, 130, func(c *Config) { c.PayloadBytesMax, c.DoubtMax = 1<<10, 1<<20 })
	s.mute = func(c postdate.Channel) bool { return strings.HasPrefix(string(c), "x:late") }
	var all []int
	for b := range 130 {
		s.add(b, named("x:late%d", b), 1, 50*ms)
		all = append(all, b)
	}
	s.add(1, "x:latest", 1, 50*ms)
	for range 2 {
		s.sleep(60 * ms)
		s.answerAll()
	}
	s.lose(all...)
	slices.SortStableFunc(s.unanswered, func(p, q Publish) int {
		return strings.Compare(fmt.Sprint(p.Channel == "x:latest"), fmt.Sprint(q.Channel == "x:latest"))
	})
	s.confirm(130) // all but the latest
	s.sleep(10 * ms)
	s.broken = every
	s.answer(settles)
	s.answer(settles)
	s.sleep(110 * ms) // each lane tries, and hangs
	s.confirm(1)
	s.sleep(150 * ms)
	s.broken = nil
	s.answer(func(c call) bool { return slices.Contains(c.buckets, 65) })
	s.broken = every // the one that began later, of the same lane
	s.answer(func(c call) bool { return slices.Contains(c.buckets, 1) })
	s.broken = nil
	s.work(time.Hour)
	if n := len(s.m.apart); n > 0 {
		t.Errorf("%d lanes are left an hour after all is well", n)
	}
}

// A delivery that could not be written when its bucket was lost is written all the same.
func TestLostWhileItsSettlementFails(t *testing.T) {
	s := newSlowShop(t, 2, nil)
	s.add(0, "x:a", 1, -ms)
	for end := s.now.Mono + time.Second; s.now.Mono < end; s.sleep(5 * ms) {
		for len(s.calls) > 0 {
			c := s.calls[0]
			s.broken = func(int) bool { return c.settle != nil }
			s.answerWith(c)
		}
	}
	s.lose(0)
	s.broken = nil
	s.work(10 * time.Second)
	if n := len(s.rows[0]); n > 0 {
		t.Errorf("%d deliveries are not written", n)
	}
}
