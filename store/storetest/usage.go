package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// usages checks the counts of what is pending. After every call they are compared with a list
// of all messages.
func usages() []check {
	all := []check{
		{"in a new store nothing is pending", func(x *trial) { x.wantUsage(tenant, store.Usage{}) }},
		{"what is inserted counts once", usageInserts},
		{"a replace counts in place of what it replaces", usageReplaces},
		{"what is cancelled no longer counts", usageCancels},
		{"what is settled for ever no longer counts, and what is tried again does", usageSettles},
		{"a settlement that changes nothing changes no count", usageStaleSettles},
		{"what is unparked counts as before", func(x *trial) {
			token := x.own(home)
			m := x.add(t0)
			x.park(token, m)
			x.unpark(token, orders, t0+5, plenty)
			x.wantUsage(tenant, usageOf(m))
			x.settle(x.settlement(m, token, store.SettleDelivered))
			x.wantUsage(tenant, store.Usage{})
		}},
		{"what expires was not counted, and an id that is used again is", func(x *trial) {
			m := x.add(t0)
			x.wantCancelled(m)
			x.expire(postdate.LatestTime, 0, plenty, 1)
			x.wantUsage(tenant, store.Usage{})
			x.insert(m)
			x.wantUsage(tenant, usageOf(m))
		}},
		{"each tenant's messages count for itself", usageTenants},
		{"each of a tenant's channels counts once", usageChannels},
		{"many at once are all counted", func(x *trial) {
			var messages []postdate.Message
			for i := range 600 {
				messages = append(messages, x.messageIn(i%4, tenant, t0, withPayload(i)))
			}
			x.insert(messages...)
			x.wantUsage(tenant, usageOf(messages...))
			x.store.Cancel(x.ctx, keysOf(messages), t0)
			x.wantUsage(tenant, store.Usage{})
		}},
	}
	for seed := range uint64(3) {
		all = append(all, check{fmt.Sprintf("after whatever calls the counts are those of a list, seed %d", seed),
			func(x *trial) { usageOfAnything(x, rand.New(rand.NewPCG(seed, 0))) }})
	}
	return all
}

// usageOf is what messages take that are pending.
func usageOf(messages ...postdate.Message) (u store.Usage) {
	channels := map[postdate.Channel]bool{}
	for _, m := range messages {
		u.Messages++
		u.Bytes += int64(len(m.Payload))
		channels[m.Channel] = true
	}
	u.Channels = int64(len(channels))
	return u
}

func keysOf(messages []postdate.Message) (keys []postdate.Key) {
	for _, m := range messages {
		keys = append(keys, m.Key)
	}
	return keys
}

// shareUsage lets a store that shares its counts with other nodes now and then do so at once:
// it must be exact after that.
func (x *trial) shareUsage() {
	x.Helper()
	s, shares := x.store.(interface {
		ShareUsage(ctx context.Context) error
	})
	if !shares {
		return
	}
	if err := s.ShareUsage(x.ctx); err != nil {
		x.Fatalf("ShareUsage: %v", err)
	}
}

// wantUsage expects these counts of a tenant, from every method.
func (x *trial) wantUsage(tenant string, want store.Usage) {
	x.Helper()
	x.shareUsage()
	if got, _ := x.store.UsageOf(tenant, orders); got != want {
		x.Errorf("of %s %+v is pending, want %+v", tenant, got, want)
	}
	all, err := x.store.Usages(x.ctx)
	if err != nil {
		x.Fatalf("Usages: %v", err)
	}
	i := slices.IndexFunc(all, func(u store.TenantUsage) bool { return u.Tenant == tenant })
	switch {
	case i < 0 && want != store.Usage{}:
		x.Errorf("%s is not among the tenants that have something pending: %+v", tenant, all)
	case i >= 0 && (all[i].Usage != want || want == store.Usage{}):
		x.Errorf("of %s %+v is listed as pending, want %+v", tenant, all[i], want)
	}
}

// listed is what a tenant has pending by a list.
func (x *trial) listed(tenant string) (all []postdate.Message) {
	x.Helper()
	q := store.ListQuery{Tenant: tenant, Status: postdate.Pending, Limit: plenty}
	for range pageMax {
		page, err := x.store.List(x.ctx, q)
		if err != nil {
			x.Fatalf("List: %v", err)
		}
		for _, r := range page.Records {
			all = append(all, r.Message)
		}
		if q.After = page.Next; q.After == nil {
			return all
		}
	}
	x.Fatalf("a list did not end after %d pages", pageMax)
	return nil
}

func (x *trial) wantUses(tenant string, channel postdate.Channel, want bool) {
	x.Helper()
	if _, uses := x.store.UsageOf(tenant, channel); uses != want {
		x.Errorf("that %s uses %s is %t, want %t", tenant, channel, uses, want)
	}
}

func usageInserts(x *trial) {
	m := x.message(t0, withPayload(70))
	x.wantUses(tenant, orders, false)
	x.insert(m)
	x.wantUsage(tenant, usageOf(m))
	x.wantUses(tenant, orders, true)
	x.store.Insert(x.ctx, []postdate.Message{m})          // repeated
	x.store.Insert(x.ctx, []postdate.Message{changed(m)}) // refused: it exists
	x.wantUsage(tenant, usageOf(m))
	twice, empty := x.message(t0), x.message(t0, withPayload(0))
	x.store.Insert(x.ctx, []postdate.Message{twice, changed(twice), m, twice, empty})
	x.wantUsage(tenant, usageOf(m, twice, empty))
}

func usageReplaces(x *trial) {
	m, stays := x.add(t0, withPayload(100)), x.add(t0)
	for _, next := range []postdate.Message{
		changed(m, withPayload(5000)), changed(m, withPayload(0)), changed(m, withPayload(9), onRoute("kafka:other")),
	} {
		rec := x.replace(next)
		x.wantUsage(tenant, usageOf(next, stays))
		_, err := Replace(x.ctx, x.store, changed(m, withPayload(1)), rec.Version+7)
		x.wantKind(err, postdate.KindConflict)
		x.wantUsage(tenant, usageOf(next, stays))
	}
	x.wantUses(tenant, "kafka:other", true)
	x.wantCancelled(m)
	x.wantUsage(tenant, usageOf(stays))
	x.wantUses(tenant, "kafka:other", false)
}

func usageCancels(x *trial) {
	a, b, claimed := x.add(t0+10), x.add(t0+10), x.add(t0)
	x.wantCancelled(a)
	x.wantUsage(tenant, usageOf(b, claimed))
	x.cancel(a, t0+8) // repeated
	x.claim(everything(home, x.own(home), t0))
	x.wantTooLate(claimed)
	x.wantUsage(tenant, usageOf(b, claimed))
	x.store.Cancel(x.ctx, keysOf([]postdate.Message{b, a, b, claimed, x.message(t0)}), t0+9)
	x.wantUsage(tenant, usageOf(claimed))
}

func usageSettles(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		m, other := x.add(t0, withPayload(50)), x.add(t0, withPayload(6000))
		x.claim(everything(home, token, t0))
		s := x.settlement(m, token, how)
		s.AttemptTime = t0 + 9
		for range 3 { // and repeated
			x.settle(s)
			want := usageOf(other)
			if x.get(m.Key).Status == postdate.Pending {
				want = usageOf(m, other)
			}
			x.wantUsage(tenant, want)
		}
		x.settle(x.settlement(m, token, store.SettleDelivered), x.settlement(other, token, store.SettleFailed))
		x.wantUsage(tenant, store.Usage{})
	}
}

func usageStaleSettles(x *trial) {
	stale := x.own(home)
	token := x.own(home)
	m := x.add(t0)
	for _, how := range ways[1:] {
		x.settle(x.settlement(m, stale, how))
		x.wantUsage(tenant, usageOf(m))
	}
	next := changed(m, withPayload(77))
	x.replace(next)
	x.settle(x.settlement(m, token, store.SettleDelivered)) // of the version before
	x.wantUsage(tenant, usageOf(next))
	gone := x.message(t0)
	x.settle(x.settlement(gone, token, store.SettleDelivered), x.settlement(gone, token, store.SettleFailed))
	x.wantUsage(tenant, usageOf(next))
}

func usageTenants(x *trial) {
	mine, other := x.add(t0), x.messageIn(abroad, "tenant-b", t0, withPayload(33))
	x.insert(other)
	x.wantUsage(tenant, usageOf(mine))
	x.wantUsage("tenant-b", usageOf(other))
	x.wantUsage("tenant-c", store.Usage{})
	x.wantUses("tenant-b", orders, true)
	x.wantUses("tenant-c", orders, false)
	x.wantCancelled(other)
	x.wantUsage(tenant, usageOf(mine))
	x.wantUsage("tenant-b", store.Usage{})
}

// usageChannels has few enough channels that two share a slot in fewer than one run in 300.
func usageChannels(x *trial) {
	const channels = 20
	var messages []postdate.Message
	for i := range 3 * channels {
		messages = append(messages, x.message(t0, onRoute(postdate.Route(fmt.Sprint("kafka:", i%channels)))))
	}
	messages[0].Priority = postdate.PriorityHigh // and is of the same channel
	x.insert(messages...)
	x.wantUsage(tenant, usageOf(messages...))
	x.store.Cancel(x.ctx, keysOf(messages[:2*channels+5]), t0) // of five channels all, of the others one is left
	x.wantUsage(tenant, usageOf(messages[2*channels+5:]...))
	x.wantUses(tenant, "kafka:4", false)
	x.wantUses(tenant, "kafka:5", true)
}

// usageOfAnything makes calls by chance, on few messages, so that many change nothing.
func usageOfAnything(x *trial, r *rand.Rand) {
	token := x.own(home)
	channels := []postdate.Route{orders, "kafka:b", "@default!low kafka:b", "inbox:c"}
	edits := func() []edit {
		return []edit{withPayload(r.IntN(6000)), onRoute(channels[r.IntN(len(channels))])}
	}
	var messages []postdate.Message
	for i := range 12 {
		of := []string{tenant, "tenant-b"}[i%2]
		m := x.messageIn(home, of, t0+postdate.Time(r.IntN(3)), edits()...)
		if i%3 == 0 {
			recurring(&m)
		}
		messages = append(messages, m)
	}
	for range 80 {
		m := messages[r.IntN(len(messages))]
		rec, err := x.store.Get(x.ctx, m.Key)
		if err == nil && r.IntN(4) > 0 {
			x.first[m.Key] = rec.Version
		}
		switch r.IntN(8) {
		case 0, 1:
			x.store.Insert(x.ctx, []postdate.Message{m, messages[r.IntN(len(messages))], m})
		case 2:
			x.store.Cancel(x.ctx, keysOf([]postdate.Message{m, messages[r.IntN(len(messages))], m}), t0)
		case 3:
			next := changed(m, edits()...)
			if _, err := Replace(x.ctx, x.store, next, rec.Version); err == nil && r.IntN(2) == 0 {
				messages = append(messages, x.messageIn(home, m.Tenant, t0, edits()...))
			}
		case 4, 5:
			x.settle(x.anySettlement(r, m, rec, token))
		case 6:
			x.store.Expire(x.ctx, store.Expiry{
				Buckets: x.everywhere(), SettledBefore: postdate.LatestTime, Limit: r.IntN(4),
			})
		case 7:
			x.triggersOrChanges(r, rec, edits())
		}
		for _, name := range []string{tenant, "tenant-b"} {
			x.wantUsage(name, usageOf(x.listed(name)...))
		}
	}
}

// triggersOrChanges triggers a series, pauses it or changes it, which may be too late, or of another version.
func (x *trial) triggersOrChanges(r *rand.Rand, rec postdate.Record, edits []edit) {
	switch version := rec.Version + uint64(r.IntN(4)/3); {
	case r.IntN(3) > 0:
		_ = x.store.Trigger(x.ctx, rec.Key, version, t0+postdate.Time(r.IntN(4)))
	case r.IntN(2) == 0:
		_ = x.store.Pause(x.ctx, rec.Key, version)
	case rec.Occurrence != 0:
		next := asChanged(rec, rec.Run+1, edits[0])
		rec.Version = version
		_, _ = x.store.Replace(x.ctx, next, rec)
	}
}

// anySettlement is one by chance: of a message, or of an occurrence that m left to be retried.
func (x *trial) anySettlement(r *rand.Rand, m postdate.Message, rec postdate.Record, token uint64) store.Settlement {
	s := x.settlement(rec.Message, token-uint64(r.IntN(2)), ways[r.IntN(len(ways))])
	s.Key = m.Key
	switch retried, _ := x.store.Retried(x.ctx, m.Key); {
	case len(retried) > 0 && r.IntN(2) == 0:
		s.Key, s.ExecutionTime = retried[0], x.get(retried[0]).ExecutionTime
		s.Version = x.get(retried[0]).Version
	case rec.Occurrence != 0 && r.IntN(6) == 0:
		s = x.isOver(rec.Message, s.Token, s.How, rec.Run)
	case rec.Occurrence != 0 && r.IntN(6) > 0:
		s = x.goesOn(rec.Message, s.Token, s.How, rec.Run)
	}
	if s.How == store.SettleRetry {
		s.AttemptTime = t0 + 50
	}
	if s.How == store.SettlePark {
		s.Next = store.Next{}
	}
	return s
}

// usageSurvives is a part of a durable check.
func usageSurvives(x *trial) {
	token := x.own(home)
	var messages []postdate.Message
	for i := range 40 {
		channel := postdate.Route(fmt.Sprint("kafka:", i%4))
		messages = append(messages, x.message(t0, withPayload(200*i), onRoute(channel)))
	}
	x.insert(messages...)
	x.shareUsage()
	x.crash()
	x.shareUsage()
	x.wantUsage(tenant, usageOf(messages...))
	x.settle(x.settlement(messages[0], token, store.SettleDelivered),
		x.settlement(messages[1], token, store.SettlePark))
	x.wantCancelled(messages[2])
	bigger := changed(messages[3], withPayload(9000))
	x.replace(bigger)
	left := append([]postdate.Message{messages[1], bigger}, messages[4:]...)
	x.wantUsage(tenant, usageOf(left...))
	x.crash()
	x.shareUsage()
	x.wantUsage(tenant, usageOf(left...))
	x.settle(x.settlement(messages[1], token, store.SettleDelivered))
	x.wantUsage(tenant, usageOf(left[1:]...))
}
