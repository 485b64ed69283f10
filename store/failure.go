package store

import "github.com/postdate/postdate"

// Leaves says whether a settlement may leave a message for a failure channel.
func (s *Settlement) Leaves() bool { return s.How == SettleFailed && s.FailureChannel != "" }

// Failed is the message that a failed one leaves for its failure channel. old is the failed one, or the series of
// the occurrence that failed, before the settlement. ok is false if it leaves none: it did not fail, has no failure
// channel, or is of a series that was cancelled.
func (s *Settlement) Failed(old *postdate.Record) (left postdate.Record, ok bool) {
	if !s.Leaves() || old.Ending {
		return left, false
	}
	m := old.Message
	if old.Occurrence != 0 {
		m = m.Alone(old.Occurrence)
	}
	m = m.Failed(postdate.Failure{Version: old.Version, To: s.FailureChannel, At: s.At, Attempts: s.Attempts,
		Reason: s.Reason, PossibleDuplicate: s.PossibleDuplicate})
	return postdate.NewRecord(m, old.Version), true
}

// WithReason returns the settlement with a reason that begins with these words.
func (s *Settlement) WithReason(words string) *Settlement {
	other := *s
	other.Reason = postdate.Cut(words+": "+s.Reason, postdate.LastErrorBytesMax)
	return &other
}
