package node_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// The list has what waits for a paused channel, channels at rest with messages for later, and what was delivered, which
// is what the metrics say.
func TestPendingAndRatesOfChannels(t *testing.T) {
	_, c := start(t, config(t))
	if err := c.Pause(patient(t), "inbox:paused"); err != nil {
		t.Fatal(err)
	}
	const delivered = 20
	schedule := func(channel string, delay time.Duration, n int) {
		for i := range n {
			message := client.Message{ScheduleID: fmt.Sprintf("%s-%v-%d", channel, delay, i), Channel: channel, Delay: delay, Payload: []byte("1")}
			if s, err := c.Schedule(patient(t), message); err != nil || !s.Created {
				t.Fatal(s, err)
			}
		}
	}
	schedule("inbox:busy", time.Millisecond, delivered)
	schedule("inbox:paused", time.Millisecond, 3)
	schedule("inbox:paused", time.Hour, 2)
	schedule("inbox:later", 24*time.Hour, 4)
	var before, after client.Stats
	err := nodetest.Poll(patient(t), func() (bool, error) {
		before = statsOf(t, c.Client)
		m, err := c.Get(patient(t), "inbox:paused-1ms-2")
		return before.Total.Delivered == delivered && m.Parked != "", err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Channels(patient(t))
	if err != nil {
		t.Fatal(err)
	}
	after = statsOf(t, c.Client)
	of := map[string]client.Channel{}
	for _, ch := range list.Channels {
		if ch.Pending == nil || ch.Due == nil || !ch.Exact || ch.DeliveredPerSecond == nil {
			t.Fatalf("not all is known of %+v", ch)
		}
		of[ch.Channel] = ch
	}
	for channel, want := range map[string][2]int64{"inbox:busy": {0, 0}, "inbox:paused": {5, 3}, "inbox:later": {4, 0}} {
		if ch, listed := of[channel]; !listed || *ch.Pending != want[0] || *ch.Due != want[1] {
			t.Errorf("%s: %t, %+v, want %v pending and due", channel, listed, ch, want)
		}
	}
	if ch := of["inbox:later"]; ch.State != "up" || ch.InHand != 0 || *ch.DeliveredPerSecond != 0 || len(of) != 3 {
		t.Errorf("at rest is %+v of %d", ch, len(of))
	}
	line := regexp.MustCompile(`(?m)^postdate_publishes_total\{channel="inbox:busy",outcome="confirmed",tenant="default"\} (\S+)$`)
	found := line.FindStringSubmatch(metricsFor(t, c.Client))
	if found == nil {
		t.Fatal("the metrics do not have it")
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	// the list was made between the two figures, and read the metrics then, or up to half a second before
	least, most := n/after.LastMinute.Seconds-.001, n/max(before.LastMinute.Seconds-.5, .001)+.001
	if rate := *of["inbox:busy"].DeliveredPerSecond; n != delivered || rate < least || rate > most {
		t.Errorf("the rate is %v, and the metrics have %v of %v s: want between %v and %v", rate, n, after.LastMinute.Seconds, least, most)
	}
}

// uncounted is a store in which a look at what is pending hangs until it is released, and then fails.
type uncounted struct {
	shared
	mu    *sync.Mutex
	asked *int
	hangs chan struct{}
}

func (s uncounted) Pending(context.Context, string, postdate.Time) (p store.Pending, err error) {
	s.mu.Lock()
	*s.asked++
	s.mu.Unlock()
	<-s.hangs
	return p, postdate.E(postdate.KindUnavailable, "it rests")
}

// A store that hangs or fails takes nothing from the list but what it alone knows, and is not asked again and again.
func TestAStoreThatDoesNotCount(t *testing.T) {
	s := uncounted{shared{storetest.NewMem(32)}, new(sync.Mutex), new(int), make(chan struct{})}
	m := newTeam(t, func(c *node.Config, p *node.Parts) { c.Store, p.Store = inMemory, s })
	m.add("a")
	defer m.remove("a")
	c := m.client("a")
	if err := c.Pause(patient(t), "inbox:x"); err != nil {
		t.Fatal(err)
	}
	list := func() {
		t.Helper()
		list, err := c.Channels(patient(t))
		if err != nil || !slices.ContainsFunc(list.Channels, func(c client.Channel) bool {
			return c.Channel == "inbox:x" && c.Paused && c.Pending == nil && c.Due == nil && !c.Exact
		}) {
			t.Errorf("listed are %+v, %v", list.Channels, err)
		}
	}
	for range 5 {
		list()
	}
	s.mu.Lock()
	if *s.asked != 1 {
		t.Errorf("the store was asked %d times", *s.asked)
	}
	s.mu.Unlock()
	close(s.hangs)
	list()
}
