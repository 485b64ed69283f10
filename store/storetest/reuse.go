package storetest

import (
	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// reusing checks an id that is used again after its message expired: what was meant for the old
// message does not reach the new one.
func reusing() []check {
	return []check{
		{"a settlement that is repeated touches no new message with the id", reuseSettle},
		{"a settlement of a later version touches none either", reuseReplaced},
		{"nor does one that comes among others, of messages that are there", reuseMany},
		{"a replace of an earlier message's version is KindConflict and changes nothing", reuseReplace},
		{"a cancel goes by the id: it takes back the message that is there", func(x *trial) {
			m := x.add(t0)
			x.wantCancelled(m)
			again := x.again(m, false)
			x.wantCancelled(again)
		}},
	}
}

// inEveryWay returns a settlement of m's first version for each of ways, delivered first.
func (x *trial) inEveryWay(m postdate.Message, token uint64) []store.Settlement {
	var all []store.Settlement
	for _, how := range ways {
		s := x.settlement(m, token, how)
		s.AttemptTime, s.PossibleDuplicate = t0+77, true
		all = append(all, s)
	}
	return all
}

// again lets what is final expire, and inserts m's id again: with the same request, or with
// other content.
func (x *trial) again(m postdate.Message, same bool) postdate.Message {
	x.Helper()
	if _, err := x.store.Expire(x.ctx, store.Expiry{Buckets: x.everywhere(), SettledBefore: postdate.LatestTime,
		Limit: plenty}); err != nil {
		x.Fatalf("Expire: %v", err)
	}
	x.wantGone(m)
	if !same {
		m = changed(m)
	}
	x.insert(m)
	return m
}

func reuseSettle(x *trial) {
	token := x.own(home)
	for _, same := range []bool{true, false} {
		for first := range ways {
			m := x.add(t0)
			x.claim(everything(home, token, t0))
			late := x.inEveryWay(m, token)
			x.settle(late[first])
			x.settle(late[0]) // delivered after all
			again := x.again(m, same)
			x.settle(late[first])
			x.wantRecord(x.get(m.Key), fresh(again))
			for _, s := range late {
				x.settle(s)
				x.wantRecord(x.get(m.Key), fresh(again))
			}
			x.wantDue(everything(home, token, t0), again)
			x.settle(x.settlement(again, token, store.SettleDelivered))
			x.wantStatus(again, postdate.Delivered)
		}
	}
}

func reuseReplaced(x *trial) {
	m := x.add(t0 + 10)
	token := x.own(home)
	before := x.inEveryWay(m, token)
	for range 3 {
		x.replace(changed(m))
	}
	x.wantCancelled(m)
	again := x.again(m, true)
	x.replace(again)
	want := x.get(m.Key)
	for _, s := range before {
		for range 4 {
			x.settle(s)
			s.Version++
		}
	}
	x.wantRecord(x.get(m.Key), want)
}

// reuseMany settles many messages in one call, so that a store that settles them together has
// to keep them apart.
func reuseMany(x *trial) {
	token := x.own(home)
	for _, how := range ways {
		old := x.add(t0)
		late := x.settlement(old, token, how)
		late.AttemptTime = t0 + 77
		x.wantDue(everything(home, token, t0), old)
		x.settle(x.settlement(old, token, store.SettleDelivered))
		again := x.again(old, true)
		all := []store.Settlement{late}
		var others []postdate.Message
		for range 20 {
			m := x.add(t0)
			s := x.settlement(m, token, how)
			s.AttemptTime = t0 + 77
			all, others = append(all, s), append(others, m)
		}
		x.settle(all...)
		x.wantRecord(x.get(again.Key), fresh(again))
		for i, m := range others {
			want := fresh(m)
			want.Version = all[i+1].Version
			want.State = all[i+1].State(want.State)
			x.wantRecord(x.get(m.Key), want)
		}
		x.settle(x.settlement(again, token, store.SettleDelivered))
	}
}

func reuseReplace(x *trial) {
	for _, same := range []bool{true, false} {
		m := x.add(t0)
		version := x.first[m.Key]
		x.wantCancelled(m)
		again := x.again(m, same)
		for range 2 {
			_, err := Replace(x.ctx, x.store, changed(again), version)
			x.wantKind(err, postdate.KindConflict)
			version++
		}
		x.wantRecord(x.get(m.Key), fresh(again))
	}
}
