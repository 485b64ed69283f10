package store

import (
	"slices"

	"github.com/postdate/postdate"
)

// Settling says how an attempt ended.
type Settling uint8

// The ways to settle.
const (
	SettleDelivered Settling = iota + 1 // the broker confirmed it
	SettleRetry                         // try again at AttemptTime
	SettleFailed                        // its retry policy is spent, or it expired
	SettlePark                          // wait until the channel is back, or until AttemptTime
	SettleSkip                          // of a series: the present occurrence is not begun
	SettleRest                          // of a paused series: wait with the present occurrence until it is resumed
)

// Settlement is the outcome of one attempt. It replaces the message's state.
type Settlement struct {
	Key           postdate.Key
	ExecutionTime postdate.Time // of the message that was published
	Version       uint64        // likewise
	Token         uint64
	How           Settling
	At            postdate.Time // the time to note for a final state, and in a series' history
	AttemptTime   postdate.Time // for SettleRetry and SettlePark
	DownSince     postdate.Time // for SettlePark
	Attempts      int
	Reason        string // the broker's words, if it refused or the outcome is unknown

	// Outcome is that of the attempt, and Node made it; 0: nothing was attempted.
	Outcome postdate.AttemptOutcome
	Node    string

	// PossibleDuplicate: this or an earlier publish may have arrived.
	PossibleDuplicate bool

	// FailureChannel gets a new message in the same step, if How is SettleFailed; "": none does.
	FailureChannel postdate.Channel

	Occurrence postdate.Time // of a series: the one that was published
	Next       Next          // of a series, unless How is SettlePark or SettleRest
}

// Next is how a series goes on. The rule gives it from the present occurrence, so it is the same whoever
// settles that, and whenever. Only how many a SettleSkip skips depends on the time.
type Next struct {
	Occurrence  postdate.Time
	AttemptTime postdate.Time // when it is to begin
	Over        bool          // instead of these: none follows
	Skipped     int64         // for SettleSkip: how many are skipped, with the present one; else 0
}

// Advances says whether a series goes on to its next occurrence, or is over.
func (s *Settlement) Advances() bool { return s.Next != Next{} }

// Again is when the message is due again after SettleRetry or SettlePark: never before its
// execution time, even if a clock was set back in between.
func (s *Settlement) Again() postdate.Time { return max(s.AttemptTime, s.ExecutionTime, s.Occurrence) }

// State is the message's state after the settlement.
func (s *Settlement) State(old postdate.State) postdate.State {
	switch {
	case old.Ending:
		next := s.attempted(old)
		next.Status = postdate.Pending
		return next.Cancel(s.At)
	case s.Next.Over:
		next := s.attempted(old)
		next.Status, next.SettledAt = postdate.Delivered, s.At
		return next
	case s.Advances():
		return postdate.State{
			Status: postdate.Pending, Version: old.Version, AttemptTime: s.Next.AttemptTime, LastError: s.Reason,
			Occurrence: s.Next.Occurrence, Run: old.Run + max(int(s.Next.Skipped), 1), Paused: old.Paused,
			Changes: old.Changes,
		}
	}
	return s.single(old)
}

// Series is what is known of a series after the settlement. old and series are from before it.
func (s *Settlement) Series(old postdate.State, series postdate.Series) postdate.Series {
	if !s.Advances() {
		return series
	}
	o := postdate.Outcome{Occurrence: s.Occurrence, At: s.At, Attempts: s.Attempts, Skipped: s.Next.Skipped}
	switch {
	case s.How == SettleDelivered:
		o.Status = postdate.Delivered
	case s.How == SettleRetry && !old.Ending:
		o.Status = postdate.Pending
	case s.How != SettleSkip:
		o.Status = postdate.DeliveryFailed
	}
	return series.Add(o)
}

// Detaches reports whether a series that goes on leaves its occurrence as a message of its own, which is to
// be retried. One that ends keeps it.
func (s *Settlement) Detaches() bool { return s.Advances() && s.How == SettleRetry }

// Alone is the state of the message that a series' occurrence becomes because it is to be retried while
// the series goes on. old is the series' state. ok is false if it becomes none.
func (s *Settlement) Alone(old postdate.State) (state postdate.State, ok bool) {
	if !s.Detaches() || old.Ending {
		return state, false
	}
	state = s.single(old)
	state.Occurrence, state.Run, state.Paused, state.Changes, state.Redriven = 0, 0, false, 0, false
	return state, true
}

// Attempt is what the settlement adds to its message's log; ok is false if nothing was attempted.
func (s *Settlement) Attempt() (a postdate.Attempt, ok bool) {
	if s.Outcome == 0 {
		return a, false
	}
	reason := postdate.Cut(s.Reason, postdate.AttemptReasonBytesMax)
	return postdate.Attempt{At: s.At, Node: s.Node, Outcome: s.Outcome, Reason: reason}, true
}

// Log is the message's log after the settlement, also if that is repeated. A series keeps none: its history
// has what became of its occurrences. One that becomes a message of its own ([Settlement.Alone]) begins its
// log with AloneLog.
func (s *Settlement) Log(log []postdate.Attempt) []postdate.Attempt {
	a, ok := s.Attempt()
	if !ok || s.Occurrence != 0 || slices.Contains(log, a) {
		return log
	}
	return postdate.AddAttempt(log, a)
}

// AloneLog is the log of the message that a series' occurrence becomes.
func (s *Settlement) AloneLog() []postdate.Attempt {
	if a, ok := s.Attempt(); ok {
		return []postdate.Attempt{a}
	}
	return nil
}

// ReplacedLog is the log of the message that takes another one's place, which has that log: it may hold attempts that
// were not settled yet when the caller read it. A series keeps none.
func ReplacedLog(next *postdate.Message, log []postdate.Attempt) []postdate.Attempt {
	if next.Recurrence != nil {
		return nil
	}
	return log
}

// attempted is old after an attempt, without a status.
func (s *Settlement) attempted(old postdate.State) postdate.State {
	return postdate.State{
		Version: old.Version, Attempts: s.Attempts, AttemptTime: old.AttemptTime,
		PossibleDuplicate: s.PossibleDuplicate, LastError: s.Reason, Occurrence: old.Occurrence, Run: old.Run,
		Paused: old.Paused, Changes: old.Changes, Redriven: old.Redriven,
	}
}

// single is the state of what was attempted, whatever follows it.
func (s *Settlement) single(old postdate.State) postdate.State {
	next := s.attempted(old)
	switch s.How {
	case SettleDelivered:
		next.Status, next.SettledAt = postdate.Delivered, s.At
	case SettleFailed:
		next.Status, next.SettledAt = postdate.DeliveryFailed, s.At
	case SettleRetry:
		next.Status, next.AttemptTime = postdate.Pending, s.Again()
	case SettlePark:
		next.Status, next.Parked, next.AttemptTime, next.DownSince = postdate.Pending, true, s.Again(), s.DownSince
	case SettleRest:
		next.Status, next.AttemptTime = postdate.Pending, postdate.Far
	}
	return next
}
