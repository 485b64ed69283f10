package store

import (
	"sync"

	"github.com/spaolacci/murmur3"

	"github.com/postdate/postdate"
)

// Slot is one of 65,536 groups of channels. What is pending is counted by tenant and slot, which
// bounds what counting takes, however many channels there are. Two of n channels share a slot,
// and count as one, with a probability of about n²/131,072.
type Slot uint16

// SlotOf is a channel's slot. A store has a random seed of its own, so that nobody can choose
// channels that share a slot.
func SlotOf(channel postdate.Channel, seed uint32) Slot {
	return Slot(murmur3.Sum64WithSeed([]byte(channel), seed))
}

// Change is by how much a slot of a tenant changes.
type Change struct {
	Tenant          string
	Slot            Slot
	Messages, Bytes int64
}

// Nothing says whether it changes nothing.
func (c *Change) Nothing() bool { return c.Messages == 0 && c.Bytes == 0 }

// AddChange adds a change to others: at most one of a slot is in the list. It takes the time of
// a walk through the list.
func AddChange(changes []Change, c Change) []Change {
	for i := range changes {
		if o := &changes[i]; o.Slot == c.Slot && o.Tenant == c.Tenant {
			o.Messages += c.Messages
			o.Bytes += c.Bytes
			return changes
		}
	}
	return append(changes, c)
}

// Tally counts in memory what is pending. It is safe for concurrent use.
type Tally struct {
	mu      sync.RWMutex
	tenants map[string]*tenantTally
}

type tenantTally struct {
	Usage
	slots map[Slot]Usage // without channels; none is zero
}

// NewTally makes a tally in which nothing is pending.
func NewTally() *Tally { return &Tally{tenants: map[string]*tenantTally{}} }

// Add adds changes. Sums may be below zero for a while, if what comes is added after what goes.
func (t *Tally) Add(changes ...Change) {
	if len(changes) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range changes {
		t.add(&changes[i])
	}
}

func (t *Tally) add(c *Change) {
	if c.Nothing() {
		return
	}
	tenant := t.tenants[c.Tenant]
	if tenant == nil {
		tenant = &tenantTally{slots: map[Slot]Usage{}}
		t.tenants[c.Tenant] = tenant
	}
	was := tenant.slots[c.Slot]
	is := Usage{Messages: was.Messages + c.Messages, Bytes: was.Bytes + c.Bytes}
	tenant.Messages += c.Messages
	tenant.Bytes += c.Bytes
	switch {
	case was.Messages <= 0 && is.Messages > 0:
		tenant.Channels++
	case was.Messages > 0 && is.Messages <= 0:
		tenant.Channels--
	}
	if tenant.slots[c.Slot] = is; is == (Usage{}) {
		delete(tenant.slots, c.Slot)
	}
	if len(tenant.slots) == 0 {
		delete(t.tenants, c.Tenant)
	}
}

// Take empties the tally, and returns what was in it.
func (t *Tally) Take() (changes []Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, tenant := range t.tenants {
		for slot, u := range tenant.slots {
			changes = append(changes, Change{name, slot, u.Messages, u.Bytes})
		}
	}
	clear(t.tenants)
	return changes
}

// Of is what a tenant has pending, and whether something of the slot is.
func (t *Tally) Of(tenant string, slot Slot) (usage Usage, uses bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found := t.tenants[tenant]
	if found == nil {
		return Usage{}, false
	}
	return found.shown(), found.slots[slot].Messages > 0
}

// All lists the tenants that have something pending.
func (t *Tally) All() (all []TenantUsage) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for name, tenant := range t.tenants {
		if tenant.Messages > 0 {
			all = append(all, TenantUsage{name, tenant.shown()})
		}
	}
	return all
}

// shown is a usage without the sums below zero.
func (t *tenantTally) shown() Usage {
	return Usage{Messages: max(t.Messages, 0), Bytes: max(t.Bytes, 0), Channels: t.Channels}
}
