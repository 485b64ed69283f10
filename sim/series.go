package sim

import (
	"fmt"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// Each occurrence of a series has a story of its own, whether it is present or retried as a message of
// its own. The series has one too, in which its requests are.

// recurring returns the series that an item schedules, as the API makes it. ok is false if the rule has
// no occurrence: the API refuses that.
func (w *world) recurring(it item, key postdate.Key, edition string) (m *postdate.Message, ok bool) {
	m = w.message(it, key, edition)
	m.Recurrence = it.recurs
	if _, err := recurrence.Parse(*it.recurs, m.CreatedAt); err != nil {
		panic("a plan has a recurrence that cannot be: " + err.Error())
	}
	m.Digest = postdate.DigestOf(m, "")
	return m, recurrence.Begin(m, m.CreatedAt) == nil
}

// cancelRetried cancels what is retried of a series, after the series was. The answer is "done" only if
// nothing of it can be delivered any more.
func (w *world) cancelRetried(p *process, s *story, answer func(outcome)) {
	var keys []postdate.Key
	var got []store.Cancelled
	var err error
	cancel := &storeCall{
		name: "cancel", effect: []func(){func() { got = w.store.Cancel(ctx, keys, p.wall()) }},
		half: func() { w.store.Cancel(ctx, keys[:len(keys)/2], p.wall()) },
		answer: func() {
			o := done
			for _, c := range got {
				if c.Err != nil && postdate.KindOf(c.Err) != postdate.KindNotFound {
					o = outcomeOf(c.Err)
				}
			}
			answer(o)
		},
		failed: func(error) { answer(unknown) },
	}
	p.call(&storeCall{
		name: "retried", effect: []func(){func() {
			if err = s.reachable(); err == nil {
				keys, err = w.store.Retried(ctx, s.key)
			}
		}},
		answer: func() {
			if err != nil || len(keys) == 0 || w.bug == bugRetriedGoesOn {
				answer(outcomeOf(err))
				return
			}
			p.call(cancel)
		},
		failed: func(error) { answer(unknown) },
	})
}

// editionOf returns what tells a message from all others: its payload, if it is an occurrence of a series its
// time, and if a failed message left it the version of that.
func editionOf(m *postdate.Message) string {
	return string(m.Payload) + m.ScheduleID[len(m.ClientID()):]
}

// presentEdition returns the edition that is sent next: of a series, that of its present occurrence.
func presentEdition(r *postdate.Record) string {
	m := r.Message
	if r.Recurrence != nil {
		m = r.Alone(r.Occurrence)
	}
	return editionOf(&m)
}

// storyOf returns the story of a row.
func (h *history) storyOf(r *row) *story { return h.about[editionOf(&r.Message)] }

// presentOf returns the story of what is sent next of a row: of a series, of its present occurrence.
func (h *history) presentOf(r *row) *story {
	if r.Recurrence == nil {
		return h.storyOf(r)
	}
	m := r.Alone(r.Occurrence)
	return h.occurrence(&m)
}

// occurrence returns the story of an occurrence, which it begins if necessary.
func (h *history) occurrence(m *postdate.Message) *story {
	edition := editionOf(m)
	if s := h.about[edition]; s != nil {
		return s
	}
	series := h.about[string(m.Payload)]
	series.occurrences++
	s := &story{
		number: series.number + series.occurrences<<32, key: m.Key, request: series.request, series: series,
		withdrawn: map[string]string{}, at: m.ExecutionTime, begins: series.tale.begins(m.ExecutionTime),
	}
	h.about[edition] = s
	h.order = append(h.order, s)
	return s
}

// sentFrom returns the row from which an emission is sent, or nil. over says that there is none because
// the series has gone on or expired.
func (h *history) sentFrom(s *story) (r *row, over bool) {
	if r := h.record(s); r != nil || s.series == nil {
		return r, false
	}
	r = h.record(s.series)
	if r != nil && r.Occurrence == s.at {
		return r, false
	}
	return nil, r == nil && s.series.expired || r != nil && r.Occurrence > s.at
}

// splitSettlement returns what the settlement of another row did to this one, if that is so: it made a
// message of its own of an occurrence ("detach"), counted one that failed ("count"), or left one that goes to a
// failure channel ("leave").
func splitSettlement(by string, before, after *row, st *store.Settlement) (string, *store.Settlement) {
	switch {
	case st == nil || st.Key == after.Key:
		return by, st
	case before == nil && after.OfFailure():
		return "leave", nil
	case before == nil:
		return "detach", nil
	}
	return "count", nil
}

// next returns the occurrence after the present one of a series.
func (s *story) next(r *row) (at postdate.Time, ok bool) {
	if s.tale == nil {
		return 0, false
	}
	return s.tale.next(r.Occurrence, r.Run)
}

func (s *story) String() string {
	if s.series == nil {
		return s.key.ScheduleID
	}
	return fmt.Sprintf("%s of %s", s.at, s.series.key.ScheduleID)
}
