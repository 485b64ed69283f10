package node

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// hangingChannels is a store that does not answer what channels have settings, nor what is pending.
type hangingChannels struct {
	*storetest.Mem
	asked, answer chan struct{}
}

func (h hangingChannels) Channels(context.Context) ([]store.ChannelSettings, error) {
	close(h.asked)
	<-h.answer
	return nil, nil
}

func (h hangingChannels) Pending(context.Context, string, postdate.Time) (store.Pending, error) {
	<-h.answer
	return store.Pending{}, nil
}

// Whoever looks into an outage asks for the channels first: the answer must not wait for the
// store.
func TestChannelsWhileTheStoreHangs(t *testing.T) {
	hangs := hangingChannels{storetest.NewMem(1), make(chan struct{}), make(chan struct{})}
	l := &loop{asks: make(chan chan []poller.ChannelView), events: make(chan machine.Event, 1)}
	c := newControl(hangs, quota.NewKeeper(quota.Limits{}, hangs, func() int { return 1 }, time.Now), l, func() {})
	go func() {
		answer := <-l.asks
		answer <- []poller.ChannelView{{Route: "rabbitmq:orders", Down: true}, {Route: "@acme rabbitmq:orders"}}
	}()
	read := make(chan error)
	go func() { read <- c.read(t.Context()) }()
	<-hangs.asked
	now := func() postdate.Time { return 1000 }
	n := &Node{c: Config{NodeID: "a"}, loop: l, control: c, watch: &watch{now: now, metrics: prometheus.NewRegistry()}}
	n.pending = newPendingLooks(hangs, now, t.Context(), &n.background)
	list, err := clusterChannels{n}.List(t.Context(), postdate.DefaultTenant, "")
	if err != nil || len(list.Channels) != 1 || !list.Channels[0].Down {
		t.Errorf("got %+v, %v", list, err)
	}
	close(hangs.answer)
	n.background.Wait()
	if err := <-read; err != nil {
		t.Error(err)
	}
}

// controlOver is one over a store in memory, whose loop nobody runs.
func controlOver(s settings) *control {
	l := &loop{events: make(chan machine.Event, 10_000)}
	return newControl(s, quota.NewKeeper(quota.Limits{PendingMax: 5}, storetest.NewMem(1), func() int { return 1 }, time.Now), l, func() {})
}

// Administrators who change one tenant at the same time undo nothing of each other's.
func TestTenantChangedByMany(t *testing.T) {
	for range 50 {
		c := controlOver(storetest.NewMem(1))
		rate, count, weight := 7.0, int64(7), 7
		var all sync.WaitGroup
		for _, f := range []func(*store.TenantSettings){
			func(s *store.TenantSettings) { s.RequestsPerSecond = &rate }, func(s *store.TenantSettings) { s.MessagesPerSecond = &rate },
			func(s *store.TenantSettings) { s.PendingMax = &count }, func(s *store.TenantSettings) { s.BytesMax = &count },
			func(s *store.TenantSettings) { s.ChannelsMax = &count }, func(s *store.TenantSettings) { s.Weight = &weight },
		} {
			all.Go(func() {
				if _, err := c.ChangeTenant(t.Context(), "acme", f); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := c.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.quota.LimitsOf("acme"); got != (quota.Limits{RequestsPerSecond: 7, MessagesPerSecond: 7, PendingMax: 7, BytesMax: 7, ChannelsMax: 7, Weight: 7}) {
			t.Fatalf("the limits are %+v", got)
		}
	}
}

// Those who change one channel at the same time undo nothing of each other's, either.
func TestChannelChangedByMany(t *testing.T) {
	for range 50 {
		c := controlOver(storetest.NewMem(1))
		var all sync.WaitGroup
		for _, f := range []func(*store.ChannelSettings){
			func(s *store.ChannelSettings) { s.Paused = true }, func(s *store.ChannelSettings) { s.MaxPerSecond = 7 },
			func(s *store.ChannelSettings) { s.MaxInFlight = 7 },
		} {
			all.Go(func() {
				if _, err := c.Change(t.Context(), "inbox:a", f); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if err := c.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.channels()["inbox:a"]; got != (store.ChannelSettings{Route: "inbox:a", Paused: true, MaxPerSecond: 7, MaxInFlight: 7}) {
			t.Fatalf("what is set is %+v", got)
		}
	}
}

// slowSettings is a store whose settings are written when the test says so.
type slowSettings struct {
	*storetest.Mem
	writes int
	write  chan struct{}
}

func (s *slowSettings) SetChannel(ctx context.Context, c store.ChannelSettings) error {
	<-s.write
	s.writes++
	return s.Mem.SetChannel(ctx, c)
}

// However many changes of channels a tenant sends at once, another tenant's waits for one of them at most.
func TestChangesOfAnotherTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowSettings{Mem: storetest.NewMem(1), write: make(chan struct{})}
		c := controlOver(s)
		pause := func(s *store.ChannelSettings) { s.Paused = true }
		const many = 50
		for i := range many {
			go func() {
				_, _ = c.Change(t.Context(), postdate.RouteOf("acme", postdate.Channel(fmt.Sprint("inbox:", i))), pause)
			}()
		}
		synctest.Wait() // the first is under way, and the others wait
		done := false
		go func() {
			_, err := c.ChangeTenant(t.Context(), "other", func(s *store.TenantSettings) { s.PendingMax = new(int64) })
			if err != nil {
				t.Error(err)
			}
			done = true
		}()
		synctest.Wait() // it waits too
		s.write <- struct{}{}
		synctest.Wait()
		if !done || s.writes != 1 {
			t.Errorf("it is done: %v, after %d of %d changes", done, s.writes, many)
		}
		for range many - 1 {
			s.write <- struct{}{}
		}
	})
}

// A tenant has settings for a bounded number of channels, which it can take back and change.
func TestSettingsOfVeryManyChannels(t *testing.T) {
	s := storetest.NewMem(1)
	c := controlOver(s)
	route := func(tenant string, i int) postdate.Route {
		return postdate.RouteOf(tenant, postdate.Channel(fmt.Sprint("inbox:", i)))
	}
	for i := range postdate.ChannelSettingsMax {
		if err := s.SetChannel(t.Context(), store.ChannelSettings{Route: route("acme", i), Paused: true}); err != nil {
			t.Fatal(err)
		}
	}
	pause := func(s *store.ChannelSettings) { s.Paused = true }
	_, err := c.Change(t.Context(), route("acme", -1), pause)
	storetest.Refused(t, err, postdate.KindTooLarge, "10,000 channels")
	for _, can := range []func() error{
		func() error { _, err := c.Change(t.Context(), route("other", 1), pause); return err },
		func() error {
			_, err := c.Change(t.Context(), route("acme", 1), func(s *store.ChannelSettings) { s.MaxInFlight = 1 })
			return err
		},
		func() error {
			_, err := c.Change(t.Context(), route("acme", 1), func(s *store.ChannelSettings) { *s = store.ChannelSettings{Route: s.Route} })
			return err
		},
		func() error { _, err := c.Change(t.Context(), route("acme", -1), pause); return err },
	} {
		if err := can(); err != nil {
			t.Error(err)
		}
	}
}

// forgetful is a store that does not answer any longer once something is set in it.
type forgetful struct {
	*storetest.Mem
	away bool
}

func (f *forgetful) SetTenant(ctx context.Context, s store.TenantSettings) error {
	f.away = true
	return f.Mem.SetTenant(ctx, s)
}

func (f *forgetful) SetChannel(ctx context.Context, s store.ChannelSettings) error {
	f.away = true
	return f.Mem.SetChannel(ctx, s)
}

func (f *forgetful) Channels(ctx context.Context) ([]store.ChannelSettings, error) {
	if f.away {
		return nil, postdate.E(postdate.KindUnavailable, "away")
	}
	return f.Mem.Channels(ctx)
}

func (f *forgetful) Tenants(ctx context.Context) ([]store.TenantSettings, error) {
	if f.away {
		return nil, postdate.E(postdate.KindUnavailable, "away")
	}
	return f.Mem.Tenants(ctx)
}

// A change that is done is not answered as one that is surely not.
func TestChangedBeforeAnOutage(t *testing.T) {
	c := controlOver(&forgetful{Mem: storetest.NewMem(1)})
	pause := func(s *store.ChannelSettings) { s.Paused = true }
	if got, err := c.Change(t.Context(), "inbox:a", pause); err != nil || !got.Paused {
		t.Errorf("a channel: got %+v, %v", got, err)
	}
	if _, err := c.Change(t.Context(), "inbox:b", pause); postdate.KindOf(err) != postdate.KindUnavailable {
		t.Errorf("a channel while the store is away: %v", err)
	}
	c = controlOver(&forgetful{Mem: storetest.NewMem(1)})
	most := int64(9)
	got, err := c.ChangeTenant(t.Context(), "acme", func(s *store.TenantSettings) { s.PendingMax = &most })
	if err != nil || got.PendingMax != 9 {
		t.Errorf("got %+v, %v", got, err)
	}
}
