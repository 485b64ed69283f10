package storetest

import (
	"context"
	"runtime"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Each type here is the model with one bug in how series are changed.
type (
	changeIgnoresPaused     struct{ *Mem }
	changeIgnoresFired      struct{ *Mem }
	changeIgnoresFailed     struct{ *Mem }
	changeIgnoresSkipped    struct{ *Mem }
	changeIgnoresOccurrence struct{ *Mem }
	changeIgnoresVersion    struct{ *Mem }
	changeIgnoresClaim      struct{ *Mem }
	changeAnswersPart       struct{ *Mem }
	changeLosesCounts       struct{ *Mem }
	changeLosesHistory      struct{ *Mem }
	changeLosesChanges      struct{ *Mem }
	changeBeginsRunAnew     struct{ *Mem }
	changeKeepsPlace        struct{ *Mem }
	changeKeepsMessage      struct{ *Mem }
	changeKeepsHeaders      struct{ *Mem }
	changeKeepsParked       struct{ *Mem }
	changeKeepsVersion      struct{ *Mem }
	changeKeepsBytes        struct{ *Mem }
	changeInserts           struct{ *Mem }
	changeRaces             struct{ *Mem }
	changesGoInSettle       struct{ *Mem }
	ownsOnlyPresent         struct{ *Mem }
	ownsEveryVersion        struct{ *Mem }
)

// Likewise, in how they are paused.
type (
	pauseNeedsUnclaimed  struct{ *Mem }
	pauseNeedsUnparked   struct{ *Mem }
	pauseIsForgotten     struct{ *Mem }
	pauseRaisesVersion   struct{ *Mem }
	pauseIgnoresVersion  struct{ *Mem }
	pauseTakesEnding     struct{ *Mem }
	pauseTakesSingles    struct{ *Mem }
	pauseTakesOver       struct{ *Mem }
	pauseOnce            struct{ *Mem }
	pauseRestsAtOnce     struct{ *Mem }
	pauseGoesInSettle    struct{ *Mem }
	pauseGoesInPark      struct{ *Mem }
	pauseGoesInRest      struct{ *Mem }
	pauseGoesAtTheEnd    struct{ *Mem }
	pauseGoesToChild     struct{ *Mem }
	pauseGoesInUnpark    struct{ *Mem }
	pauseGoesInCancel    struct{ *Mem }
	scanLosesPaused      struct{ *Mem }
	listLosesPaused      struct{ *Mem }
	pauseRaces           struct{ *Mem }
	settleRacesPause     struct{ *Mem }
	replaceRacesPause    struct{ *Mem }
	restGoesOn           struct{ *Mem }
	restIsDue            struct{ *Mem }
	restCounts           struct{ *Mem }
	restStaysParked      struct{ *Mem }
	restIgnoresToken     struct{ *Mem }
	restIgnoresVersion   struct{ *Mem }
	restIgnoresPlace     struct{ *Mem }
	restIgnoresEnding    struct{ *Mem }
	restIsTooLate        struct{ *Mem }
	restCannotBeReplaced struct{ *Mem }
)

// Likewise, in how they are triggered.
type (
	triggerMakesNothing   struct{ *Mem }
	triggerNeverCounts    struct{ *Mem }
	triggerCountsTwice    struct{ *Mem }
	triggerNotesNothing   struct{ *Mem }
	triggerOverwrites     struct{ *Mem }
	triggerCountsTaken    struct{ *Mem }
	triggerIsIdempotent   struct{ *Mem }
	triggerIgnoresVersion struct{ *Mem }
	triggerTakesEnding    struct{ *Mem }
	triggerTakesSingles   struct{ *Mem }
	triggerNeedsUnclaimed struct{ *Mem }
	triggerNeedsUnpaused  struct{ *Mem }
	triggerUnparks        struct{ *Mem }
	triggerResumes        struct{ *Mem }
	triggerRaisesVersion  struct{ *Mem }
	triggerMovesSeries    struct{ *Mem }
	triggerIsOfBirth      struct{ *Mem }
	triggerRecurs         struct{ *Mem }
	triggerIsDueLater     struct{ *Mem }
	triggerIsPaused       struct{ *Mem }
	triggerLosesMessage   struct{ *Mem }
	triggerIsUncounted    struct{ *Mem }
	triggerRaces          struct{ *Mem }
	triggerComesLater     struct{ *Mem }
	triggerLosesCount     struct{ *Mem }
)

// present is the record of a message, zero if it is not there.
func (m *Mem) present(key postdate.Key) postdate.Record {
	r, _ := m.Get(context.Background(), key)
	return r
}

// changeAmended replaces, and changes what it wrote if that is a changed series.
func (m *Mem) changeAmended(next, was postdate.Record, change func(old, r *postdate.Record)) (postdate.Record, error) {
	if next.Changes == 0 {
		return m.Replace(context.Background(), next, was)
	}
	return m.replaceAmended(next, was, change)
}

// yield lets others have their turn.
func yield() {
	for range 20 {
		runtime.Gosched()
	}
}

func (s changeIgnoresPaused) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	was.Paused = s.present(next.Key).Paused
	return s.Mem.Replace(ctx, next, was)
}

func (s changeIgnoresFired) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	was.Series.Fired = s.present(next.Key).Series.Fired
	return s.Mem.Replace(ctx, next, was)
}

func (s changeIgnoresFailed) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	was.Series.Failed = s.present(next.Key).Series.Failed
	return s.Mem.Replace(ctx, next, was)
}

func (s changeIgnoresSkipped) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	was.Series.Skipped = s.present(next.Key).Series.Skipped
	return s.Mem.Replace(ctx, next, was)
}

func (s changeIgnoresOccurrence) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	was.Occurrence = s.present(next.Key).Occurrence
	return s.Mem.Replace(ctx, next, was)
}

func (s changeIgnoresVersion) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	was.Version = s.present(next.Key).Version
	return s.Mem.Replace(ctx, next, was)
}

func (s changeIgnoresClaim) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	s.mu.Lock()
	record := s.Records[next.Bucket]
	unclaimed(&s.Records[next.Bucket])
	s.mu.Unlock()
	r, err := s.Mem.Replace(ctx, next, was)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Records[next.Bucket] = record
	return r, err
}

func (s changeAnswersPart) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	r, err := s.Mem.Replace(ctx, next, was)
	if err != nil {
		r.Series = postdate.Series{}
	}
	return r, err
}

func (s changeLosesCounts) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(next, was, func(_, r *postdate.Record) { r.Series = postdate.Series{} })
}

func (s changeLosesHistory) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(next, was, func(_, r *postdate.Record) { r.Series.History = nil })
}

func (s changeLosesChanges) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(next, was, func(_, r *postdate.Record) { r.Changes = 0 })
}

func (s changeBeginsRunAnew) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(next, was, func(_, r *postdate.Record) { r.Run = min(r.Run, 1) })
}

func (s changeKeepsPlace) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.changeAmended(next, was, func(old, r *postdate.Record) { r.AttemptTime = old.AttemptTime })
}

// Where the execution time stays, so does the message.
func (s changeKeepsMessage) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.changeAmended(next, was, func(old, r *postdate.Record) {
		if r.ExecutionTime == old.ExecutionTime {
			r.Message = old.Message
		}
	})
}

func (s changeKeepsHeaders) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.changeAmended(next, was, func(old, r *postdate.Record) {
		if r.Headers == nil {
			r.Headers = old.Headers
		}
	})
}

func (s changeKeepsParked) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.changeAmended(next, was, func(old, r *postdate.Record) { r.Parked = old.Parked })
}

func (s changeKeepsVersion) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.changeAmended(next, was, func(old, r *postdate.Record) { r.Version = old.Version })
}

func (s changeKeepsBytes) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.replaceAmended(next, was, func(old, r *postdate.Record) {
		s.count(&Row{Record: *r}, -1)
		s.count(&Row{Record: *old}, 1)
	})
}

func (s changeInserts) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	r, err := s.Mem.Replace(ctx, next, was)
	if postdate.KindOf(err) == postdate.KindNotFound && next.Changes > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Put("", nil, next, nil)
	}
	return r, err
}

// Replace looks whether it may, and writes after others had their turn.
func (s changeRaces) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	old := s.present(next.Key)
	if !old.Same(&was) || next.Changes == 0 {
		return s.Mem.Replace(ctx, next, was)
	}
	yield()
	return s.Mem.Replace(ctx, next, s.present(next.Key))
}

func (s changesGoInSettle) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendSettled(settlements, func(_ *Row, p *store.Settlement, r *postdate.Record) {
		if p.Advances() {
			r.Changes = 0
		}
	})
}

func (s ownsOnlyPresent) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old != nil && series.Owns(p.Version) && series.Version != p.Version {
			return -1
		}
		return 0
	})
}

// A series that was ever changed owns also what was there before it.
func (s ownsEveryVersion) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.failures(settlements, func(old, series *Row, p *store.Settlement) int64 {
		if old != nil && !series.Owns(p.Version) && series.Changes > 0 {
			return 1
		}
		return 0
	})
}

// claimedNow says whether a message is there and cannot be withdrawn.
func (m *Mem) claimedNow(key postdate.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.Rows[key]
	return r != nil && !m.withdrawable(r)
}

func (s pauseNeedsUnclaimed) Pause(ctx context.Context, series postdate.Key, version uint64) error {
	if s.claimedNow(series) {
		return store.ErrTooLate(series, s.present(series).State)
	}
	return s.Mem.Pause(ctx, series, version)
}

func (s pauseNeedsUnparked) Pause(ctx context.Context, series postdate.Key, version uint64) error {
	if r := s.present(series); r.Parked {
		return nil
	}
	return s.Mem.Pause(ctx, series, version)
}

func (s pauseIsForgotten) Pause(context.Context, postdate.Key, uint64) error { return nil }

// pauseAmended pauses, and changes what was paused.
func (m *Mem) pauseAmended(series postdate.Key, version uint64, change func(r *postdate.Record)) error {
	err := m.Pause(context.Background(), series, version)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.amend(series, change)
	}
	return err
}

func (s pauseRaisesVersion) Pause(_ context.Context, series postdate.Key, version uint64) error {
	return s.pauseAmended(series, version, func(r *postdate.Record) { r.Version++ })
}

func (s pauseRestsAtOnce) Pause(_ context.Context, series postdate.Key, version uint64) error {
	return s.pauseAmended(series, version, func(r *postdate.Record) { r.AttemptTime = postdate.Far })
}

func (s pauseIgnoresVersion) Pause(ctx context.Context, series postdate.Key, _ uint64) error {
	return s.Mem.Pause(ctx, series, s.present(series).Version)
}

// pauseIf pauses also what a condition holds for.
func (m *Mem) pauseIf(series postdate.Key, version uint64, cond func(r *Row) bool) error {
	err := m.Pause(context.Background(), series, version)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.Rows[series]; err != nil && r != nil && r.Version == version && cond(r) {
		m.amend(series, func(r *postdate.Record) { r.Paused = true })
	}
	return err
}

func (s pauseTakesEnding) Pause(_ context.Context, series postdate.Key, version uint64) error {
	return s.pauseIf(series, version, func(r *Row) bool { return r.Ending })
}

func (s pauseTakesSingles) Pause(_ context.Context, series postdate.Key, version uint64) error {
	return s.pauseIf(series, version, func(r *Row) bool { return r.Occurrence == 0 })
}

func (s pauseTakesOver) Pause(_ context.Context, series postdate.Key, version uint64) error {
	return s.pauseIf(series, version, func(r *Row) bool { return r.Status == postdate.Delivered })
}

func (s pauseOnce) Pause(ctx context.Context, series postdate.Key, version uint64) error {
	if s.present(series).Paused {
		return store.ErrChanged(series)
	}
	return s.Mem.Pause(ctx, series, version)
}

// settleUnpauses loses a pause where a condition holds.
func (m *Mem) settleUnpauses(settlements []store.Settlement, cond func(s *store.Settlement) bool) error {
	return m.amendSettled(settlements, func(_ *Row, p *store.Settlement, r *postdate.Record) {
		r.Paused = r.Paused && !cond(p)
	})
}

func (s pauseGoesInSettle) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleUnpauses(settlements, func(p *store.Settlement) bool { return p.Advances() && !p.Next.Over })
}

func (s pauseGoesInPark) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleUnpauses(settlements, func(p *store.Settlement) bool { return p.How == store.SettlePark })
}

func (s pauseGoesInRest) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleUnpauses(settlements, func(p *store.Settlement) bool { return p.How == store.SettleRest })
}

func (s pauseGoesAtTheEnd) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.settleUnpauses(settlements, func(p *store.Settlement) bool { return p.Next.Over })
}

func (s pauseGoesToChild) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendDetached(settlements, func(old *Row, r *postdate.Record) { r.Paused = old.Paused })
}

func (s pauseGoesInUnpark) Unpark(_ context.Context, u store.Unpark) (int, int, error) {
	return s.unparkAmended(u, func(r *postdate.Record) { r.Paused = false })
}

func (s pauseGoesInCancel) Cancel(_ context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	return s.cancelAmended(keys, at, func(r *postdate.Record, _ *store.Cancelled) { r.Paused = false })
}

func (s scanLosesPaused) Claim(_ context.Context, claims []store.Claim) []store.ClaimResult {
	return s.claimAmended(claims, func(r *postdate.Record) { r.Paused = false })
}

func (s listLosesPaused) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	for i := range page.Records {
		page.Records[i].Paused = false
	}
	return page, err
}

// Pause reads a series, and writes it as it was, paused, after others had their turn.
func (s pauseRaces) Pause(ctx context.Context, series postdate.Key, version uint64) error {
	r := s.present(series)
	if store.CheckGoingOn(series, r.State, version) != nil {
		return s.Mem.Pause(ctx, series, version)
	}
	yield()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.amend(series, func(now *postdate.Record) { *now, now.Paused = r, true })
	return nil
}

// What is settled is read before others have their turn.
func (s settleRacesPause) Settle(ctx context.Context, settlements []store.Settlement) error {
	paused := map[postdate.Key]bool{}
	for _, p := range settlements {
		paused[p.Key] = s.present(p.Key).Paused
	}
	yield()
	return s.amendSettled(settlements, func(_ *Row, p *store.Settlement, r *postdate.Record) { r.Paused = paused[p.Key] })
}

// Replace does not look at pauses after it has looked once.
func (s replaceRacesPause) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	if r := s.present(next.Key); r.Same(&was) {
		yield()
		was.Paused = s.present(next.Key).Paused
	}
	return s.Mem.Replace(ctx, next, was)
}

// amendRested settles, and amends each series that is to rest and is not ending.
func (m *Mem) amendRested(settlements []store.Settlement, change func(old *Row, r *postdate.Record)) error {
	return m.amendSettled(settlements, func(old *Row, p *store.Settlement, r *postdate.Record) {
		if p.How == store.SettleRest && r.Status == postdate.Pending {
			change(old, r)
		}
	})
}

func (s restGoesOn) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendRested(settlements, func(_ *Row, r *postdate.Record) { r.Occurrence, r.Run = r.Occurrence+every, r.Run+1 })
}

func (s restIsDue) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendRested(settlements, func(old *Row, r *postdate.Record) { r.AttemptTime = old.AttemptTime })
}

func (s restCounts) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendRested(settlements, func(_ *Row, r *postdate.Record) { r.Series.Skipped++ })
}

func (s restStaysParked) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendRested(settlements, func(old *Row, r *postdate.Record) { r.Parked = old.Parked })
}

// restAs settles what is to rest as if the settlement said something else.
func (m *Mem) restAs(settlements []store.Settlement, change func(r *Row, s *store.Settlement)) error {
	return settleChanged(m, settlements, func(p *store.Settlement) bool {
		if r := m.Rows[p.Key]; r != nil && p.How == store.SettleRest {
			change(r, p)
		}
		return true
	})
}

func (s restIgnoresToken) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.restAs(settlements, func(r *Row, p *store.Settlement) { p.Token = s.Records[r.Bucket].Token })
}

func (s restIgnoresVersion) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.restAs(settlements, func(r *Row, p *store.Settlement) { p.Version = r.Version })
}

func (s restIgnoresPlace) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.restAs(settlements, func(r *Row, p *store.Settlement) { p.Occurrence = r.Occurrence })
}

func (s restIgnoresEnding) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.endingAs(settlements, func(p *store.Settlement) bool { return p.How == store.SettleRest })
}

// What was claimed once stays claimed.
func (s restIsTooLate) Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []store.Cancelled {
	results := make([]store.Cancelled, len(keys))
	for i, key := range keys {
		if r := s.present(key); r.Status == postdate.Pending && r.AttemptTime == postdate.Far {
			results[i] = store.Cancelled{State: r.State, Err: store.ErrTooLate(key, r.State)}
		} else {
			results[i] = s.Mem.Cancel(ctx, []postdate.Key{key}, at)[0]
		}
	}
	return results
}

func (s restCannotBeReplaced) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	if r := s.present(next.Key); r.Status == postdate.Pending && r.AttemptTime == postdate.Far {
		return r, store.ErrTooLate(next.Key, r.State)
	}
	return s.Mem.Replace(ctx, next, was)
}

// triggerAmended triggers, and changes the series and its extra occurrence.
func (m *Mem) triggerAmended(series postdate.Key, version uint64, at postdate.Time,
	change func(series, extra *postdate.Record)) error {
	was := m.present(series)
	err := m.Trigger(context.Background(), series, version, at)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		extra := m.Rows[was.Alone(at).Key].Record
		m.amend(series, func(r *postdate.Record) { change(r, &extra) })
		m.amend(extra.Key, func(r *postdate.Record) { *r = extra })
	}
	return err
}

func (s triggerMakesNothing) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	err := s.Mem.Trigger(ctx, series, version, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.Rows[series]; err == nil {
		s.Drop(s.Rows[r.Alone(at).Key])
	}
	return err
}

func (s triggerNeverCounts) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) { r.Series.Fired-- })
}

func (s triggerCountsTwice) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) { r.Series = r.Series.Triggered(at) })
}

func (s triggerNotesNothing) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) {
		r.Series.History = r.Series.History[:len(r.Series.History)-1]
	})
}

func (s triggerRaisesVersion) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) { r.Version++ })
}

func (s triggerMovesSeries) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) { r.Run++ })
}

func (s triggerUnparks) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) { r.Parked = false })
}

func (s triggerResumes) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, _ *postdate.Record) { r.Paused = false })
}

// An extra occurrence has the version at which its series was created.
func (s triggerIsOfBirth) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, extra *postdate.Record) { extra.Version -= uint64(r.Changes) })
}

func (s triggerRecurs) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, extra *postdate.Record) { extra.Recurrence = r.Recurrence })
}

func (s triggerIsDueLater) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, extra *postdate.Record) { extra.AttemptTime = r.AttemptTime })
}

func (s triggerIsPaused) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(r, extra *postdate.Record) { extra.Paused = r.Paused })
}

func (s triggerLosesMessage) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(_, extra *postdate.Record) { extra.Headers = nil })
}

func (s triggerIsUncounted) Trigger(_ context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	return s.triggerAmended(series, version, at, func(_, extra *postdate.Record) { s.count(&Row{Record: *extra}, -1) })
}

// taken says whether the id of an extra occurrence is taken.
func (m *Mem) taken(series postdate.Key, at postdate.Time) (r postdate.Record, yes bool) {
	was := m.present(series)
	r = m.present(was.Alone(at).Key)
	return r, r.Status != 0
}

func (s triggerOverwrites) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	r, yes := s.taken(series, at)
	err := s.Mem.Trigger(ctx, series, version, at)
	if yes {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.amend(r.Key, func(r *postdate.Record) { r.State = postdate.NewState(&r.Message, version) })
	}
	return err
}

func (s triggerCountsTaken) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	err := s.Mem.Trigger(ctx, series, version, at)
	if _, yes := s.taken(series, at); yes && err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.amend(series, func(r *postdate.Record) { r.Series = r.Series.Triggered(at) })
	}
	return err
}

func (s triggerIsIdempotent) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	if _, yes := s.taken(series, at); yes {
		return nil
	}
	return s.Mem.Trigger(ctx, series, version, at)
}

func (s triggerIgnoresVersion) Trigger(ctx context.Context, series postdate.Key, _ uint64, at postdate.Time) error {
	return s.Mem.Trigger(ctx, series, s.present(series).Version, at)
}

// makes makes the extra occurrence of a message, whatever that is.
func (m *Mem) makes(r *postdate.Record, at postdate.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if extra := postdate.NewRecord(r.Alone(at), r.Version); m.Rows[extra.Key] == nil {
		m.Put("", nil, extra, nil)
	}
}

func (s triggerTakesEnding) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	if r := s.present(series); r.Ending {
		s.makes(&r, at)
		return nil
	}
	return s.Mem.Trigger(ctx, series, version, at)
}

func (s triggerTakesSingles) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	if r := s.present(series); r.Status == postdate.Pending && r.Occurrence == 0 && r.Version == version {
		s.makes(&r, at)
	}
	return s.Mem.Trigger(ctx, series, version, at)
}

func (s triggerNeedsUnclaimed) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	if s.claimedNow(series) {
		return store.ErrTooLate(series, s.present(series).State)
	}
	return s.Mem.Trigger(ctx, series, version, at)
}

func (s triggerNeedsUnpaused) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	if s.present(series).Paused {
		return store.ErrChanged(series)
	}
	return s.Mem.Trigger(ctx, series, version, at)
}

// Trigger looks whether it may, and makes the message after others had their turn.
func (s triggerRaces) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	r := s.present(series)
	if _, yes := s.taken(series, at); yes || store.CheckGoingOn(series, r.State, version) != nil {
		return s.Mem.Trigger(ctx, series, version, at)
	}
	yield()
	s.makes(&r, at)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.amend(series, func(r *postdate.Record) { r.Series = r.Series.Triggered(at) })
	return nil
}

// The message is made after its series has counted it, and others had their turn.
func (s triggerComesLater) Trigger(ctx context.Context, series postdate.Key, version uint64, at postdate.Time) error {
	s.mu.Lock()
	err := store.ErrNotFound(series)
	if r := s.Rows[series]; r != nil {
		err = store.CheckGoingOn(series, r.State, version)
	}
	if err != nil || s.Rows[(&postdate.Message{Key: series}).Alone(at).Key] != nil {
		s.mu.Unlock()
		return s.Mem.Trigger(ctx, series, version, at)
	}
	r := s.Rows[series].Record
	s.amend(series, func(r *postdate.Record) { r.Series = r.Series.Triggered(at) })
	s.mu.Unlock()
	yield()
	s.makes(&r, at)
	return nil
}

// Replace writes the counts that were read before others had their turn.
func (s triggerLosesCount) Replace(ctx context.Context, next, was postdate.Record) (postdate.Record, error) {
	if r := s.present(next.Key); r.Same(&was) {
		yield()
		now := s.present(next.Key)
		was.Series.Fired = now.Series.Fired
	}
	return s.Mem.Replace(ctx, next, was)
}

// These bugs are caught in the area of series that are changed, paused and triggered.
var bugsInChanges = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return changeIgnoresPaused{m} },
	func(m *Mem) store.Store { return changeIgnoresFired{m} },
	func(m *Mem) store.Store { return changeIgnoresFailed{m} },
	func(m *Mem) store.Store { return changeIgnoresSkipped{m} },
	func(m *Mem) store.Store { return changeIgnoresOccurrence{m} },
	func(m *Mem) store.Store { return changeIgnoresVersion{m} },
	func(m *Mem) store.Store { return changeIgnoresClaim{m} },
	func(m *Mem) store.Store { return changeAnswersPart{m} },
	func(m *Mem) store.Store { return changeLosesCounts{m} },
	func(m *Mem) store.Store { return changeLosesHistory{m} },
	func(m *Mem) store.Store { return changeLosesChanges{m} },
	func(m *Mem) store.Store { return changeBeginsRunAnew{m} },
	func(m *Mem) store.Store { return changeKeepsPlace{m} },
	func(m *Mem) store.Store { return changeKeepsMessage{m} },
	func(m *Mem) store.Store { return changeKeepsHeaders{m} },
	func(m *Mem) store.Store { return changeKeepsParked{m} },
	func(m *Mem) store.Store { return changeKeepsVersion{m} },
	func(m *Mem) store.Store { return changeKeepsBytes{m} },
	func(m *Mem) store.Store { return changeInserts{m} },
	func(m *Mem) store.Store { return changeRaces{m} },
	func(m *Mem) store.Store { return changesGoInSettle{m} },
	func(m *Mem) store.Store { return ownsOnlyPresent{m} },
	func(m *Mem) store.Store { return ownsEveryVersion{m} },
	func(m *Mem) store.Store { return pauseNeedsUnclaimed{m} },
	func(m *Mem) store.Store { return pauseNeedsUnparked{m} },
	func(m *Mem) store.Store { return pauseIsForgotten{m} },
	func(m *Mem) store.Store { return pauseRaisesVersion{m} },
	func(m *Mem) store.Store { return pauseIgnoresVersion{m} },
	func(m *Mem) store.Store { return pauseTakesEnding{m} },
	func(m *Mem) store.Store { return pauseTakesSingles{m} },
	func(m *Mem) store.Store { return pauseTakesOver{m} },
	func(m *Mem) store.Store { return pauseOnce{m} },
	func(m *Mem) store.Store { return pauseRestsAtOnce{m} },
	func(m *Mem) store.Store { return pauseGoesInSettle{m} },
	func(m *Mem) store.Store { return pauseGoesInPark{m} },
	func(m *Mem) store.Store { return pauseGoesInRest{m} },
	func(m *Mem) store.Store { return pauseGoesAtTheEnd{m} },
	func(m *Mem) store.Store { return pauseGoesToChild{m} },
	func(m *Mem) store.Store { return pauseGoesInUnpark{m} },
	func(m *Mem) store.Store { return pauseGoesInCancel{m} },
	func(m *Mem) store.Store { return scanLosesPaused{m} },
	func(m *Mem) store.Store { return listLosesPaused{m} },
	func(m *Mem) store.Store { return pauseRaces{m} },
	func(m *Mem) store.Store { return settleRacesPause{m} },
	func(m *Mem) store.Store { return replaceRacesPause{m} },
	func(m *Mem) store.Store { return restGoesOn{m} },
	func(m *Mem) store.Store { return restIsDue{m} },
	func(m *Mem) store.Store { return restCounts{m} },
	func(m *Mem) store.Store { return restStaysParked{m} },
	func(m *Mem) store.Store { return restIgnoresToken{m} },
	func(m *Mem) store.Store { return restIgnoresVersion{m} },
	func(m *Mem) store.Store { return restIgnoresPlace{m} },
	func(m *Mem) store.Store { return restIgnoresEnding{m} },
	func(m *Mem) store.Store { return restIsTooLate{m} },
	func(m *Mem) store.Store { return restCannotBeReplaced{m} },
	func(m *Mem) store.Store { return triggerMakesNothing{m} },
	func(m *Mem) store.Store { return triggerNeverCounts{m} },
	func(m *Mem) store.Store { return triggerCountsTwice{m} },
	func(m *Mem) store.Store { return triggerNotesNothing{m} },
	func(m *Mem) store.Store { return triggerOverwrites{m} },
	func(m *Mem) store.Store { return triggerCountsTaken{m} },
	func(m *Mem) store.Store { return triggerIsIdempotent{m} },
	func(m *Mem) store.Store { return triggerIgnoresVersion{m} },
	func(m *Mem) store.Store { return triggerTakesEnding{m} },
	func(m *Mem) store.Store { return triggerTakesSingles{m} },
	func(m *Mem) store.Store { return triggerNeedsUnclaimed{m} },
	func(m *Mem) store.Store { return triggerNeedsUnpaused{m} },
	func(m *Mem) store.Store { return triggerUnparks{m} },
	func(m *Mem) store.Store { return triggerResumes{m} },
	func(m *Mem) store.Store { return triggerRaisesVersion{m} },
	func(m *Mem) store.Store { return triggerMovesSeries{m} },
	func(m *Mem) store.Store { return triggerIsOfBirth{m} },
	func(m *Mem) store.Store { return triggerRecurs{m} },
	func(m *Mem) store.Store { return triggerIsDueLater{m} },
	func(m *Mem) store.Store { return triggerIsPaused{m} },
	func(m *Mem) store.Store { return triggerLosesMessage{m} },
	func(m *Mem) store.Store { return triggerIsUncounted{m} },
	func(m *Mem) store.Store { return triggerRaces{m} },
	func(m *Mem) store.Store { return triggerComesLater{m} },
	func(m *Mem) store.Store { return triggerLosesCount{m} },
}
