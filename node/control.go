package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
)

// settingsEvery is how often the settings of channels and tenants are read again: another node may have
// changed them.
const settingsEvery = 2 * time.Second

// control gives the poller the settings of channels and the quota keeper those of tenants, and changes both.
type control struct {
	store settings
	quota *quota.Keeper
	loop  *loop
	stale chan struct{} // another node has changed a setting
	tell  func()        // tells the other nodes of a change

	turns   sync.Map            // of *semaphore.Weighted, by tenant: one change of a tenant at a time
	reading *semaphore.Weighted // orders readings and changes: an older reading never replaces a newer one

	mu  sync.Mutex                               // guards set; never held while the store is asked
	set map[postdate.Route]store.ChannelSettings // replaced, and never changed
}

func newControl(s settings, q *quota.Keeper, l *loop, tell func()) *control {
	return &control{store: s, quota: q, loop: l, stale: make(chan struct{}, 1), tell: tell,
		reading: semaphore.NewWeighted(1)}
}

// settings is what a store keeps for operators.
type settings interface {
	store.Channels
	store.Tenants
}

// read loads the settings and passes them on.
func (c *control) read(ctx context.Context) error {
	if err := take(ctx, c.reading); err != nil {
		return err
	}
	defer c.reading.Release(1)
	all, err := c.store.Channels(ctx)
	if err != nil {
		return err
	}
	tenants, err := c.store.Tenants(ctx)
	if err != nil {
		return err
	}
	c.quota.Set(tenants)
	weights := map[string]int{}
	for _, s := range tenants {
		if s.Weight != nil {
			weights[s.Tenant] = *s.Weight
		}
	}
	set := make(map[postdate.Route]store.ChannelSettings, len(all))
	for _, s := range all {
		set[s.Route] = s
	}
	c.mu.Lock()
	c.set = set
	c.mu.Unlock()
	c.loop.tell(poller.Limits{Settings: all, Weights: weights})
	return nil
}

// channels are the settings of channels as they were read last.
func (c *control) channels() map[postdate.Route]store.ChannelSettings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set
}

// Change changes the settings of a channel. If two nodes change a channel at the same time, the last
// change wins as a whole.
func (c *control) Change(ctx context.Context, route postdate.Route,
	f func(*store.ChannelSettings)) (store.ChannelSettings, error) {
	turn := c.turnOf(route.Tenant())
	if err := take(ctx, turn); err != nil {
		return store.ChannelSettings{}, err
	}
	defer turn.Release(1)
	s, err := c.changeChannel(ctx, route, f)
	if err == nil {
		c.changed(ctx)
	}
	return s, err
}

// turnOf returns the semaphore that a change of a tenant's settings holds, so that however many the tenant
// sends at once, another tenant's waits for one of them. Semaphores serve those who wait in their order,
// which a mutex does not.
func (c *control) turnOf(tenant string) *semaphore.Weighted {
	turn, _ := c.turns.LoadOrStore(tenant, semaphore.NewWeighted(1))
	return turn.(*semaphore.Weighted)
}

// take waits for a semaphore as long as the call may take.
func take(ctx context.Context, s *semaphore.Weighted) error {
	if err := s.Acquire(ctx, 1); err != nil {
		return postdate.E(postdate.KindUnavailable, "nothing was changed: other changes take too long: %w", err)
	}
	return nil
}

// changeChannel changes the settings in the store. Changes on this node come one after another, so that
// none undoes another.
func (c *control) changeChannel(ctx context.Context, route postdate.Route,
	f func(*store.ChannelSettings)) (store.ChannelSettings, error) {
	s, others := store.ChannelSettings{Route: route}, 0
	if err := take(ctx, c.reading); err != nil {
		return s, err
	}
	defer c.reading.Release(1)
	all, err := c.store.Channels(ctx)
	if err != nil {
		return s, notRead(err)
	}
	for _, o := range all {
		if o.Route == route {
			s = o
		} else if o.Route.Tenant() == route.Tenant() {
			others++
		}
	}
	f(&s)
	if others >= postdate.ChannelSettingsMax && !s.None() {
		return s, postdate.E(postdate.KindTooLarge, "the tenant has something set for 10,000 channels, and may not "+
			"for more: resume some, and take limits back with 0")
	}
	return s, c.store.SetChannel(ctx, s)
}

// notRead says that nothing was changed, because what is set cannot be read.
func notRead(err error) error {
	return postdate.E(postdate.KindUnavailable, "what is set cannot be read: %w", err)
}

// changed tells the other nodes of a change that is done, and reads it here: if that fails, the next
// regular reading has it.
func (c *control) changed(ctx context.Context) {
	c.tell()
	_ = c.read(ctx)
}

// run reads the settings regularly, and when they have changed, until ctx ends.
func (c *control) run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(settingsEvery)
	defer tick.Stop()
	for {
		if err := c.read(ctx); err != nil && ctx.Err() == nil {
			log.Warn("reading the settings of channels and tenants failed and is repeated", "error", err)
		}
		select {
		case <-tick.C:
		case <-c.stale:
		case <-ctx.Done():
			return
		}
	}
}
