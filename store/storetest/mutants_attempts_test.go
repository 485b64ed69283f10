package storetest

import (
	"context"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in the log of attempts.
type (
	logIsLost        struct{ *Mem }
	logKeepsLast     struct{ *Mem }
	logGrows         struct{ *Mem }
	logRepeats       struct{ *Mem }
	logBeginsAnew    struct{ *Mem }
	logLosesReason   struct{ *Mem }
	logKeepsReason   struct{ *Mem }
	logHasParks      struct{ *Mem }
	logIgnoresToken  struct{ *Mem }
	logOfSeries      struct{ *Mem }
	aloneHasNoLog    struct{ *Mem }
	logIsOfTheFirst  struct{ *Mem }
	logEndsWithParks struct{ *Mem }
	logIsAsRead      struct{ *Mem }
	logIsReplaced    struct{ *Mem }
	logBecomesSeries struct{ *Mem }
	replaceHidesLog  struct{ *Mem }
)

// amendLogs settles, and changes the logs of what this changed.
func (m *Mem) amendLogs(settlements []store.Settlement, change func(s *store.Settlement, old, log []postdate.Attempt) []postdate.Attempt) error {
	return m.amendSettled(settlements, func(old *Row, s *store.Settlement, r *postdate.Record) {
		r.Log = change(s, old.Log, r.Log)
	})
}

func (s logIsLost) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(_ *store.Settlement, old, _ []postdate.Attempt) []postdate.Attempt { return old })
}

func (s logKeepsLast) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(_ *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		return log[max(len(log)-1, 0):]
	})
}

func (s logGrows) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(p *store.Settlement, old, log []postdate.Attempt) []postdate.Attempt {
		if len(log) == postdate.AttemptLogMax && !slices.Equal(old, log) {
			return append(slices.Clone(old), log[len(log)-1])
		}
		return log
	})
}

func (s logRepeats) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(p *store.Settlement, old, log []postdate.Attempt) []postdate.Attempt {
		if a, ok := p.Attempt(); ok && p.Occurrence == 0 {
			return postdate.AddAttempt(old, a)
		}
		return log
	})
}

func (s logBeginsAnew) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(_ *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		if len(log) == postdate.AttemptLogMax {
			return log[len(log)-1:]
		}
		return log
	})
}

func (s logLosesReason) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(_ *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		log = slices.Clone(log)
		for i := range log {
			log[i].Reason = ""
		}
		return log
	})
}

func (s logKeepsReason) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(p *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		log = slices.Clone(log)
		if n := len(log); n > 0 && p.Outcome != 0 {
			log[n-1].Reason = p.Reason
		}
		return log
	})
}

func (s logHasParks) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(p *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		if p.How == store.SettlePark {
			return postdate.AddAttempt(log, postdate.Attempt{At: p.At, Outcome: postdate.AttemptRefused})
		}
		return log
	})
}

func (s logEndsWithParks) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(p *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		if p.How == store.SettlePark {
			return nil
		}
		return log
	})
}

func (s logIgnoresToken) Settle(ctx context.Context, all []store.Settlement) error {
	err := s.Mem.Settle(ctx, all)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range all {
		if r := s.Rows[p.Key]; r != nil && r.Version == p.Version {
			s.amend(p.Key, func(r *postdate.Record) { r.Log = p.Log(r.Log) })
		}
	}
	return err
}

func (s logOfSeries) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendLogs(all, func(p *store.Settlement, old, _ []postdate.Attempt) []postdate.Attempt {
		single := *p
		single.Occurrence = 0
		return single.Log(old)
	})
}

func (s aloneHasNoLog) Settle(_ context.Context, all []store.Settlement) error {
	return s.amendDetached(all, func(_ *Row, r *postdate.Record) { r.Log = nil })
}

// Settle gives all messages of a call the log of the first one.
func (s logIsOfTheFirst) Settle(_ context.Context, all []store.Settlement) error {
	var first []postdate.Attempt
	return s.amendLogs(all, func(_ *store.Settlement, _, log []postdate.Attempt) []postdate.Attempt {
		if first == nil {
			first = log
		}
		return first
	})
}

// replaceLog replaces, and then makes the log what log returns.
func (m *Mem) replaceLog(ctx context.Context, next, was postdate.Record,
	log func(old, log []postdate.Attempt) []postdate.Attempt) (postdate.Record, error) {
	old, _ := m.Get(ctx, next.Key)
	r, err := m.Replace(ctx, next, was)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.Log = log(old.Log, r.Log)
		m.amend(next.Key, func(stored *postdate.Record) { stored.Log = r.Log })
	}
	return r, err
}

func (s logIsAsRead) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceLog(ctx, next, was, func(_, _ []postdate.Attempt) []postdate.Attempt {
		return store.ReplacedLog(&next.Message, next.Log)
	})
}

func (s logIsReplaced) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceLog(ctx, next, was, func(_, _ []postdate.Attempt) []postdate.Attempt { return nil })
}

func (s logBecomesSeries) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceLog(ctx, next, was, func(old, _ []postdate.Attempt) []postdate.Attempt { return old })
}

func (s replaceHidesLog) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	r, err := s.Mem.Replace(ctx, next, was)
	r.Log = nil
	return r, err
}

var bugsInAttempts = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return logIsLost{m} },
	func(m *Mem) store.Store { return logKeepsLast{m} },
	func(m *Mem) store.Store { return logGrows{m} },
	func(m *Mem) store.Store { return logRepeats{m} },
	func(m *Mem) store.Store { return logBeginsAnew{m} },
	func(m *Mem) store.Store { return logLosesReason{m} },
	func(m *Mem) store.Store { return logKeepsReason{m} },
	func(m *Mem) store.Store { return logHasParks{m} },
	func(m *Mem) store.Store { return logEndsWithParks{m} },
	func(m *Mem) store.Store { return logIgnoresToken{m} },
	func(m *Mem) store.Store { return logOfSeries{m} },
	func(m *Mem) store.Store { return aloneHasNoLog{m} },
	func(m *Mem) store.Store { return logIsOfTheFirst{m} },
	func(m *Mem) store.Store { return logIsAsRead{m} },
	func(m *Mem) store.Store { return logIsReplaced{m} },
	func(m *Mem) store.Store { return logBecomesSeries{m} },
	func(m *Mem) store.Store { return replaceHidesLog{m} },
}
