package poller

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/store"
)

// Probes of hosts that are down keep to the node's budget, however many hosts there are and
// however many URLs each has, and use it up: each host gets its turn.
func TestProbesKeepTheirBudget(t *testing.T) {
	const hosts, gap = 150, time.Second / probesPerSecond
	b := withParked(t, 10, nil)
	var found []store.ParkedRoute
	for i := range 2 * hosts {
		found = append(found, store.ParkedRoute{Bucket: i % 10, Route: named("https://host-%d.example/%d", i%hosts, i)})
	}
	tries, last := map[postdate.Route]int{}, -time.Hour
	begin, n := b.now.Mono, 0
	for effects := b.step(ParkedFound{Found: found}); b.now.Mono < begin+2*time.Second; effects = b.step(fence.Tick{}) {
		for len(effects) > 0 {
			var more []Effect
			for _, u := range of[Unpark](effects) {
				if b.now.Mono-last < gap || u.Unpark.Limit != 1 {
					t.Fatalf("%d messages are tried %s after the last probe, want 1 in %s", u.Unpark.Limit, b.now.Mono-last, gap)
				}
				last = b.now.Mono
				n++
				tries[siteOf(u.Unpark.Route)]++
				more = append(more, b.step(Unparked{Unpark: u.Unpark, Moved: 1})...) // and nothing arrives
			}
			effects = append(more, b.answerAll(effects)...)
		}
		b.after(b.m.Wake(b.now))
	}
	if most := 2 * probesPerSecond; n < most*95/100 || n > most {
		t.Errorf("%d probes in two seconds, want about %d", n, most)
	}
	for host, n := range tries {
		if n > 2 {
			t.Errorf("%s was tried %d times while others waited", host, n)
		}
	}
	if len(tries) != hosts {
		t.Errorf("%d of %d hosts were tried", len(tries), hosts)
	}
}

// The same holds when every host was tried before.
func TestProbesKeepTheirBudgetForLong(t *testing.T) {
	const hosts, lasts = 1_500, 40 * time.Second
	s := newSlowShop(t, 4, nil)
	s.down = every
	var all []store.ParkedRoute
	for i := range 2 * hosts { // two messages for each, in two buckets
		all = append(all, s.parkedBefore((i+i/hosts)%4, named("https://host-%d.example/", i%hosts)))
	}
	n := 0
	s.watch = func(e Effect) {
		if has[Unpark](e) {
			n++
		}
	}
	s.step(ParkedFound{Found: all})
	s.work(lasts)
	if most := probesPerSecond*int(lasts/time.Second) + 1; n < most*95/100 || n > most { // one at each end
		t.Errorf("%d probes in %s, want about %d", n, lasts, most)
	}
}

// If the budget allows, a host that turns out to be down is tried immediately, otherwise as
// soon as the budget does.
func TestAProbeHasItsPlace(t *testing.T) {
	const gap = time.Second / probesPerSecond
	b := withParked(t, 1, nil)
	if n := len(b.parked("inbox:a", 0)); n != 1 {
		t.Fatalf("%d probes, want 1", n)
	}
	b.after(gap)
	if n := len(b.parked("inbox:b", 0)); n != 1 {
		t.Errorf("%d probes %s after the last one, want 1", n, gap)
	}
	b.after(gap - 1)
	if n := len(b.parked("inbox:c", 0)); n != 0 {
		t.Errorf("%d probes less than %s after the last one", n, gap)
	}
	for begin := b.now.Mono; ; {
		b.after(b.m.Wake(b.now))
		if n := len(of[Unpark](b.step(fence.Tick{}))); n == 1 {
			break
		}
		if b.now.Mono-begin > 2*gap {
			t.Fatalf("no probe for %s", b.now.Mono-begin)
		}
	}
}

// If the URL that was to probe its host cannot any more, another one does within the longest
// pause between two probes.
func TestAnotherOneTriesInItsPlace(t *testing.T) {
	const prober, other = "https://a.example/1", "https://a.example/2"
	for name, cannot := range map[string]Event{
		"it is paused":               Limits{Settings: []store.ChannelSettings{{Route: prober, Paused: true}}},
		"its buckets are lost":       fence.Lost{Holds: holds(1, 2)},
		"its buckets are in trouble": fence.Tick{}, // see below
	} {
		t.Run(name, func(t *testing.T) {
			b := withParked(t, 4, nil)
			effects := b.step(ParkedFound{Found: []store.ParkedRoute{
				{Bucket: 0, Route: "inbox:x"}, // has the first place, so the next one waits for its own
				{Bucket: 1, Route: prober}, {Bucket: 2, Route: prober}, {Bucket: 3, Route: other},
			}})
			if n := len(of[Unpark](effects)); n != 1 {
				t.Fatalf("%d probes, want 1", n)
			}
			effects = append(effects, b.step(cannot)...)
			for end := b.now.Mono + b.m.c.ProbeMax + time.Second; b.now.Mono < end; effects = b.step(fence.Tick{}) {
				for unparks := of[Unpark](effects); len(unparks) > 0; unparks = unparks[1:] {
					answer := Unparked{Unpark: unparks[0].Unpark}
					switch answer.Unpark.Route {
					case other:
						return
					case prober:
						answer.Err = errStore
					}
					unparks = append(unparks, of[Unpark](b.step(answer))...)
				}
				b.answerAll(effects)
				b.after(20 * ms)
			}
			t.Errorf("the other URL is not tried")
		})
	}
}
