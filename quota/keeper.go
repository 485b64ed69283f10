package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Keeper holds all tenants to their limits. It is safe for concurrent use.
type Keeper struct {
	defaults Limits
	counts   counts
	nodes    func() int // how many nodes share the rates, this one included
	now      func() time.Time

	anybody  atomic.Bool // has limits
	mu       sync.Mutex  // guards what follows
	settings map[string]store.TenantSettings
	accounts map[string]*account
}

// counts is what the keeper needs of a store.
type counts interface {
	UsageOf(tenant string, channel postdate.Channel) (usage store.Usage, uses bool)
}

// NewKeeper returns a keeper that gives tenants without settings the defaults.
func NewKeeper(defaults Limits, c counts, nodes func() int, now func() time.Time) *Keeper {
	k := &Keeper{defaults: defaults, counts: c, nodes: nodes, now: now, accounts: map[string]*account{}}
	k.Set(nil)
	return k
}

// Set takes in what operators set for tenants.
func (k *Keeper) Set(all []store.TenantSettings) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.settings = make(map[string]store.TenantSettings, len(all))
	anybody := !k.defaults.none()
	for _, s := range all {
		k.settings[s.Tenant] = s
		anybody = anybody || !k.defaults.With(s).none()
	}
	for tenant, a := range k.accounts {
		a.adopt(k.limitsOf(tenant), k.nodeCount())
	}
	k.anybody.Store(anybody)
}

// LimitsOf returns a tenant's limits.
func (k *Keeper) LimitsOf(tenant string) Limits {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.limitsOf(tenant)
}

func (k *Keeper) limitsOf(tenant string) Limits { return k.defaults.With(k.settings[tenant]) }

func (k *Keeper) nodeCount() int { return max(k.nodes(), 1) }

// account returns that of a tenant. Tenants come only from credentials, so there are not many.
func (k *Keeper) account(tenant string) *account {
	a := k.accounts[tenant]
	if a == nil {
		a = newAccount(k.limitsOf(tenant), k.nodeCount())
		k.accounts[tenant] = a
	}
	return a
}

// Pace is what a tenant has of a rate on this node.
type Pace struct {
	Burst int           // the most that it can have
	Left  int           // what it has now
	Full  time.Duration // until it has the most
}

// Request takes one request of a tenant. p is what it has left; nil: its requests have no limit.
func (k *Keeper) Request(tenant string) (p *Pace, err error) {
	if !k.anybody.Load() {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	if a.requests == nil {
		return nil, nil
	}
	now := k.now()
	if wait := take(a.requests, now, 1); wait > 0 {
		err = tooFast("requestsPerSecond", "send", a.limits.RequestsPerSecond, wait)
	}
	return paceOf(a.requests, now), err
}

func paceOf(l *rate.Limiter, now time.Time) *Pace {
	left := l.TokensAt(now)
	return &Pace{Burst: l.Burst(), Left: max(int(left), 0), Full: timeFor(l, float64(l.Burst())-left)}
}

// messages are the calls of a store that schedule.
type messages struct {
	store.Messages
	keeper *Keeper
}

// Hold returns s, whose Insert and Replace answer KindLimited for what goes beyond a tenant's limits.
func (k *Keeper) Hold(s store.Messages) store.Messages { return &messages{s, k} }

// Insert implements store.Messages. A message that is stored already counts as one more, so at its
// limit a tenant is refused it too.
func (m *messages) Insert(ctx context.Context, all []postdate.Message) []store.Inserted {
	if !m.keeper.anybody.Load() {
		return m.Messages.Insert(ctx, all)
	}
	results := make([]store.Inserted, len(all))
	held := m.keeper.hold(all, results)
	defer m.keeper.release(held)
	admitted, places := make([]postdate.Message, 0, len(all)), make([]int, 0, len(all))
	for i := range all {
		if results[i].Err == nil {
			admitted, places = append(admitted, all[i]), append(places, i)
		}
	}
	if len(admitted) > 0 {
		for i, r := range m.Messages.Insert(ctx, admitted) {
			results[places[i]] = r
		}
	}
	return results
}

// Replace implements store.Messages. The message that goes makes room for the one that comes.
func (m *messages) Replace(ctx context.Context, next postdate.Message, ifVersion uint64) (postdate.Record, error) {
	if !m.keeper.anybody.Load() {
		return m.Messages.Replace(ctx, next, ifVersion)
	}
	if err := m.keeper.holdRate(next.Tenant, 1); err != nil {
		return postdate.Record{}, err
	}
	old, err := m.Get(ctx, next.Key)
	if err != nil {
		return postdate.Record{}, err
	}
	held, err := m.keeper.holdChange(&old.Message, &next)
	if err != nil {
		return postdate.Record{}, err
	}
	defer m.keeper.release(map[string]store.Usage{next.Tenant: held})
	return m.Messages.Replace(ctx, next, ifVersion)
}

// holdRate takes n messages of a tenant's rate.
func (k *Keeper) holdRate(tenant string, n int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	if wait := take(a.messages, k.now(), n); wait > 0 {
		return tooFast("messagesPerSecond", "schedule", a.limits.MessagesPerSecond, wait)
	}
	return nil
}

// holdChange holds what a message that replaces another needs beyond it.
func (k *Keeper) holdChange(old, next *postdate.Message) (more store.Usage, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(next.Tenant)
	usage, uses := k.counts.UsageOf(next.Tenant, next.Channel)
	more.Bytes = max(int64(len(next.Payload)-len(old.Payload)), 0)
	if !uses {
		more.Channels = 1
	}
	limits := a.limits
	if more.Bytes == 0 {
		limits.BytesMax = 0 // it takes no more than it did, even where less is allowed by now
	}
	if more.Channels == 0 {
		limits.ChannelsMax = 0
	}
	limits.PendingMax = 0
	if err := limits.fits(sum(usage, a.held), more); err != nil {
		return store.Usage{}, err
	}
	a.held = sum(a.held, more)
	return more, nil
}

// hold holds what each message needs, or puts into its result why it may not be inserted.
func (k *Keeper) hold(all []postdate.Message, results []store.Inserted) (held map[string]store.Usage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	held = map[string]store.Usage{}
	counts := map[string]int{}
	for i := range all {
		counts[all[i].Tenant]++
	}
	late := map[string]error{}
	for tenant, n := range counts {
		a := k.account(tenant)
		if wait := take(a.messages, k.now(), n); wait > 0 {
			late[tenant] = tooFast("messagesPerSecond", "schedule", a.limits.MessagesPerSecond, wait)
		}
	}
	met := map[postdate.Route]bool{} // channels that messages of this call are the first for
	for i := range all {
		m := &all[i]
		if results[i].Err = late[m.Tenant]; results[i].Err != nil {
			continue
		}
		a := k.accounts[m.Tenant]
		usage, uses := k.counts.UsageOf(m.Tenant, m.Channel)
		more := store.Usage{Messages: 1, Bytes: int64(len(m.Payload))}
		if !uses && !met[m.Route()] {
			more.Channels = 1
		}
		if results[i].Err = a.limits.fits(sum(usage, a.held), more); results[i].Err != nil {
			continue
		}
		met[m.Route()] = true
		a.held, held[m.Tenant] = sum(a.held, more), sum(held[m.Tenant], more)
	}
	return held
}

// release gives back what was held: what went through is in the store's counts by now.
func (k *Keeper) release(held map[string]store.Usage) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for tenant, h := range held {
		a := k.accounts[tenant]
		a.held = sum(a.held, store.Usage{Messages: -h.Messages, Bytes: -h.Bytes, Channels: -h.Channels})
	}
}

func sum(a, b store.Usage) store.Usage {
	return store.Usage{Messages: a.Messages + b.Messages, Bytes: a.Bytes + b.Bytes, Channels: a.Channels + b.Channels}
}
