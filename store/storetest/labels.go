package storetest

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// labelling checks lists of what has a label.
func labelling() []check {
	return []check{
		{"a label selects exactly the messages that have it", labelsExact},
		{"what has a label comes in the order of any list, on pages of every size", labelsInOrder},
		{"a label, the other filters and a range select together", labelsFiltered},
		{"a tenant sees what has the label among its own messages only", func(x *trial) {
			mine := x.add(t0, labelled("a"))
			theirs := x.messageIn(home, "tenant-b", t0, labelled("a", "b"))
			x.insert(theirs)
			x.wantLabelled("a", mine)
			x.wantLabelled("b")
			x.wantList(store.ListQuery{Tenant: "tenant-b", Label: "a", Limit: 1}, []postdate.Message{theirs})
			x.wantList(store.ListQuery{Tenant: "tenant", Label: "a", Limit: 1}, nil)
		}},
		{"an insert that changes nothing labels nothing", func(x *trial) {
			m := x.add(t0, labelled("a"))
			again := x.store.Insert(x.ctx, []postdate.Message{m, changed(m, labelled("b"))})
			x.wantKind(again[1].Err, postdate.KindExists)
			x.wantLabelled("a", m)
			x.wantLabelled("b")
		}},
		{"a message has only the labels of what replaced it last, at its time", labelsReplaced},
		{"a replace that is refused labels nothing", func(x *trial) {
			m := x.add(t0, labelled("a"))
			_, err := Replace(x.ctx, x.store, changed(m, labelled("b")), x.first[m.Key]+1)
			x.wantKind(err, postdate.KindConflict)
			x.wantLabelled("a", m)
			x.wantLabelled("b")
		}},
		{"a message has its labels however it ends, until it is forgotten or expires", labelsEnd},
		{"an id that is used again has the labels of its new message", func(x *trial) {
			m := x.add(t0, labelled("a", "b"))
			x.wantCancelled(m)
			x.forget(m)
			next := changed(m, labelled("b", "c"))
			x.insert(next)
			x.wantLabelled("a")
			x.wantLabelled("b", next)
			x.wantLabelled("c", next)
		}},
		{"occurrences of a series that are messages of their own have the labels that it had", labelsOfSeries},
		{"records are whole, as Get gives them", func(x *trial) {
			m := x.add(t0, labelled("a", "b"), withPayload(9000))
			x.settle(x.retryAt(m, x.own(home), t0+50))
			for _, r := range x.list(store.ListQuery{Tenant: tenant, Label: "b", Limit: 1}, nil) {
				x.wantRecord(r, x.get(m.Key))
			}
			x.wantLabelled("b", m)
		}},
		{"after random changes each label selects what a filter over everything does", labelsRandom},
	}
}

func labelled(labels ...string) edit { return func(m *postdate.Message) { m.Labels = labels } }

// wantLabelled expects that a label selects these messages, in the order of a list.
func (x *trial) wantLabelled(label string, want ...postdate.Message) {
	x.Helper()
	inListOrder(want)
	for _, limit := range []int{1, plenty} {
		x.wantList(store.ListQuery{Tenant: tenant, Label: label, Limit: limit}, want)
	}
}

func labelsExact(x *trial) {
	longest := strings.Repeat("~", postdate.LabelBytesMax)
	names := []string{"a", "ab", "a.", "a.b", "aXb", "A", "~", "a~", "-", longest, longest[1:]}
	having := map[string][]postdate.Message{}
	for i, name := range names {
		one := x.messageIn(i%4, tenant, t0+postdate.Time(i%3), labelled(name))
		two := x.messageIn(i%4, tenant, t0+postdate.Time(i%3), labelled(names[(i+3)%len(names)], name))
		x.insert(one, two)
		having[name] = append(having[name], one, two)
		having[two.Labels[0]] = append(having[two.Labels[0]], two)
	}
	x.add(t0) // it has none
	for _, name := range names {
		x.wantLabelled(name, having[name]...)
	}
	for _, none := range []string{"b", "a.b.", "~~", "aa", longest[2:], tenant, orders} {
		x.wantLabelled(none)
	}
}

func labelsInOrder(x *trial) {
	var all, want []postdate.Message
	for i := range 60 {
		m := x.messageIn(i*5%x.store.Buckets(), tenant, t0+postdate.Time(i*7%4))
		if i%3 > 0 {
			m.Labels = []string{"z", "a"}[:i%3]
			want = append(want, m)
		}
		all = append(all, m)
	}
	x.insert(all...)
	inListOrder(want)
	for _, limit := range []int{1, 2, 3, 39, 40, 41} {
		x.wantList(store.ListQuery{Tenant: tenant, Label: "z", Limit: limit}, want)
	}
	for i := range want {
		r := fresh(want[i])
		after := listPosition(&r)
		x.wantList(store.ListQuery{Tenant: tenant, Label: "z", After: &after, Limit: plenty}, want[i+1:])
		x.wantList(store.ListQuery{Tenant: tenant, Label: "z", After: &after, To: t0 + 1, Limit: plenty},
			until(want[i+1:], t0+1))
	}
}

// until is what is before a time.
func until(all []postdate.Message, to postdate.Time) (before []postdate.Message) {
	for _, m := range all {
		if m.ExecutionTime < to {
			before = append(before, m)
		}
	}
	return before
}

func labelsFiltered(x *trial) {
	one, two, low := x.add(t0, labelled("a")), x.add(t0+1, labelled("b", "a")),
		x.add(t0+2, labelled("a"), onRoute("@default!low kafka:orders"))
	other := x.message(t0+3, labelled("a"))
	other.Key = bucket.KeyOf(tenant, "other", x.store.Buckets())
	x.insert(other)
	x.add(t0+1, labelled("b"))
	x.add(t0 + 1)
	x.wantCancelled(two)
	all := []postdate.Message{one, two, low, other}
	want := func(q store.ListQuery, want ...postdate.Message) {
		x.Helper()
		q.Tenant, q.Label = tenant, "a"
		for q.Limit = range 3 {
			q.Limit++
			x.wantList(q, want)
		}
	}
	want(store.ListQuery{}, all...)
	want(store.ListQuery{Status: postdate.Pending}, one, low, other)
	want(store.ListQuery{Status: postdate.Cancelled}, two)
	want(store.ListQuery{Status: postdate.Delivered})
	want(store.ListQuery{Channel: "kafka:orders"}, low)
	want(store.ListQuery{Channel: orders, Status: postdate.Pending}, one, other)
	want(store.ListQuery{IDPrefix: "m-"}, one, two, low)
	want(store.ListQuery{IDPrefix: "o"}, other)
	want(store.ListQuery{IDPrefix: "o", Status: postdate.Cancelled})
	want(store.ListQuery{From: t0 + 1}, two, low, other)
	want(store.ListQuery{To: t0 + 2}, one, two)
	want(store.ListQuery{From: t0 + 1, To: t0 + 3}, two, low)
	want(store.ListQuery{From: t0 + 1, To: t0 + 1})
}

func labelsReplaced(x *trial) {
	m := x.add(t0, labelled("a", "b"))
	next := changed(m, labelled("b", "c"))
	x.replace(next)
	x.wantLabelled("a")
	x.wantLabelled("b", next)
	x.wantLabelled("c", next)
	next.ExecutionTime += 5
	x.replace(next)
	x.wantLabelled("b", next)
	x.wantList(store.ListQuery{Tenant: tenant, Label: "b", To: t0 + 5, Limit: 1}, nil)
	bare := changed(next, labelled())
	x.replace(bare)
	x.wantLabelled("b")
	x.wantLabelled("c")
	again := changed(bare, labelled("a"))
	x.replace(again)
	x.wantLabelled("a", again)
}

func labelsEnd(x *trial) {
	delivered, failed, cancelled, late := x.add(t0, labelled("a")), x.add(t0, labelled("b", "a")),
		x.add(t0+9, labelled("a")), x.add(t0, labelled("a"))
	token := x.own(home)
	x.claim(everything(home, token, t0))
	x.settledAt(token, store.SettleDelivered, map[*postdate.Message]postdate.Time{&delivered: t0 + 10, &late: t0 + 100})
	x.settledAt(token, store.SettleFailed, map[*postdate.Message]postdate.Time{&failed: t0 + 10})
	x.wantCancelled(cancelled)
	x.wantLabelled("a", delivered, failed, cancelled, late)
	x.forget(delivered)
	x.wantLabelled("a", failed, cancelled, late)
	x.expire(t0+50, 0, plenty, 2)
	x.wantLabelled("a", late)
	x.wantLabelled("b")
	x.expire(t0+101, 0, plenty, 1)
	x.wantLabelled("a")
}

func labelsOfSeries(x *trial) {
	m := x.addSeries(t0, labelled("a", "b"))
	token := x.own(home)
	x.claim(everything(home, token, begins(m, 1)))
	x.settle(x.goesOn(m, token, store.SettleRetry, 1))
	retried, extra := x.get(alone(m, 1).Key).Message, x.trigger(m, t0-7)
	x.wantLabelled("a", extra, m, retried)
	next := x.changes(m, 5, labelled("b", "c"))
	x.wantLabelled("a", extra, retried)
	x.wantLabelled("b", extra, next, retried)
	later := x.trigger(next, t0-9)
	x.wantLabelled("c", later, next)
	x.wantCancelled(next)
	x.wantLabelled("c", later, next)
	x.forget(next)
	x.wantLabelled("c", later)
	x.wantLabelled("b", later, extra, retried)
	x.first[retried.Key] = x.get(retried.Key).Version
	x.settle(x.settlement(retried, token, store.SettleDelivered))
	x.forget(retried)
	x.wantLabelled("a", extra)
}

var randomLabels = []string{"a", "b", "ab", "a+"}

func labelsRandom(x *trial) {
	r := rand.New(rand.NewPCG(7, 8))
	tokens := map[int]uint64{}
	for b := range x.store.Buckets() {
		tokens[b] = x.own(b)
	}
	var all []postdate.Message
	for range 40 {
		for range 1 + r.IntN(5) {
			b, at := r.IntN(x.store.Buckets()), t0+postdate.Time(r.IntN(5))
			edits := []edit{randomlyLabelled(r)}
			if r.IntN(3) == 0 {
				edits = append(edits, recurring)
			}
			m := x.messageIn(b, tenant, at, edits...)
			x.insert(m)
			all = append(all, m)
		}
		for range 4 {
			m := all[r.IntN(len(all))]
			x.changeLabelled(r, m, tokens[m.Bucket])
		}
		if r.IntN(4) == 0 {
			_, err := x.store.Expire(x.ctx, store.Expiry{Buckets: x.everywhere(), SettledBefore: postdate.LatestTime,
				Limit: 1 + r.IntN(3)})
			if err != nil {
				x.Fatalf("Expire: %v", err)
			}
		}
	}
	everything := x.list(store.ListQuery{Tenant: tenant, Limit: plenty}, nil)
	for _, label := range randomLabels {
		var want []string
		for _, rec := range everything {
			if slices.Contains(rec.Labels, label) {
				want = append(want, rec.Tenant+"/"+rec.ScheduleID)
			}
		}
		for _, limit := range []int{1, 7, plenty} {
			got := idsOf(x.list(store.ListQuery{Tenant: tenant, Label: label, Limit: limit}, nil))
			if !slices.Equal(got, want) || len(want) == 0 {
				x.broken("by %d the label %s selects %v, want %v", limit, label, got, want)
			}
		}
	}
}

func randomlyLabelled(r *rand.Rand) edit {
	i := r.IntN(len(randomLabels))
	return labelled(randomLabels[i:][:r.IntN(len(randomLabels)-i+1)]...)
}

// changeLabelled changes the message under m's key in some way that is open to it.
func (x *trial) changeLabelled(r *rand.Rand, m postdate.Message, token uint64) {
	x.Helper()
	rec, err := x.store.Get(x.ctx, m.Key)
	if err != nil {
		return // it is gone
	}
	switch r.IntN(6) {
	case 0, 1:
		next := changed(rec.Message, randomlyLabelled(r))
		next.ExecutionTime += postdate.Time(r.IntN(2))
		_, _ = Replace(x.ctx, x.store, next, rec.Version)
	case 2:
		x.cancel(m, t0+7)
	case 3:
		_ = x.store.Forget(x.ctx, m.Key, rec.Version)
	case 4:
		_ = x.store.Trigger(x.ctx, m.Key, rec.Version, t0+postdate.Time(r.IntN(9)))
	case 5:
		s := x.settlementOf(rec, token, []store.Settling{store.SettleDelivered, store.SettleRetry}[r.IntN(2)])
		if rec.Occurrence != 0 {
			at := rec.Occurrence + every
			s.Occurrence, s.Next = rec.Occurrence, store.Next{Occurrence: at, AttemptTime: at}
		}
		x.settle(s)
	}
}

func labelsSurvive(x *trial) {
	m, old := x.add(t0, labelled("a", "b")), x.add(t0+1, labelled("a"))
	x.wantCancelled(old)
	x.crash()
	x.wantLabelled("a", m, old)
	next := changed(m, labelled("b", "c"))
	x.replace(next)
	x.expire(postdate.LatestTime, 0, plenty, 1)
	x.crash()
	x.wantLabelled("a")
	x.wantLabelled("b", next)
	x.wantLabelled("c", next)
}
