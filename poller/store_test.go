package poller

import (
	"maps"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// The calls of a shop's store: they wait for the test, or are answered immediately.

// call is one call of the store: one of its effects.
type call struct {
	number  uint64
	at      time.Duration // since the beginning
	claim   *Claim
	settle  *Settle
	buckets []int
}

var errNoPrimary = postdate.E(postdate.KindUnknown, "no primary")

func claims(c call) bool  { return c.claim != nil }
func settles(c call) bool { return c.settle != nil }

// began notes a call of the store, and checks that it may run next to those under way.
func (s *shop) began(c call) {
	s.t.Helper()
	c.at = s.now.Mono - s.begin.Mono
	if c.claim != nil {
		for _, one := range c.claim.Claims {
			c.buckets = append(c.buckets, one.Bucket)
			if s.horizon[one.Bucket] != postdate.Far {
				s.t.Errorf("a claim of bucket %d begins, and nudges after %d are kept from the machine", one.Bucket, s.horizon[one.Bucket])
			}
		}
	} else {
		for _, one := range c.settle.Settlements {
			c.buckets = append(c.buckets, one.Key.Bucket)
		}
	}
	for _, o := range s.calls {
		for _, b := range c.buckets {
			if o.claim != nil && c.claim != nil && slices.Contains(o.buckets, b) {
				s.t.Errorf("bucket %d is claimed twice at a time", b)
			}
		}
		if o.settle == nil || c.settle == nil {
			continue
		}
		for _, as := range c.settle.Settlements {
			if slices.ContainsFunc(o.settle.Settlements, func(other store.Settlement) bool { return other.Key == as.Key }) {
				s.t.Errorf("%v is settled twice at a time", as.Key)
			}
		}
	}
	s.calls, s.log = append(s.calls, c), append(s.log, c)
}

// begun lists when calls of a kind began, those that touch bucket b or, with -1, all of them,
// and how many buckets each touched.
func (s *shop) begun(claims bool, b int) (at []time.Duration, sizes []int) {
	for _, c := range s.log {
		if (c.claim != nil) == claims && (b < 0 || slices.Contains(c.buckets, b)) {
			at, sizes = append(at, c.at), append(sizes, len(slices.Compact(slices.Sorted(slices.Values(c.buckets)))))
		}
	}
	return at, sizes
}

// answer lets the store answer the first wanted call under way, and reports whether there was
// one.
func (s *shop) answer(wanted func(call) bool) bool {
	i := slices.IndexFunc(s.calls, wanted)
	if i < 0 {
		return false
	}
	s.answerWith(s.calls[i])
	return true
}

// answerAll lets it answer every call, including those that follow.
func (s *shop) answerAll() {
	for s.answer(every) {
	}
}

func (s *shop) answerNumber(n uint64) []Effect {
	return s.answerWith(s.calls[slices.IndexFunc(s.calls, func(c call) bool { return c.number == n })])
}

// answerWith answers this call, and returns what follows.
func (s *shop) answerWith(c call) []Effect {
	s.calls = slices.DeleteFunc(s.calls, func(o call) bool { return o.number == c.number })
	fails := s.broken != nil && slices.ContainsFunc(c.buckets, s.broken)
	if c.claim != nil {
		results := make([]store.ClaimResult, len(c.claim.Claims))
		for i, one := range c.claim.Claims {
			if fails && (!s.alone || s.broken(one.Bucket)) {
				results[i].Err = errNoPrimary
			} else {
				results[i] = s.store.Claim(s.t.Context(), []store.Claim{one})[0]
			}
		}
		if s.lost != nil && s.lost(*c.claim) {
			return s.loseAnswer(*c.claim)
		}
		return s.step(Claimed{c.claim.Call, results})
	}
	if fails {
		return s.step(Settled{c.settle.Call, errNoPrimary})
	}
	s.settle(c.settle.Settlements)
	return s.step(Settled{Call: c.settle.Call})
}

// loseAnswer loses the store's answer to a claim.
func (s *shop) loseAnswer(e Claim) []Effect {
	results := make([]store.ClaimResult, len(e.Claims))
	for i := range results {
		results[i].Err = postdate.E(postdate.KindUnknown, "the answer is lost")
	}
	return s.step(Claimed{e.Call, results})
}

// settle writes settlements one by one, and ends the test at one whose message does not wait any
// more: the contract only says that it changes nothing.
func (s *shop) settle(all []store.Settlement) {
	s.t.Helper()
	for _, as := range all {
		s.row(as.Key)
		if err := s.store.Settle(s.t.Context(), []store.Settlement{as}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// unpark returns what the store answers.
func (s *shop) unpark(u store.Unpark) Unparked {
	moved, early, err := s.store.Unpark(s.t.Context(), u)
	return Unparked{Unpark: u, Moved: moved, Early: early, Err: err}
}

// findParked does the same.
func (s *shop) findParked(buckets []int) ParkedFound {
	found, err := s.store.Parked(s.t.Context(), buckets)
	return ParkedFound{Buckets: buckets, Found: found, Err: err}
}

// owned lists the buckets that have an owner.
func (s *shop) owned() (all []int) {
	for b, record := range s.store.Records {
		if record.Owner != "" {
			all = append(all, b)
		}
	}
	return all
}

// row is a message that waits, as it is stored.
func (s *shop) row(key postdate.Key) *storetest.Row {
	s.t.Helper()
	r := s.store.Rows[key]
	if r == nil || r.Status != postdate.Pending {
		s.t.Fatalf("%v does not wait in the store", key)
	}
	return r
}

// change changes a message that waits.
func (s *shop) change(key postdate.Key, how func(*postdate.Record)) {
	s.t.Helper()
	old := s.row(key)
	next := old.Record
	how(&next)
	s.store.Put("change", old, next, nil)
}

// claimCall is the number of the claims that are under way, for tests with one such call.
func (m *Machine) claimCall() uint64 { return slices.Max(slices.Collect(maps.Keys(m.claimings))) }

// settleCall does the same for settlements.
func (m *Machine) settleCall() uint64 { return slices.Max(slices.Collect(maps.Keys(m.settlings))) }

// seen answers a claim whose scan comes to its end and finds these messages.
func seen(c store.Claim, due ...postdate.Record) store.ClaimResult {
	return store.ClaimResult{Due: due, To: c.To, Ended: c.To, Complete: true, Next: postdate.Far}
}
