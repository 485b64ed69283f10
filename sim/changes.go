package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
)

// This file is what clients do with series while these go on: they change the rule, pause, resume, and
// trigger an occurrence out of turn.

// changes draws that for the series of a plan, in two of three worlds and wherever there are races. It has
// luck of its own, so that what else happens in a world is the same with it and without.
func (d *draw) changes(seed uint64) {
	d.r = rand.New(rand.NewPCG(seed, 4))
	most := 4
	if d.p.profile == profileRaces {
		most = 10
	} else if d.r.IntN(3) == 0 {
		return
	}
	for _, it := range d.p.items {
		if it.kind != opSeries {
			continue
		}
		lasts := max(it.recurs.End.Sub(epoch.Add(it.at)), 0)
		for range d.r.IntN(most) {
			d.oneChange(it, d.whenChanged(it, lasts), lasts)
		}
	}
}

// whenChanged draws a time, mostly close to an occurrence.
func (d *draw) whenChanged(it item, lasts time.Duration) time.Duration {
	every := max(it.recurs.Every, time.Second)
	if d.r.IntN(3) == 0 {
		return it.at + d.upTo(lasts+2*time.Second)
	}
	n := 1 + d.r.Int64N(int64(lasts/every)+1)
	return max(it.at, it.at+every*time.Duration(n)+d.around(30*time.Millisecond))
}

func (d *draw) oneChange(it item, at, lasts time.Duration) {
	switch d.r.IntN(4) {
	case 0, 1:
		d.add(item{at: at, kind: opPause, a: it.a})
		if d.r.IntN(8) > 0 {
			d.add(item{at: at + d.upTo([]time.Duration{50 * time.Millisecond, 10 * time.Second}[d.r.IntN(2)]),
				kind: opResume, a: it.a})
		}
	case 2:
		rule := d.recurrence(at, min(lasts, d.p.length+30*time.Second-at))
		if d.r.IntN(3) == 0 { // its times stay
			same := *it.recurs
			same.Misfire, same.MisfireAfter = rule.Misfire, rule.MisfireAfter
			same.Jitter = min(rule.Jitter, max(same.Every, time.Second)/2)
			rule = &same
		}
		d.add(item{at: at, kind: opChange, a: it.a, recurs: rule})
	case 3:
		for range 1 + d.r.IntN(2) {
			d.add(item{at: at, kind: opTrigger, a: it.a})
		}
	}
}

// changeSeries plays a change of series s, as the API makes it: it reads the series, and writes what follows.
func (w *world) changeSeries(p *process, s *story, it item) {
	answer := w.ask(it.kind, s, "")
	r := s.requests[len(s.requests)-1]
	var old, next postdate.Record
	var decided postdate.Time
	var err error
	fail := func(error) { answer(unknown) }
	write := &storeCall{name: it.kind.String(), failed: fail,
		answer: func() {
			if err == nil && it.kind != opPause {
				p.scheduled(s.key.Bucket, max(next.AttemptTime, r.at))
			}
			if s.expired { // the record is another message's
				err = errLost
			}
			answer(outcomeOf(err))
		},
		effect: []func(){func() {
			switch it.kind {
			case opPause:
				err = w.store.Pause(ctx, s.key, old.Version)
			case opTrigger:
				err = w.trigger(p, &old, r)
			default:
				w.history.decided = decided
				_, err = w.store.Replace(ctx, next, old)
			}
		}},
	}
	p.call(&storeCall{name: "get", failed: fail,
		effect: []func(){func() {
			if err = s.reachable(); err == nil {
				old, err = w.store.Get(ctx, s.key)
			}
			r.version = old.Version
		}},
		answer: func() {
			switch {
			case err != nil:
				answer(outcomeOf(err))
			case old.Recurrence == nil || old.Status.Final() && w.bug != bugTriggerOutlives:
				answer(tooLate)
			default:
				decided = w.wall()
				if next, err = w.changed(p, &old, it); err != nil {
					answer(conflict)
					return
				}
				p.call(write)
			}
		},
	})
}

// changed returns what becomes of a series that gets another rule, or is resumed.
func (w *world) changed(p *process, old *postdate.Record, it item) (next postdate.Record, err error) {
	m, paused := old.Message, false
	switch it.kind {
	case opPause, opTrigger:
		return next, nil
	case opChange:
		m.Recurrence, paused = it.recurs, old.Paused
	}
	now := p.m.Board().Passed(p.now())
	if w.bug == bugChangedInThePast {
		now = now.Add(-time.Minute)
	}
	next, err = recurrence.Change(old, m, paused, now)
	if w.bug == bugChangeLosesCounts {
		next.Series = postdate.Series{}
	}
	return next, err
}

func (w *world) trigger(p *process, old *postdate.Record, r *request) error {
	at, err := recurrence.Extra(old, p.m.Board().Passed(p.now()))
	if err != nil {
		return err
	}
	if err = w.store.Trigger(ctx, old.Key, old.Version, at); err == nil {
		extra := old.Alone(at)
		r.extra, r.at = editionOf(&extra), at
	}
	return err
}

// Pause implements store.Messages.
func (s *Store) Pause(ctx context.Context, series postdate.Key, ifVersion uint64) error {
	r := s.Rows[series]
	if s.w.bug == bugPauseNotKept && r != nil && !s.Records[series.Bucket].Withdrawable(series, r.Route(), r.State) {
		return nil
	}
	return s.Mem.Pause(ctx, series, ifVersion)
}

// Trigger implements store.Messages.
func (s *Store) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64,
	occurrence postdate.Time) error {
	old := s.Rows[series]
	if s.w.bug == bugTriggerOutlives && old != nil && old.Version == ifVersion && old.Status == postdate.Cancelled {
		extra := postdate.NewRecord(old.Alone(occurrence), old.Version)
		s.Put("trigger", nil, extra, nil)
		return nil
	}
	err := s.Mem.Trigger(ctx, series, ifVersion, occurrence)
	if s.w.bug == bugTriggerMoves && err == nil {
		old = s.Rows[series]
		next := old.Record
		if at, ok := s.w.history.storyOf(old).next(old); ok {
			next.Occurrence, next.AttemptTime, next.Run = at, at, next.Run+1
			s.Put("trigger", old, next, nil)
		}
	}
	return err
}

// firstRead is when the present occurrence of a series was first read by who has the bucket under a token.
type firstRead struct {
	token uint64
	at    time.Duration
}

// seriesRead notes what a claim read of series.
func (h *history) seriesRead(token uint64, due []postdate.Record) {
	for i := range due {
		if due[i].Recurrence == nil {
			continue
		}
		edition := presentEdition(&due[i])
		if h.reads[edition].token != token {
			h.reads[edition] = firstRead{token, h.w.now}
		}
	}
}

// sentPaused says that an occurrence is sent although its series was paused before it was read. One that may
// have been begun before is sent all the same.
func (h *history) sentPaused(e *emission) string {
	series := e.story.series
	read := h.reads[e.edition]
	if e.row == nil || e.row.Recurrence == nil || !e.row.Paused || e.marked || read.token != e.token ||
		read.at <= series.tale.pausedAt {
		return ""
	}
	return fmt.Sprintf("%s is sent; it was read at %s, and its series paused at %s", e.story, read.at,
		series.tale.pausedAt)
}

// seriesReplaced says what is wrong with a change of a series by a client, which was decided at h.decided by
// the clock of a process.
func (h *history) seriesReplaced(f factRecord) string {
	t, before, after := f.story.tale, f.before, f.after
	changed, resumed := !t.keeps(&before.Record, after.Recurrence), before.Paused && !after.Paused
	n := after.Series.Skipped - before.Series.Skipped
	off, known := h.w.clocksOff()
	switch {
	case after.Version != before.Version+1 || after.Changes != before.Changes+1 || after.Run != before.Run ||
		after.Ending || after.Attempts != 0 || after.Parked || after.Status != postdate.Pending:
		return fmt.Sprintf(" is changed from %+v to %+v", before.State, after.State)
	case !changed && !resumed && (n != 0 || after.Occurrence != before.Occurrence):
		return fmt.Sprintf(" is not changed, and goes from %s to %s", before.Occurrence, after.Occurrence)
	case after.Occurrence < before.Occurrence && !changed, after.Occurrence <= t.last:
		return fmt.Sprintf(" goes back from %s to %s; the last one was %s", before.Occurrence, after.Occurrence, t.last)
	}
	at, ok := before.Occurrence, true
	for range n { // those that were missed have no numbers
		if !ok || known && at > h.decided.Add(off) {
			return fmt.Sprintf(" skips %d occurrences from %s on, which were not missed", n, before.Occurrence)
		}
		if wrong := h.skip(f, at); wrong != "" {
			return wrong
		}
		t.last = at
		at, ok = t.after(at)
	}
	t.skipped += n
	missed := h.decided.Add(-off)
	switch {
	case !changed && n > 0 && (!ok || after.Occurrence != at),
		!changed && n == 0 && after.Occurrence != before.Occurrence:
		return fmt.Sprintf(" is resumed with %s, and skipped %d from %s on", after.Occurrence, n, before.Occurrence)
	case changed && ok && known && at < missed:
		return fmt.Sprintf(" has another rule, and does not count %s, which was missed", at)
	}
	t.become(&after.Message)
	if wrong := t.notOfRule(after.Occurrence); wrong != "" {
		return wrong
	}
	if (changed || resumed) && known && t.begins(after.Occurrence) < missed {
		return fmt.Sprintf(" goes on with %s, which was over by then", after.Occurrence)
	}
	t.begin(after.Occurrence, after.Run)
	t.changedAt = h.w.wall()
	return ""
}

// keeps reports whether another rule leaves the present occurrence: it has the same times, and its end does not
// come before.
func (t *tale) keeps(present *postdate.Record, rule *postdate.Recurrence) bool {
	a, b := t.given, *rule
	return a.Every == b.Every && a.Anchor == b.Anchor && a.Start == b.Start &&
		a.Cron == b.Cron && a.Timezone == b.Timezone && a.Gap == b.Gap && a.Overlap == b.Overlap &&
		(b.End == 0 || present.Occurrence <= b.End) && (b.MaxRuns == 0 || present.Run <= b.MaxRuns)
}

// skip notes that an occurrence is skipped.
func (h *history) skip(f factRecord, at postdate.Time) string {
	m := f.before.Alone(at)
	s := h.occurrence(&m)
	s.skipped = true
	for _, e := range s.emissions {
		if e.arrivedAt != 0 && !e.unaware {
			return fmt.Sprintf(" skips %s, which has arrived", at)
		}
	}
	return ""
}

// notOfRule says that a time is no occurrence of the rule.
func (t *tale) notOfRule(at postdate.Time) string {
	if t.given.Cron != "" {
		if is, ok := t.rule.After(at - 1); !ok || is != at {
			return fmt.Sprintf(" goes on with %s, which is no occurrence", at)
		}
		return ""
	}
	if (at-t.anchor)%postdate.Time(t.given.Every.Milliseconds()) != 0 || at < t.anchor || at < t.given.Start ||
		t.given.End != 0 && at > t.given.End {
		return fmt.Sprintf(" goes on with %s, which is no occurrence from %s on, each %s", at, t.anchor, t.given.Every)
	}
	return ""
}

// triggered says what is wrong with an occurrence out of turn.
func (h *history) triggered(f factRecord) string {
	before, after := f.before, f.after
	want := before.Record
	want.Series = want.Series.Triggered(after.Series.Last())
	extra := after.Alone(after.Series.Last())
	child := h.w.store.Rows[extra.Key]
	switch {
	case before.State != after.State || after.Series.Fired != want.Series.Fired || len(after.Series.History) == 0:
		return fmt.Sprintf(" is triggered, and goes from %+v to %+v", before.State, after.State)
	case child == nil || !after.Owns(child.Version):
		return " is triggered, and the occurrence is not there"
	case before.Status != postdate.Pending || before.Ending:
		return fmt.Sprintf(" is triggered, and is %s", before.Status)
	}
	f.story.tale.fired++
	f.story.tale.extra++
	return ""
}
