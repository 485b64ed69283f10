package node

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// slowCount takes a second to count what is pending, which is one more each time, and hangs for a minute at the fourth.
type slowCount struct {
	store.Messages
	times *int64
}

func (s slowCount) Pending(context.Context, string, postdate.Time) (store.Pending, error) {
	if *s.times++; *s.times == 4 {
		time.Sleep(time.Minute)
	}
	time.Sleep(time.Second)
	return store.Pending{Channels: map[postdate.Channel]store.PendingCount{"inbox:x": {All: *s.times}}}, nil
}

// While a slow store counts again, a list that people watch has what it counted last, for some seconds.
func TestASlowLookLeavesTheEarlierOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var background sync.WaitGroup
		defer background.Wait()
		p := newPendingLooks(slowCount{times: new(int64)}, func() postdate.Time { return 0 }, t.Context(), &background)
		for _, each := range []struct {
			at   time.Duration
			want int64 // how often the store had counted; 0: nothing is known
		}{
			{0, 0}, {2 * time.Second, 1}, {6 * time.Second, 1}, {8 * time.Second, 2}, {time.Minute, 0}, {62 * time.Second, 3},
			{66 * time.Second, 3}, {69 * time.Second, 3}, {71 * time.Second, 0}, {90 * time.Second, 0},
		} {
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(each.at)))
			found := p.look("default").result(t.Context())
			if found == nil {
				found = &store.Pending{}
			}
			if got := found.Channels["inbox:x"].All; got != each.want {
				t.Errorf("at %v the list has what was counted at the look %d, want %d", each.at, got, each.want)
			}
		}
	})
}

// heldLooks looks at what is upcoming or pending until it is told to end.
type heldLooks struct {
	store.Store
	begun *atomic.Int64
	end   chan struct{}
}

func (h heldLooks) look() {
	h.begun.Add(1)
	<-h.end
}

func (h heldLooks) Upcoming(context.Context, store.UpcomingQuery) ([]store.UpcomingSlot, error) {
	h.look()
	return nil, nil
}

func (h heldLooks) Pending(context.Context, string, postdate.Time) (store.Pending, error) {
	h.look()
	return store.Pending{}, nil
}

// A few looks run at a time, whatever is asked: the others wait, and then have their answer.
func TestLooksWaitForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := heldLooks{storetest.NewMem(1), new(atomic.Int64), make(chan struct{})}
		metrics := prometheus.NewRegistry()
		m := measure(held, metrics)
		var asking sync.WaitGroup
		for i := range looksMax + 1 {
			asking.Go(func() {
				var err error
				if i%2 == 0 {
					_, err = m.Upcoming(t.Context(), store.UpcomingQuery{})
				} else {
					_, err = m.Pending(t.Context(), "a", 0)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := held.begun.Load(); n != looksMax {
			t.Errorf("%d looks run, want %d", n, looksMax)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err := m.Pending(gone, "a", 0)
		if postdate.KindOf(err) != postdate.KindUnavailable || errors.Is(err, context.Canceled) { // else it is unknown
			t.Errorf("who left before his turn has %v", err)
		}
		families, err := metrics.Gather()
		if err != nil {
			t.Error(err)
		}
		for _, family := range families {
			if family.GetName() == "postdate_store_errors_total" {
				t.Errorf("the store counts as one that fails: %v", family)
			}
		}
		close(held.end)
		asking.Wait()
		if n := held.begun.Load(); n != looksMax+1 {
			t.Errorf("%d looks ran, want %d", n, looksMax+1)
		}
	})
}
