package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// This file is what clients do with messages that failed: they list them, redrive some, and purge some. A
// redrive begins another version of the same edition, so the story of the message goes on, and what holds of
// two publishes holds across versions. A purge ends the story, as the end of the retention does.

// redrives draws that, in two of three worlds and wherever there are races. It has luck of its own, so that what
// else happens in a world is the same with it and without.
func (d *draw) redrives(seed uint64) {
	d.r = rand.New(rand.NewPCG(seed, 5))
	if d.p.profile != profileRaces && d.r.IntN(3) == 0 {
		return
	}
	pause := []time.Duration{2 * time.Second, 5 * time.Second, 15 * time.Second}[d.r.IntN(3)]
	for at := 5 * time.Second; at < d.p.length; at += d.between(time.Second, 2*pause) {
		it := item{at: at, kind: opRedrive, a: 1 + d.r.IntN(5), p: float64(d.r.IntN(2))}
		if d.r.IntN(4) == 0 {
			it.kind = opPurge
		}
		if d.r.IntN(3) == 0 { // several calls for the same messages, at once or after a while
			it.b = 1 + d.r.IntN(2)
			it.d = d.upTo([]time.Duration{4 * time.Millisecond, 4 * time.Second}[d.r.IntN(2)])
		}
		d.add(it)
		if d.p.calm() || d.r.IntN(3) > 0 {
			continue
		}
		fault := item{at: at + d.upTo(10*time.Millisecond), a: d.r.IntN(len(d.p.clocks)),
			d: d.upTo(time.Second), p: 0.5, kind: []kind{faultCrash, faultLoseAnswer, faultStray}[d.r.IntN(3)]}
		if fault.kind != faultStray || !d.p.alone() {
			d.add(fault)
		}
	}
}

// failed is a message that a client knows to have failed.
type failed struct {
	store.Versioned
	version uint64 // at which it failed
	story   *story
}

// withFailed plays item number i: a client lists what failed, and redrives or purges some of it. A further call
// for the same messages may do the other thing.
func (w *world) withFailed(p *process, it item, i int) {
	var found []postdate.Record
	p.call(&storeCall{
		name: "list failed", failed: func(error) {},
		effect: []func(){func() {
			for _, tenant := range tenants {
				q := store.ListQuery{Tenant: tenant, Status: postdate.DeliveryFailed, Limit: 1000}
				page, _ := w.store.List(ctx, q)
				found = append(found, page.Records...)
			}
		}},
		answer: func() {
			some := w.someFailed(found, it)
			for n := range 1 + it.b {
				k := it.kind
				if n > 0 && w.r.IntN(4) == 0 {
					k = opRedrive + opPurge - k
				}
				w.after(w.upTo(it.d), func() {
					if p := w.anyProcess(); p != nil {
						w.redriveOrPurge(p, k, some)
					}
				})
			}
			for n, f := range some {
				w.withdrawRedriven(f.story, fmt.Sprint(i, "/", n))
			}
		},
	})
}

// someFailed draws some of the messages that failed. Those that may have arrived and occurrences of series are
// few, so that they often come first.
func (w *world) someFailed(found []postdate.Record, it item) (some []failed) {
	w.r.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	if w.r.IntN(2) == 0 {
		rare := func(r *postdate.Record) int {
			_, occurrence := r.OfSeries()
			return b2i(r.PossibleDuplicate) + b2i(occurrence)
		}
		slices.SortStableFunc(found, func(a, b postdate.Record) int { return cmp.Compare(rare(&b), rare(&a)) })
	}
	for _, r := range found[:min(len(found), it.a)] {
		f := failed{store.Versioned{Key: r.Key}, r.Version, w.history.about[editionOf(&r.Message)]}
		if it.p > 0 {
			f.Versioned.Version = r.Version
		}
		some = append(some, f)
	}
	return some
}

func b2i(b bool) int { return int(b2u(b)) }

// withdrawRedriven cancels or reschedules, soon, one in three of what is redriven.
func (w *world) withdrawRedriven(s *story, edition string) {
	if w.r.IntN(3) > 0 {
		return
	}
	moves := w.r.IntN(3) == 0 && s.series == nil && s.failed == nil // the others can only be cancelled
	it := item{a: s.number, d: w.upTo(2 * time.Second)}
	w.after(w.upTo([]time.Duration{20 * time.Millisecond, 2 * time.Second}[w.r.IntN(2)]), func() {
		switch p := w.anyProcess(); {
		case p == nil:
		case moves:
			w.move(p, s, it, edition)
		default:
			w.cancel(p, s)
		}
	})
}

// redriveOrPurge plays one call for some messages, each of which stands alone. If another message may have the
// id by now, only a call with a version gets through: that tells the two apart.
func (w *world) redriveOrPurge(p *process, k kind, some []failed) {
	at, results := p.m.Board().Passed(p.now()), make([]store.Redriven, len(some))
	var answers []func(outcome)
	for _, f := range some {
		answers = append(answers, w.ask(k, f.story, ""))
		f.story.requests[len(f.story.requests)-1].version = f.version
		w.tell(p.n, "is asked to %s %s at version %d", k, f.Key.ScheduleID, f.Versioned.Version)
	}
	act := func(some []failed) {
		for i, f := range some {
			switch err := f.story.reachable(); {
			case err != nil && f.Versioned.Version == 0:
				results[i].Err = err
			case k == opRedrive:
				results[i] = w.store.Redrive(ctx, []store.Versioned{f.Versioned}, at)[0]
			default:
				results[i].Err = w.store.Purge(ctx, []store.Versioned{f.Versioned})[0]
			}
		}
	}
	p.call(&storeCall{
		name: k.String(), effect: []func(){func() { act(some) }}, half: func() { act(some[:len(some)/2]) },
		answer: func() {
			for i, r := range results {
				switch {
				case r.Err == nil && k == opRedrive:
					p.scheduled(some[i].Key.Bucket, r.State.AttemptTime)
				case r.Err != nil && some[i].story.expired: // the answer is about another message, or about none
					r.Err = errLost
				}
				answers[i](outcomeOf(r.Err))
			}
		},
		failed: func(error) {
			for _, answer := range answers {
				answer(unknown)
			}
		},
	})
}

// Redrive implements store.Messages, for one message.
func (s *Store) Redrive(ctx context.Context, some []store.Versioned, at postdate.Time) []store.Redriven {
	f := some[0]
	old := s.Rows[f.Key]
	s.w.history.redrivenAt = at
	if s.w.bug == bugRedrivenTwice && old != nil && f.Version != 0 && old.Version == f.Version+1 {
		next := old.Record
		next.State = next.State.Redrive(max(at, old.NotBefore()))
		return []store.Redriven{{State: s.Put("redrive", old, next, nil).State}}
	}
	results := s.Mem.Redrive(ctx, some, at)
	if r := s.Rows[f.Key]; r != old && s.w.bug == bugRedriveUnmarks {
		r.PossibleDuplicate = false
	}
	return results
}

// Purge implements store.Messages, for one message.
func (s *Store) Purge(ctx context.Context, some []store.Versioned) []error {
	f := some[0]
	old := s.Rows[f.Key]
	if s.w.bug == bugPurgesRedriven && old != nil && old.Redriven && old.Status == postdate.Pending {
		s.Drop(old)
		s.w.history.purged(f, old)
		return []error{nil}
	}
	results := s.Mem.Purge(ctx, some)
	if results[0] == nil {
		s.w.history.purged(f, old)
	}
	return results
}

// purged records that a message was purged. Its id is free then.
func (h *history) purged(f store.Versioned, old *row) {
	s := h.storyOf(old)
	h.forget(s)
	s.surelyNot = !old.PossibleDuplicate
	h.counts["purged"]++
	h.w.mark(19, uint64(s.number))
	h.w.tell(nil, "%s is purged at version %d", s.key.ScheduleID, old.Version)
	h.note(factPurged{f, s, old})
}

// wrongPurge says that a purge took another message than one that failed at its version.
func wrongPurge(f factPurged) string {
	if f.old.Status != postdate.DeliveryFailed || f.failed.Version != 0 && f.failed.Version != f.old.Version {
		return fmt.Sprintf("%s is purged at version %d, and is %s at version %d", f.story.key.ScheduleID,
			f.failed.Version, f.old.Status, f.old.Version)
	}
	return ""
}

// wrongRedrive says what is wrong with a redrive that was decided at a time.
func wrongRedrive(f factRecord, at postdate.Time) string {
	id, before, after := f.story.key.ScheduleID, f.before, f.after
	switch {
	case before.Status != postdate.DeliveryFailed:
		return fmt.Sprintf("%s is redriven, and was %s", id, before.Status)
	case before.ExpiresAt != 0 && before.ExpiresAt <= at:
		return fmt.Sprintf("%s expired at %d, and is redriven at %d", id, before.ExpiresAt-epoch, at-epoch)
	case after.Status != postdate.Pending || after.Version != before.Version+1 || !after.Redriven ||
		after.Attempts != 0 || after.Parked || after.DownSince != 0 || after.SettledAt != 0 ||
		after.AttemptTime != max(at, before.NotBefore()) || len(after.Log) != len(before.Log):
		return fmt.Sprintf("%s is redriven at %d, and goes from %+v to %+v", id, at-epoch, before.State, after.State)
	}
	return ""
}

// notAsAnswered says that a redrive or a purge answered 200 and was not done.
func (h *history) notAsAnswered(r *request) string {
	s := r.story
	if r.outcome != done || s.expired {
		return ""
	}
	switch {
	case r.kind == opPurge:
		return s.key.ScheduleID + " was purged, and is there"
	case r.kind == opRedrive && h.record(s).Version <= r.version:
		return s.key.ScheduleID + " was redriven, and is still at version " + strconv.FormatUint(r.version, 10)
	}
	return ""
}

// surelyFailed says that an emission arrives although its message had failed, and surely had not arrived.
func (h *history) surelyFailed(e *emission) string {
	s := e.story
	r := h.record(s)
	sure := s.surelyNot
	if r != nil && !r.PossibleDuplicate {
		sure = r.Status == postdate.DeliveryFailed || !e.ofVersion(r) && r.Status == postdate.Pending
	}
	if !sure || e.unaware {
		return ""
	}
	return fmt.Sprintf("%s, published at %s, arrives, and had failed without a doubt", s, e.at)
}

// revived reports whether an emission is of an occurrence that was redriven after a client had begun to cancel
// its series: it comes all the same.
func (e *emission) revived() bool {
	return e.story.series != nil && e.row != nil && e.row.Redriven &&
		slices.ContainsFunc(e.story.series.requests, func(r *request) bool {
			return r.kind == opCancel && epoch.Add(r.began) <= e.begun
		})
}

// ofVersion reports whether an emission is of that version of a message that may have been redriven.
func (e *emission) ofVersion(r *row) bool {
	return !r.Redriven || e.row != nil && e.row.Version == r.Version
}
