package storetest

import (
	"context"
	"runtime"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in what it does with series.
type (
	seriesLosesRecurrence struct{ *Mem }
	goesOnAgain           struct{ *Mem }
	skipIgnoresToken      struct{ *Mem }
	goingOnIsNoFact       struct{ *Mem }
	goesOnTwiceInACall    struct{ *Mem }
	runStays              struct{ *Mem }
	attemptsStay          struct{ *Mem }
	reasonIsLost          struct{ *Mem }
	historyGrows          struct{ *Mem }
	historyIsShort        struct{ *Mem }
	skipsCountOne         struct{ *Mem }
	overIsPending         struct{ *Mem }
	scanLosesOccurrence   struct{ *Mem }
	scanLosesRecurrence   struct{ *Mem }
	listLosesCounts       struct{ *Mem }
	listFollowsSeries     struct{ *Mem }
	replaceKeepsCounts    struct{ *Mem }
	replaceKeepsRun       struct{ *Mem }
	unparkBeforeItsTime   struct{ *Mem }
	unparkLosesCounts     struct{ *Mem }
	parkLosesCounts       struct{ *Mem }
)

// Likewise, in what it does with occurrences that are retried on their own.
type (
	retriedIsLost       struct{ *Mem }
	retriedIsReset      struct{ *Mem }
	retriedOverwrites   struct{ *Mem }
	retriedComesLater   struct{ *Mem }
	retriedComesSooner  struct{ *Mem }
	retriedRecurs       struct{ *Mem }
	retriedAnew         struct{ *Mem }
	retriedIsNotCounted struct{ *Mem }
	failureCountsAgain  struct{ *Mem }
	failureNeverCounts  struct{ *Mem }
	failureIgnoresRest  struct{ *Mem }
	failureIgnoresToken struct{ *Mem }
	failuresCountOnce   struct{ *Mem }
	failureIsLost       struct{ *Mem }
	failureNeedsPending struct{ *Mem }
	deliveryCounts      struct{ *Mem }
	retriedByPrefix     struct{ *Mem }
	retriedByName       struct{ *Mem }
	retriedAreAll       struct{ *Mem }
	retriedByVersion    struct{ *Mem }
	expireTakesRetried  struct{ *Mem }
	cancelTakesRetried  struct{ *Mem }
)

// Likewise, in how series end.
type (
	scanLosesEnding    struct{ *Mem }
	endingIsForgotten  struct{ *Mem }
	endingIsNotTold    struct{ *Mem }
	endingIsAnswered   struct{ *Mem }
	endingGoesOn       struct{ *Mem }
	endingParks        struct{ *Mem }
	endingRetries      struct{ *Mem }
	endingStays        struct{ *Mem }
	endingTakesParked  struct{ *Mem }
	unparkLosesEnding  struct{ *Mem }
	everythingEnds     struct{ *Mem }
	cancelLosesCounts  struct{ *Mem }
	endingRaces        struct{ *Mem }
	expireTakesEnding  struct{ *Mem }
	overIsNeverExpired struct{ *Mem }
)

// amend changes a row, if it is there.
func (m *Mem) amend(key postdate.Key, change func(r *postdate.Record)) {
	if r := m.Rows[key]; r != nil {
		next := r.Record
		change(&next)
		m.Put("", r, next, nil)
	}
}

// settleThen settles, and calls then for each settlement with the row that it changed, as it was
// before (nil: it changed none).
func (m *Mem) settleThen(settlements []store.Settlement, then func(old *Row, s *store.Settlement)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range settlements {
		old := m.Settles(&settlements[i])
		if old != nil {
			m.settle(old, &settlements[i])
		}
		then(old, &settlements[i])
	}
	return nil
}

// amendSettled settles, and amends each row that this changed.
func (m *Mem) amendSettled(settlements []store.Settlement, change func(old *Row, s *store.Settlement, r *postdate.Record)) error {
	return m.settleThen(settlements, func(old *Row, s *store.Settlement) {
		if old != nil {
			m.amend(s.Key, func(r *postdate.Record) { change(old, s, r) })
		}
	})
}

// occurrenceOf is the key of a settlement's occurrence as a message of its own.
func occurrenceOf(s *store.Settlement) postdate.Key {
	m := postdate.Message{Key: s.Key}
	return m.Alone(s.Occurrence).Key
}

func (s seriesLosesRecurrence) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range messages {
		s.amend(m.Key, func(r *postdate.Record) { r.Recurrence = nil })
	}
	return results
}

func (s goesOnAgain) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		if r := s.Rows[p.Key]; r != nil {
			p.Occurrence = r.Occurrence
		}
		return true
	})
}

func (s skipIgnoresToken) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		if p.How == store.SettleSkip {
			p.Token = s.Records[p.Key.Bucket].Token
		}
		return true
	})
}

func (s goingOnIsNoFact) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		return !p.Advances() || s.Records[p.Key.Bucket].Holds(p.Token)
	})
}

// What a call settles is read once, before anything of it is written.
func (s goesOnTwiceInACall) Settle(ctx context.Context, settlements []store.Settlement) error {
	s.mu.Lock()
	changes := map[int]*Row{}
	for i := range settlements {
		if old := s.Settles(&settlements[i]); old != nil && old.Occurrence != 0 {
			changes[i] = old
		}
	}
	s.mu.Unlock()
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		for i, was := range changes {
			if &settlements[i] == p && old == nil {
				s.amend(p.Key, func(r *postdate.Record) { r.State, r.Series = p.State(was.State), p.Series(was.State, r.Series) })
			}
		}
	})
}

func (s runStays) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(old *Row, _ *store.Settlement, r *postdate.Record) { r.Run = old.Run })
}

func (s attemptsStay) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(_ *Row, p *store.Settlement, r *postdate.Record) { r.Attempts = p.Attempts })
}

func (s reasonIsLost) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(_ *Row, p *store.Settlement, r *postdate.Record) {
		if p.Advances() {
			r.LastError = ""
		}
	})
}

func (s historyGrows) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(old *Row, p *store.Settlement, r *postdate.Record) {
		if n := len(r.Series.History); p.Advances() {
			r.Series.History = append(slices.Clone(old.Series.History), r.Series.History[n-1])
		}
	})
}

func (s historyIsShort) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(_ *Row, _ *store.Settlement, r *postdate.Record) {
		if n := len(r.Series.History); n == postdate.HistoryMax {
			r.Series.History = r.Series.History[1:]
		}
	})
}

func (s skipsCountOne) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(old *Row, p *store.Settlement, r *postdate.Record) {
		r.Series.Skipped = old.Series.Skipped + min(p.Next.Skipped, 1)
	})
}

func (s overIsPending) Settle(_ context.Context, settlements []store.Settlement) error {
	return settleChanged(s.Mem, settlements, func(p *store.Settlement) bool {
		if p.Next.Over {
			p.Next.Over, p.Next.AttemptTime = false, 1
		}
		return true
	})
}

// claimAmended claims, and changes what the scan returns.
func (m *Mem) claimAmended(claims []store.Claim, change func(r *postdate.Record)) []store.ClaimResult {
	results := m.Claim(context.Background(), claims)
	for i := range results {
		for j := range results[i].Due {
			change(&results[i].Due[j])
		}
	}
	return results
}

func (s scanLosesOccurrence) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimAmended(claims, func(r *postdate.Record) { r.Occurrence = r.First })
}

func (s scanLosesRecurrence) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimAmended(claims, func(r *postdate.Record) { r.Recurrence = nil })
}

func (s scanLosesEnding) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimAmended(claims, func(r *postdate.Record) { r.Ending = false })
}

func (s listLosesCounts) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	for i := range page.Records {
		page.Records[i].Series = postdate.Series{}
	}
	return page, err
}

// A series is listed where it has come to.
func (s listFollowsSeries) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	page.Records = slices.DeleteFunc(page.Records, func(r postdate.Record) bool { return q.To != 0 && q.To < r.Occurrence })
	return page, err
}

// replaceAmended replaces, and changes what it wrote.
func (m *Mem) replaceAmended(next, was postdate.Record, change func(old, r *postdate.Record)) (postdate.Record, error) {
	old, _ := m.Get(context.Background(), next.Key)
	r, err := m.Replace(context.Background(), next, was)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.amend(next.Key, func(r *postdate.Record) { change(&old, r) })
	}
	return r, err
}

func (s replaceKeepsCounts) Replace(_ context.Context, m, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(m, was, func(old, r *postdate.Record) { r.Series = old.Series })
}

func (s replaceKeepsRun) Replace(_ context.Context, m, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(m, was, func(old, r *postdate.Record) { r.Run = old.Run })
}

// unparkAmended unparks, and changes what was parked.
func (m *Mem) unparkAmended(u store.Unpark, change func(r *postdate.Record)) (int, int, error) {
	m.mu.Lock()
	shelved := slices.Clone(m.Shelved[u.Bucket])
	m.mu.Unlock()
	found, early, err := m.Unpark(context.Background(), u)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range shelved {
		m.amend(r.Key, change)
	}
	return found, early, err
}

func (s unparkBeforeItsTime) Unpark(_ context.Context, u store.Unpark) (int, int, error) {
	return s.unparkAmended(u, func(r *postdate.Record) { r.AttemptTime = max(u.At, r.ExecutionTime) })
}

func (s unparkLosesCounts) Unpark(_ context.Context, u store.Unpark) (int, int, error) {
	return s.unparkAmended(u, func(r *postdate.Record) { r.Series = postdate.Series{} })
}

func (s unparkLosesEnding) Unpark(_ context.Context, u store.Unpark) (int, int, error) {
	return s.unparkAmended(u, func(r *postdate.Record) { r.Ending = false })
}

func (s parkLosesCounts) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(_ *Row, p *store.Settlement, r *postdate.Record) {
		if p.How == store.SettlePark {
			r.Series = postdate.Series{}
		}
	})
}

func (s retriedIsLost) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if r := s.Rows[occurrenceOf(p)]; r != nil && old != nil && p.Advances() {
			s.Drop(r)
		}
	})
}

// detached is what a settlement leaves to be retried, whether or not it is there.
func detached(old *postdate.Record, p *store.Settlement) (r postdate.Record, ok bool) {
	r.State, ok = p.Alone(old.State)
	r.Message = old.Alone(p.Occurrence)
	return r, ok
}

// A repeated settlement makes its message anew.
func (s retriedIsReset) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		series := s.Rows[p.Key]
		if old != nil || series == nil || series.Version != p.Version || !s.Records[p.Key.Bucket].Holds(p.Token) {
			return
		}
		if r, ok := detached(&series.Record, p); ok && s.Rows[r.Key] != nil {
			s.Put("", s.Rows[r.Key], r, nil)
		}
	})
}

func (s retriedOverwrites) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old == nil {
			return
		}
		if r, ok := detached(&old.Record, p); ok {
			s.Put("", s.Rows[r.Key], r, nil)
		}
	})
}

// The message that is retried is written after others had their turn.
func (s retriedComesLater) Settle(ctx context.Context, settlements []store.Settlement) error {
	var later []postdate.Record
	err := s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if r := s.Rows[occurrenceOf(p)]; r != nil && old != nil && p.Advances() && r.Version == p.Version {
			s.Drop(r)
			later = append(later, r.Record)
		}
	})
	runtime.Gosched()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range later {
		s.Put("", nil, r, nil)
	}
	return err
}

// The message that is retried is written before its series goes on.
func (s retriedComesSooner) Settle(ctx context.Context, settlements []store.Settlement) error {
	s.mu.Lock()
	for i := range settlements {
		if old := s.Settles(&settlements[i]); old != nil {
			if r, ok := detached(&old.Record, &settlements[i]); ok && s.Rows[r.Key] == nil {
				s.Put("", nil, r, nil)
			}
		}
	}
	s.mu.Unlock()
	runtime.Gosched()
	return s.Mem.Settle(ctx, settlements)
}

// amendDetached settles, and changes what is left to be retried.
func (m *Mem) amendDetached(settlements []store.Settlement, change func(old *Row, r *postdate.Record)) error {
	return m.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old == nil {
			return
		}
		if r, ok := detached(&old.Record, p); ok {
			m.amend(r.Key, func(r *postdate.Record) { change(old, r) })
		}
	})
}

func (s retriedRecurs) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendDetached(settlements, func(old *Row, r *postdate.Record) { r.Occurrence, r.Run = old.Occurrence, old.Run })
}

func (s retriedAnew) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendDetached(settlements, func(_ *Row, r *postdate.Record) { r.State = postdate.NewState(&r.Message, r.Version) })
}

func (s retriedIsNotCounted) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendDetached(settlements, func(_ *Row, r *postdate.Record) { s.count(&Row{Record: *r}, -1) })
}

// failures settles, and corrects how often a failure counts. more is called for each settlement of an
// occurrence by itself that says that it failed, and of those rows that it changed.
func (m *Mem) failures(settlements []store.Settlement, more func(old, series *Row, s *store.Settlement) int64) error {
	return m.settleThen(settlements, func(old *Row, s *store.Settlement) {
		key, is := s.Key.OfSeries()
		series := m.Rows[key]
		if !is || series == nil || s.How != store.SettleFailed {
			return
		}
		m.amend(key, func(r *postdate.Record) { r.Series.Failed += more(old, series, s) })
	})
}

func (s failureCountsAgain) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old == nil && series.Version == p.Version && s.Records[p.Key.Bucket].Holds(p.Token) {
			return 1
		}
		return 0
	})
}

func (s failureIgnoresToken) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if r := s.Rows[p.Key]; r.Status == postdate.Pending && series.Version == p.Version {
			return 1
		}
		return 0
	})
}

func (s failureNeverCounts) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old != nil && series.Version == p.Version {
			return -1
		}
		return 0
	})
}

// A failure counts in whatever has the series' id.
func (s failureIgnoresRest) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old != nil && series.Version != p.Version {
			return 1
		}
		return 0
	})
}

func (s failuresCountOnce) Settle(_ context.Context, settlements []store.Settlement) error {
	counted := map[postdate.Key]bool{}
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old == nil || series.Version != p.Version {
			return 0
		}
		if counted[series.Key] {
			return -1
		}
		counted[series.Key] = true
		return 0
	})
}

// A series that goes on is written as it was read when the call began.
func (s failureIsLost) Settle(_ context.Context, settlements []store.Settlement) error {
	lost := map[postdate.Key]int64{}
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		key, is := p.Key.OfSeries()
		if is && old != nil && p.How == store.SettleFailed {
			lost[key]++
		}
		if old != nil && p.Advances() {
			s.amend(p.Key, func(r *postdate.Record) { r.Series.Failed -= lost[p.Key] })
		}
	})
}

func (s failureNeedsPending) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old != nil && series.Version == p.Version && series.Status.Final() {
			return -1
		}
		return 0
	})
}

func (s deliveryCounts) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if key, is := p.Key.OfSeries(); is && old != nil && p.How == store.SettleDelivered {
			s.amend(key, func(r *postdate.Record) { r.Series.Failed++ })
		}
	})
}

// retriedIf lists the occurrences that are retried and fulfil a condition.
func (m *Mem) retriedIf(cond func(r *Row) bool) (keys []postdate.Key, _ error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, r := range m.Rows {
		if _, is := key.OfSeries(); is && cond(r) {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func (s retriedByPrefix) Retried(_ context.Context, series postdate.Key) ([]postdate.Key, error) {
	return s.retriedIf(func(r *Row) bool {
		return r.Bucket == series.Bucket && r.Tenant == series.Tenant && r.Status == postdate.Pending &&
			strings.HasPrefix(r.ScheduleID, series.ScheduleID)
	})
}

func (s retriedByName) Retried(_ context.Context, series postdate.Key) ([]postdate.Key, error) {
	return s.retriedIf(func(r *Row) bool { return r.SeriesID() == series.ScheduleID && r.Status == postdate.Pending })
}

func (s retriedAreAll) Retried(_ context.Context, series postdate.Key) ([]postdate.Key, error) {
	return s.retriedIf(func(r *Row) bool { of, _ := r.OfSeries(); return of == series })
}

// Of a series only those are named that are of its present version.
func (s retriedByVersion) Retried(_ context.Context, series postdate.Key) ([]postdate.Key, error) {
	return s.retriedIf(func(r *Row) bool {
		of, _ := r.OfSeries()
		return of == series && r.Status == postdate.Pending && s.Rows[of] != nil && s.Rows[of].Version == r.Version
	})
}

func (s expireTakesRetried) Expire(ctx context.Context, e store.Expiry) (int, error) {
	n, err := s.Mem.Expire(ctx, e)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, r := range s.Rows {
		if of, is := key.OfSeries(); is && s.Rows[of] == nil {
			s.Drop(r)
		}
	}
	return n, err
}

func (s cancelTakesRetried) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	for _, key := range keys {
		retried, _ := s.Retried(ctx, key)
		s.Mem.Cancel(ctx, retried, at)
	}
	return s.Mem.Cancel(ctx, keys, at)
}

// cancelAmended cancels, and changes what this wrote.
func (m *Mem) cancelAmended(keys []postdate.Key, at postdate.Time, change func(r *postdate.Record, c *store.Cancelled)) []store.Cancelled {
	results := m.Cancel(context.Background(), keys, at)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, key := range keys {
		m.amend(key, func(r *postdate.Record) { change(r, &results[i]) })
	}
	return results
}

func (s endingIsForgotten) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAmended(keys, at, func(r *postdate.Record, _ *store.Cancelled) { r.Ending = false })
}

func (s endingIsNotTold) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAmended(keys, at, func(_ *postdate.Record, c *store.Cancelled) { c.State.Ending = false })
}

// A series that is ending counts as cancelled.
func (s endingIsAnswered) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	var was []bool
	for _, key := range keys {
		r, _ := s.Get(ctx, key)
		was = append(was, r.Ending)
	}
	results := s.Mem.Cancel(ctx, keys, at)
	for i := range results {
		if was[i] && results[i].State.Ending {
			results[i].Err = nil
		}
	}
	return results
}

func (s everythingEnds) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAmended(keys, at, func(r *postdate.Record, c *store.Cancelled) {
		if r.Status == postdate.Pending {
			r.Ending, c.State.Ending = true, true
		}
	})
}

func (s cancelLosesCounts) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAmended(keys, at, func(r *postdate.Record, _ *store.Cancelled) {
		if r.Status == postdate.Cancelled {
			r.Series = postdate.Series{}
		}
	})
}

// Cancel looks at a claimed series, and writes what it saw, ending, after others had their turn.
func (s endingRaces) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	if len(keys) != 1 {
		return s.Mem.Cancel(ctx, keys, at)
	}
	s.mu.Lock()
	r := s.Rows[keys[0]]
	ends := r != nil && r.Status == postdate.Pending && r.Occurrence != 0 && !s.withdrawable(r)
	s.mu.Unlock()
	if !ends {
		return s.Mem.Cancel(ctx, keys, at)
	}
	for range 20 {
		runtime.Gosched()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.amend(keys[0], func(now *postdate.Record) { now.State, now.Ending = r.State, true })
	state := s.Rows[keys[0]].State
	return []store.Cancelled{{State: state, Err: store.ErrTooLate(keys[0], state)}}
}

// endingAs settles rows that are ending as if they were not, where a condition holds.
func (m *Mem) endingAs(settlements []store.Settlement, cond func(s *store.Settlement) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range settlements {
		s := &settlements[i]
		old := m.Settles(s)
		if old != nil && old.Ending && cond(s) {
			m.amend(s.Key, func(r *postdate.Record) { r.Ending = false })
			old = m.Rows[s.Key]
		}
		if old != nil {
			m.settle(old, s)
		}
	}
	return nil
}

func (s endingGoesOn) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.endingAs(settlements, func(p *store.Settlement) bool { return p.Advances() && !p.Next.Over })
}

func (s endingParks) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.endingAs(settlements, func(p *store.Settlement) bool { return p.How == store.SettlePark })
}

func (s endingRetries) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleThen(settlements, func(old *Row, p *store.Settlement) {
		if old == nil || !old.Ending {
			return
		}
		was := old.Record
		was.Ending = false
		if r, ok := detached(&was, p); ok {
			s.Put("", s.Rows[r.Key], r, nil)
		}
	})
}

func (s endingStays) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(old *Row, _ *store.Settlement, r *postdate.Record) { r.Ending = old.Ending })
}

// A parked series is ending, too, although nobody can be sending it.
func (s endingTakesParked) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	if len(keys) != 1 {
		return s.Mem.Cancel(ctx, keys, at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.Rows[keys[0]]; r != nil && r.Status == postdate.Pending && r.Parked && r.Occurrence != 0 {
		s.amend(keys[0], func(r *postdate.Record) { r.Ending = true })
		state := s.Rows[keys[0]].State
		return []store.Cancelled{{State: state, Err: store.ErrTooLate(keys[0], state)}}
	}
	return []store.Cancelled{s.cancel(keys[0], at)}
}

func (s expireTakesEnding) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	for _, r := range s.Rows {
		if r.Ending && e.SettledBefore > r.AttemptTime {
			s.Drop(r)
		}
	}
	s.mu.Unlock()
	return s.Mem.Expire(ctx, e)
}

func (s overIsNeverExpired) Expire(ctx context.Context, e store.Expiry) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := slices.DeleteFunc(s.past(&e), func(r *Row) bool { return r.Occurrence != 0 })
	for _, r := range old[:min(len(old), e.Limit)] {
		s.Drop(r)
	}
	return min(len(old), e.Limit) + s.expireInboxes(&e), nil
}

// areaBugs are the bugs that are listed by the area in which they are caught.
func areaBugs() (bugs []plantedBug) {
	in := func(area string, plants []func(m *Mem) store.Store) {
		for _, plant := range plants {
			bugs = append(bugs, plantedBug{area, plant})
		}
	}
	in("series", bugsInSeries)
	in("retried occurrences", bugsInRetries)
	in("ends of series", bugsInEnds)
	in("changing series", bugsInChanges)
	in("forget", bugsInForget)
	in("list", bugsInPrefixes)
	in("list", bugsInFew)
	in("labels", bugsInLabels)
	in("upcoming", bugsInUpcoming)
	in("failure channels", bugsInFailures)
	in("channels", []func(m *Mem) store.Store{func(m *Mem) store.Store { return channelsForgetFails{m} }})
	in("attempts", bugsInAttempts)
	in("redrive", bugsInRedrive)
	in("purge", bugsInPurge)
	in("deliver", bugsInDeliver)
	in("large pages", bugsInPages)
	return bugs
}

var bugsInSeries = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return seriesLosesRecurrence{m} },
	func(m *Mem) store.Store { return goesOnAgain{m} },
	func(m *Mem) store.Store { return skipIgnoresToken{m} },
	func(m *Mem) store.Store { return goingOnIsNoFact{m} },
	func(m *Mem) store.Store { return goesOnTwiceInACall{m} },
	func(m *Mem) store.Store { return runStays{m} },
	func(m *Mem) store.Store { return attemptsStay{m} },
	func(m *Mem) store.Store { return reasonIsLost{m} },
	func(m *Mem) store.Store { return historyGrows{m} },
	func(m *Mem) store.Store { return historyIsShort{m} },
	func(m *Mem) store.Store { return skipsCountOne{m} },
	func(m *Mem) store.Store { return overIsPending{m} },
	func(m *Mem) store.Store { return scanLosesOccurrence{m} },
	func(m *Mem) store.Store { return scanLosesRecurrence{m} },
	func(m *Mem) store.Store { return listLosesCounts{m} },
	func(m *Mem) store.Store { return listFollowsSeries{m} },
	func(m *Mem) store.Store { return replaceKeepsCounts{m} },
	func(m *Mem) store.Store { return replaceKeepsRun{m} },
	func(m *Mem) store.Store { return unparkBeforeItsTime{m} },
	func(m *Mem) store.Store { return unparkLosesCounts{m} },
	func(m *Mem) store.Store { return parkLosesCounts{m} },
}

var bugsInRetries = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return retriedIsLost{m} },
	func(m *Mem) store.Store { return retriedIsReset{m} },
	func(m *Mem) store.Store { return retriedOverwrites{m} },
	func(m *Mem) store.Store { return retriedComesLater{m} },
	func(m *Mem) store.Store { return retriedComesSooner{m} },
	func(m *Mem) store.Store { return retriedRecurs{m} },
	func(m *Mem) store.Store { return retriedAnew{m} },
	func(m *Mem) store.Store { return retriedIsNotCounted{m} },
	func(m *Mem) store.Store { return failureCountsAgain{m} },
	func(m *Mem) store.Store { return failureNeverCounts{m} },
	func(m *Mem) store.Store { return failureIgnoresRest{m} },
	func(m *Mem) store.Store { return failureIgnoresToken{m} },
	func(m *Mem) store.Store { return failuresCountOnce{m} },
	func(m *Mem) store.Store { return failureIsLost{m} },
	func(m *Mem) store.Store { return failureNeedsPending{m} },
	func(m *Mem) store.Store { return deliveryCounts{m} },
	func(m *Mem) store.Store { return retriedByPrefix{m} },
	func(m *Mem) store.Store { return retriedByName{m} },
	func(m *Mem) store.Store { return retriedAreAll{m} },
	func(m *Mem) store.Store { return retriedByVersion{m} },
	func(m *Mem) store.Store { return expireTakesRetried{m} },
	func(m *Mem) store.Store { return cancelTakesRetried{m} },
}

var bugsInEnds = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return scanLosesEnding{m} },
	func(m *Mem) store.Store { return endingIsForgotten{m} },
	func(m *Mem) store.Store { return endingIsNotTold{m} },
	func(m *Mem) store.Store { return endingIsAnswered{m} },
	func(m *Mem) store.Store { return endingGoesOn{m} },
	func(m *Mem) store.Store { return endingParks{m} },
	func(m *Mem) store.Store { return endingRetries{m} },
	func(m *Mem) store.Store { return endingStays{m} },
	func(m *Mem) store.Store { return endingTakesParked{m} },
	func(m *Mem) store.Store { return unparkLosesEnding{m} },
	func(m *Mem) store.Store { return everythingEnds{m} },
	func(m *Mem) store.Store { return cancelLosesCounts{m} },
	func(m *Mem) store.Store { return endingRaces{m} },
	func(m *Mem) store.Store { return expireTakesEnding{m} },
	func(m *Mem) store.Store { return overIsNeverExpired{m} },
}
