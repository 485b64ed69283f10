package quota

import (
	"context"
	"fmt"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// messages are the calls of a store that schedule.
type messages struct {
	store.Messages
	keeper *Keeper
}

// Fits reports whether a tenant may have one more message pending, besides what the store has counted.
func (k *Keeper) Fits(tenant string, payloadBytes int) bool {
	is, _ := k.counts.UsageOf(tenant, "")
	return k.LimitsOf(tenant).fits(is, store.Usage{Messages: 1, Bytes: int64(payloadBytes)}) == nil
}

// Hold returns s, whose Insert, Replace and Trigger refuse what goes beyond a tenant's limits: with KindTooLarge
// what never fits, else with KindLimited.
func (k *Keeper) Hold(s store.Messages) store.Messages { return &messages{s, k} }

// repeatsMax bounds how many refused messages of a call are looked up: one that is stored already
// adds nothing, and is answered as it would be without limits.
const repeatsMax = 100

// Insert implements store.Messages. If messages of several tenants do not lie together, it takes
// more than one call of s.
func (m *messages) Insert(ctx context.Context, all []postdate.Message) []store.Inserted {
	if !m.keeper.anybody.Load() {
		return m.Messages.Insert(ctx, all)
	}
	results := make([]store.Inserted, 0, len(all))
	for from, to := 0, 0; from < len(all); from = to {
		for to < len(all) && all[to].Tenant == all[from].Tenant {
			to++
		}
		results = append(results, m.insert(ctx, all[from:to])...)
	}
	return results
}

// insert inserts messages of one tenant.
func (m *messages) insert(ctx context.Context, all []postdate.Message) []store.Inserted {
	tenant, results := all[0].Tenant, make([]store.Inserted, len(all))
	if err := m.keeper.takeRate(tenant, len(all)); err != nil {
		for i := range results {
			results[i].Err = err
		}
		return results
	}
	changes := make([]change, len(all))
	for i := range all {
		changes[i] = change{1, int64(len(all[i].Payload)), all[i].Channel}
	}
	room, refused := m.keeper.reserve(tenant, changes)
	fit := all
	if refused != nil {
		fit = nil
		for i := range all {
			if refused[i] == nil {
				fit = append(fit, all[i])
			}
		}
	}
	inserted := m.insertReserved(ctx, fit, room)
	if refused == nil {
		return inserted
	}
	looked := 0
	for i := range all {
		switch {
		case refused[i] == nil:
			results[i], inserted = inserted[0], inserted[1:]
		case looked == repeatsMax && postdate.KindOf(refused[i]) == postdate.KindTooLarge:
			results[i].Err = errTooMany // it may be stored, so nobody may give it up
		case looked == repeatsMax:
			results[i].Err = refused[i]
		default:
			looked++
			results[i] = m.repeated(ctx, &all[i], refused[i])
		}
	}
	for i := range results {
		m.keeper.countRefused(tenant, results[i].Err, 1)
	}
	return results
}

// insertReserved inserts what fits, and gives back what is reserved for it.
func (m *messages) insertReserved(ctx context.Context, fit []postdate.Message,
	room reserved) (inserted []store.Inserted) {
	defer func() {
		m.keeper.release(room, func(i int) error {
			if inserted == nil {
				return errPanic
			}
			return inserted[i].Err
		})
	}()
	if len(fit) == 0 {
		return nil
	}
	return m.Messages.Insert(ctx, fit)
}

// errTooMany is the answer for those of a call's messages that are too large and that nobody looked up.
var errTooMany = &postdate.Error{Kind: postdate.KindLimited, Limit: "bytesMax", RetryAfter: fullWait,
	Detail: fmt.Sprintf("the payload is larger than all that the tenant may have pending (bytesMax); at most %d such "+
		"messages of a call are looked up, whether they are stored already, and this one was not; surely nothing was "+
		"done: send fewer at a time", repeatsMax)}

// errPanic is how a call ended that has no outcome: it may have been done.
var errPanic = postdate.E(postdate.KindInternal, "the store panicked")

// repeated is the result for a message that was refused, which may be stored already.
func (m *messages) repeated(ctx context.Context, message *postdate.Message, refused error) store.Inserted {
	r, err := m.Get(ctx, message.Key)
	switch {
	case postdate.KindOf(err) == postdate.KindNotFound && err != nil:
		return store.Inserted{Err: refused}
	case err != nil: // it may be stored
		return store.Inserted{Err: err}
	}
	at, repeats := r.Repeats(message.Digest)
	if !repeats {
		return store.Inserted{Err: postdate.E(postdate.KindExists, "the id is taken by other content")}
	}
	return store.Inserted{ExecutionTime: at, Status: r.Status}
}

// Replace implements store.Messages. The message that goes makes room for the one that comes.
func (m *messages) Replace(ctx context.Context, next, was postdate.Record) (present postdate.Record, err error) {
	if !m.keeper.anybody.Load() {
		return m.Messages.Replace(ctx, next, was)
	}
	if err := m.keeper.takeRate(next.Tenant, 1); err != nil {
		return postdate.Record{}, err
	}
	// At first it counts as if nothing went, which saves reading that.
	more := change{0, int64(len(next.Payload)), next.Channel}
	room, refused := m.keeper.reserve(next.Tenant, []change{more})
	if refused != nil {
		reason := refused[0]
		old, err := m.Get(ctx, next.Key)
		switch {
		case err != nil:
			return postdate.Record{}, err
		case !old.Same(&was):
			return postdate.Record{}, postdate.E(postdate.KindConflict, "the message was changed in between")
		case old.Status != postdate.Pending: // the store says that it is too late
			return m.Messages.Replace(ctx, next, was)
		}
		more.bytes = max(more.bytes-int64(len(old.Payload)), 0)
		if old.Channel == next.Channel {
			more.channel = ""
		}
		room, refused = m.keeper.reserve(next.Tenant, []change{more})
		if refused != nil && postdate.KindOf(reason) == postdate.KindTooLarge {
			refused[0] = reason // waiting does not help
		}
	}
	if refused != nil {
		m.keeper.countRefused(next.Tenant, refused[0], 1)
		return postdate.Record{}, refused[0]
	}
	err = errPanic
	defer func() { m.keeper.release(room, func(int) error { return err }) }()
	present, err = m.Messages.Replace(ctx, next, was)
	return present, err
}

// Trigger implements store.Messages. An extra occurrence is one message more.
func (m *messages) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64,
	occurrence postdate.Time) (err error) {
	if !m.keeper.anybody.Load() {
		return m.Messages.Trigger(ctx, series, ifVersion, occurrence)
	}
	if err := m.keeper.takeRate(series.Tenant, 1); err != nil {
		return err
	}
	r, err := m.Get(ctx, series)
	if err != nil {
		return err
	}
	room, refused := m.keeper.reserve(series.Tenant, []change{{1, int64(len(r.Payload)), r.Channel}})
	if refused != nil {
		m.keeper.countRefused(series.Tenant, refused[0], 1)
		return refused[0]
	}
	err = errPanic
	defer func() { m.keeper.release(room, func(int) error { return err }) }()
	err = m.Messages.Trigger(ctx, series, ifVersion, occurrence)
	return err
}

// reserved is what a call has reserved.
type reserved struct {
	tenant  string
	all     reservation
	changes []change // of which all is the sum; none: nothing is reserved
}

// reserve reserves what fits of changes.
func (k *Keeper) reserve(tenant string, changes []change) (r reserved, refused []error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r.tenant = tenant
	a := k.account(tenant)
	if a == nil || !a.limits.bounded() {
		return r, nil
	}
	a.forget(k.now())
	used := func(channel postdate.Channel) (store.Usage, bool) { return k.counts.UsageOf(tenant, channel) }
	r.all, refused = a.reserve(a.limits, used, changes)
	for i, c := range changes {
		if refused == nil || refused[i] == nil {
			if len(r.all.channels) == 0 {
				c.channel = "" // they have no limit
			}
			r.changes = append(r.changes, c)
		}
	}
	return r, refused
}

// release gives back what was reserved. outcome is how the i-th of the changes that fitted went.
func (k *Keeper) release(r reserved, outcome func(i int) error) {
	if r.all.none() {
		return
	}
	var unknown reservation
	for i := range r.changes {
		if err := outcome(i); err != nil && mayBeDone(err) {
			unknown.add(&r.changes[i])
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.accounts[r.tenant].release(k.now(), &r.all, &unknown)
}

// mayBeDone says whether a write that ended with err may have taken effect, or may yet.
func mayBeDone(err error) bool {
	kind := postdate.KindOf(err)
	return kind == postdate.KindUnknown || kind == postdate.KindInternal
}
