package quota

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
	"github.com/postdate/postdate/store"
)

// Keeper holds all tenants to their limits, and is a prometheus.Collector that shows these. It is safe for
// concurrent use.
type Keeper struct {
	defaults Limits
	counts   counts
	nodes    func() int // how many nodes share the rates, this one included
	now      func() time.Time

	anybody atomic.Bool // has limits
	refused *prometheus.CounterVec
	names   series.Tenants

	mu       sync.Mutex // guards what follows
	settings map[string]store.TenantSettings
	accounts map[string]*account
}

// counts is what the keeper needs of a store.
type counts interface {
	Usages(ctx context.Context) ([]store.TenantUsage, error)
	UsageOf(tenant string, channel postdate.Channel) (usage store.Usage, uses bool)
}

// NewKeeper returns a keeper that gives tenants without settings the defaults.
func NewKeeper(defaults Limits, c counts, nodes func() int, now func() time.Time) *Keeper {
	k := &Keeper{defaults: defaults, counts: c, nodes: nodes, now: now, accounts: map[string]*account{},
		refused: newRefused()}
	k.names.Name(postdate.DefaultTenant)
	k.Set(nil)
	return k
}

// Set takes in what operators set for tenants. It forgets tenants that asked for nothing of late, so it
// is to be called again and again: then memory depends on those that ask.
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
		if a.adopt(k.limitsOf(tenant), k.nodeCount()); a.idle(k.now()) {
			delete(k.accounts, tenant)
		}
	}
	k.anybody.Store(anybody)
}

// LimitsWith returns the limits of a tenant for which s is set.
func (k *Keeper) LimitsWith(s store.TenantSettings) Limits { return k.defaults.With(s) }

// LimitsOf returns a tenant's limits.
func (k *Keeper) LimitsOf(tenant string) Limits {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.limitsOf(tenant)
}

func (k *Keeper) limitsOf(tenant string) Limits { return k.defaults.With(k.settings[tenant]) }

func (k *Keeper) nodeCount() int { return max(k.nodes(), 1) }

// account returns that of a tenant; nil: it has no limits.
func (k *Keeper) account(tenant string) *account {
	a := k.accounts[tenant]
	if l := k.limitsOf(tenant); a == nil && !l.none() {
		a = &account{}
		a.adopt(l, k.nodeCount())
		k.accounts[tenant] = a
	}
	return a
}

// Request takes one request of a tenant. schedules says that it brings messages: then it also needs
// some rate left for these, which are taken when they come to the store.
func (k *Keeper) Request(tenant string, schedules bool) error {
	if !k.anybody.Load() {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	if a == nil {
		return nil
	}
	var refused error
	if wait := waitFor(a.messages, k.now()); schedules && wait > 0 {
		refused = tooFast("messagesPerSecond", "schedule", a.limits.MessagesPerSecond, wait)
	} else if wait := take(a.requests, k.now(), 1); wait > 0 {
		refused = tooFast("requestsPerSecond", "send", a.limits.RequestsPerSecond, wait)
	}
	k.countRefused(tenant, refused, 1)
	return refused
}

// Pace is what a tenant has of a rate on this node.
type Pace struct {
	Burst  int           // the most that it can have
	Window time.Duration // in which as much comes
	Left   int           // what it has now
	Full   time.Duration // until it has the most
}

// Paces is what a tenant has of its rates; nil: it has no such limit.
func (k *Keeper) Paces(tenant string) (requests, messages *Pace) {
	if !k.anybody.Load() {
		return nil, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	if a == nil {
		return nil, nil
	}
	return paceOf(a.requests, k.now()), paceOf(a.messages, k.now())
}

func paceOf(l *rate.Limiter, now time.Time) *Pace {
	if l == nil {
		return nil
	}
	left, burst := l.TokensAt(now), float64(l.Burst())
	return &Pace{Burst: l.Burst(), Window: timeFor(l, burst), Left: max(int(left), 0), Full: timeFor(l, burst-left)}
}

// takeRate takes n messages of a tenant's rate.
func (k *Keeper) takeRate(tenant string, n int) error {
	err := k.rate(tenant, n)
	k.countRefused(tenant, err, n)
	return err
}

// rate is takeRate that counts nothing. If n is 0, it says whether anything is left.
func (k *Keeper) rate(tenant string, n int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(tenant)
	if a == nil {
		return nil
	}
	if wait := take(a.messages, k.now(), n); wait > 0 {
		return tooFast("messagesPerSecond", "schedule", a.limits.MessagesPerSecond, wait)
	}
	return nil
}
