package sim

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// life is what a client can know of one message: the state of the model against
// which its history is checked.
type life struct {
	there     bool
	edition   string
	cancelled bool
	delivered bool // of the present edition
}

// deed is one operation of a history.
type deed struct {
	kind    kind // opSchedule, opCancel, opMove, or delivery
	edition string
}

// delivery is the deed of a broker, from the publish to the arrival.
const delivery kind = kinds

// lives says which deeds are possible in which order: porcupine looks for one order
// in which every answer was true when it was given.
var lives = porcupine.NondeterministicModel{
	Init:  func() []any { return []any{life{}} },
	Step:  func(state, input, output any) []any { return state.(life).after(input.(deed), output.(outcome)) },
	Equal: func(a, b any) bool { return a == b },
}

// after lists what a message's life can be after a deed with an outcome. None: the
// outcome is impossible here.
func (l life) after(d deed, o outcome) []any {
	var next []any
	if l2, ok := l.take(d); ok && (o == done || o == unknown) {
		next = append(next, l2)
	}
	same := false // whether the outcome is possible without an effect
	switch o {
	case unknown:
		same = true
	case done: // again
		same = d.kind == opSchedule && l.there || d.kind == opCancel && l.cancelled
	case tooLate: // it is not told of a message that was cancelled before, but of one that is rescheduled
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

// take is the effect of a deed, where it can have one.
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
		l.delivered = true
		return l, can
	}
}

// notLinear checks the history of each message that was cancelled or rescheduled.
func notLinear(h *history) string {
	model := lives.ToModel()
	for _, s := range h.order {
		var ops []porcupine.Operation
		withdrawals := 0
		for _, r := range s.requests {
			if r.kind != opSchedule {
				withdrawals++
			}
			ended := int64(r.ended)
			if r.outcome == unknown || ended == 0 {
				ended = math.MaxInt64
			}
			ops = append(ops, porcupine.Operation{
				ClientId: len(ops), Input: deed{r.kind, r.edition}, Output: r.outcome, Call: int64(r.began), Return: ended,
			})
		}
		if withdrawals == 0 {
			continue
		}
		for _, e := range s.emissions {
			if e.arrivedAt > 0 {
				ops = append(ops, porcupine.Operation{
					ClientId: len(ops), Input: deed{delivery, e.edition}, Output: done, Call: int64(e.at), Return: int64(e.arrivedAt),
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
		text += fmt.Sprintf("\n\t%s %q from %.6f to %.6f: %s", name, d.edition, float64(op.Call)/1e9, float64(op.Return)/1e9, op.Output)
	}
	return text
}
