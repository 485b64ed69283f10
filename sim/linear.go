package sim

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// life is what clients can know about one message: the state of the model against which its
// history is checked.
type life struct {
	there     bool
	edition   string
	cancelled bool
	delivered bool // the present edition was
}

// deed is one operation of a history.
type deed struct {
	kind    kind // opSchedule, opCancel, opMove, or delivery
	edition string
	series  bool // the delivery is of one of a series' occurrences
}

// delivery is the deed of a broker, from publish to arrival.
const delivery kind = kinds

// lives is the model of which deeds are possible in which order. Porcupine looks for an order
// in which every answer was true when it was given.
var lives = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{life{}} },
	Step:  func(state, input, output any) []any { return state.(life).after(input.(deed), output.(outcome)) },
	Equal: func(a, b any) bool { return a == b },
}

// after lists the possible lives after a deed with an outcome; none if the outcome is
// impossible.
func (l life) after(d deed, o outcome) []any {
	var next []any
	if l2, ok := l.take(d); ok && (o == done || o == unknown) {
		next = append(next, l2)
	}
	same := false // the outcome is possible without an effect
	switch o {
	case unknown:
		same = true
	case done: // it was done before
		same = d.kind == opSchedule && l.there || d.kind == opCancel && l.cancelled
	case tooLate: // a cancelled message answers so to a move, but not to another cancel
		same = l.there && (!l.cancelled || d.kind == opMove)
	case missing:
		same = !l.there
	case conflict:
		same = l.there
	}
	if same && d.kind != delivery {
		next = append(next, l)
	}
	return next
}

// take returns the life after the deed's effect, and whether the effect is possible.
func (l life) take(d deed) (life, bool) {
	switch d.kind {
	case opSchedule:
		return life{there: true, edition: d.edition}, !l.there
	case opCancel:
		l.cancelled = true
		return l, l.there && !l.delivered
	case opMove:
		return life{there: true, edition: d.edition}, l.there && !l.cancelled && !l.delivered
	default:
		can := l.there && !l.cancelled && l.edition == d.edition
		l.delivered = !d.series
		return l, can
	}
}

// notLinear checks the history of each message that was cancelled or rescheduled.
func notLinear(h *history) string {
	model, emissions, revived := lives.ToModel(), map[*story][]*emission{}, map[*story]bool{}
	for _, s := range h.order {
		of := s
		if s.series != nil {
			of = s.series
		}
		for _, e := range s.emissions {
			if e.revived() {
				revived[of] = true
			} else {
				emissions[of] = append(emissions[of], e)
			}
		}
	}
	for _, s := range h.order {
		if s.series != nil || s.failed != nil {
			continue // no client scheduled it
		}
		var ops []porcupine.Operation
		withdrawals := 0
		for _, r := range s.requests {
			if r.kind >= opPause && r.kind <= opPurge {
				continue // promises 9 and 1 check these
			}
			if r.kind == opCancel && r.outcome == tooLate && revived[s] {
				continue // for an occurrence that was redriven after another cancel
			}
			if r.kind != opSchedule {
				withdrawals++
			}
			ended := int64(r.ended)
			if r.outcome == unknown || ended == 0 {
				ended = math.MaxInt64
			}
			ops = append(ops, porcupine.Operation{
				ClientId: len(ops), Input: deed{r.kind, r.edition, false}, Output: r.outcome, Call: int64(r.began),
				Return: ended,
			})
		}
		if withdrawals == 0 {
			continue
		}
		for _, e := range emissions[s] {
			// A node that was frozen may still send another copy of an occurrence before the last one.
			heldUp := s.tale != nil && e.unaware && (h.record(s) == nil || e.story.at < h.record(s).Occurrence)
			if e.arrivedAt > 0 && !heldUp {
				ops = append(ops, porcupine.Operation{
					ClientId: len(ops), Input: deed{delivery, string(e.message.Payload), s.tale != nil}, Output: done,
					Call: int64(e.at), Return: int64(e.arrivedAt),
				})
			}
		}
		if !porcupine.CheckOperations(model, ops) {
			return fmt.Sprintf("no order explains what clients saw of %s: %s", s.key.ScheduleID, describe(ops))
		}
	}
	return ""
}

func describe(ops []porcupine.Operation) (text string) {
	for _, op := range ops {
		d := op.Input.(deed)
		name := "delivery"
		if d.kind != delivery {
			name = d.kind.String()
		}
		text += fmt.Sprintf("\n\t%s %q from %.6f to %.6f: %s",
			name, d.edition, float64(op.Call)/1e9, float64(op.Return)/1e9, op.Output)
	}
	return text
}
