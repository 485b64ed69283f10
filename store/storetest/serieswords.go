package storetest

import (
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const (
	every = postdate.Time(60_000) // between two occurrences of a series
	delay = postdate.Time(70)     // between an occurrence and its begin: the jitter
)

// recurring makes a message a series, the first occurrence of which is at its execution time.
func recurring(m *postdate.Message) {
	m.First, m.ExecutionTime = m.ExecutionTime, m.ExecutionTime+delay
	m.Recurrence = &postdate.Recurrence{Every: time.Minute, Anchor: m.First, Jitter: time.Second}
}

// single makes a series a message that is sent once.
func single(m *postdate.Message) { m.ExecutionTime, m.First, m.Recurrence = m.First, 0, nil }

// addSeries makes and inserts a series.
func (x *trial) addSeries(first postdate.Time, edits ...edit) postdate.Message {
	x.Helper()
	return x.add(first, append(edits, recurring)...)
}

// occurrence is the time of a series' occurrence with the given number.
func occurrence(m postdate.Message, run int) postdate.Time {
	return m.First + postdate.Time(run-1)*every
}

// begins is when it is due.
func begins(m postdate.Message, run int) postdate.Time { return occurrence(m, run) + delay }

// alone is that occurrence as a message of its own.
func alone(m postdate.Message, run int) postdate.Message {
	return m.Alone(occurrence(m, run))
}

// advances are the ways to settle with which a series goes on.
var advances = []store.Settling{store.SettleDelivered, store.SettleFailed, store.SettleSkip, store.SettleRetry}

// goesOn is a settlement of a series' occurrence with the given number: the next one follows.
func (x *trial) goesOn(m postdate.Message, token uint64, how store.Settling, run int) store.Settlement {
	s := x.settlement(m, token, how)
	s.Occurrence, s.At = occurrence(m, run), begins(m, run)+5
	s.Next = store.Next{Occurrence: occurrence(m, run+1), AttemptTime: begins(m, run+1)}
	switch how {
	case store.SettleRetry:
		s.AttemptTime = begins(m, run) + 10_000
	case store.SettleSkip:
		s.Attempts, s.Next.Skipped = 0, 1
	}
	return s
}

// isOver is a settlement of a series' last occurrence.
func (x *trial) isOver(m postdate.Message, token uint64, how store.Settling, run int) store.Settlement {
	s := x.goesOn(m, token, how, run)
	s.Next = store.Next{Over: true, Skipped: s.Next.Skipped}
	return s
}

// parks is a settlement after which a series waits with its present occurrence.
func (x *trial) parks(m postdate.Message, token uint64, run int) store.Settlement {
	s := x.goesOn(m, token, store.SettlePark, run)
	s.Next, s.AttemptTime = store.Next{}, begins(m, run)+10_000
	return s
}

// settled settles, expects the state and the counts that follow, and returns them.
func (x *trial) settled(s store.Settlement) postdate.Record {
	x.Helper()
	want := x.get(s.Key)
	want.State, want.Series, want.Log = s.State(want.State), s.Series(want.State, want.Series), s.Log(want.Log)
	x.settle(s)
	x.wantRecord(x.get(s.Key), want)
	return want
}

// nothing expects that these settlements change nothing of the messages.
func (x *trial) nothing(keys []postdate.Key, settlements ...store.Settlement) {
	x.Helper()
	var before []postdate.Record
	for _, key := range keys {
		before = append(before, x.get(key))
	}
	x.settle(settlements...)
	for _, r := range before {
		x.wantRecord(x.get(r.Key), r)
	}
}

// detach claims a series' occurrence and lets it be retried as a message of its own.
func (x *trial) detach(m postdate.Message, token uint64, run int) postdate.Message {
	x.Helper()
	x.claim(everything(m.Bucket, token, begins(m, run)))
	s := x.goesOn(m, token, store.SettleRetry, run)
	s.Version = x.get(m.Key).Version
	x.settle(s)
	child := alone(m, run)
	x.first[child.Key] = s.Version
	x.get(child.Key)
	return child
}

// asChanged is what becomes of a series that is changed and stays the same: present is the number of the
// occurrence that is due next.
func asChanged(was postdate.Record, present int, edits ...edit) postdate.Record {
	next := was
	for _, e := range edits {
		e(&next.Message)
	}
	next.Digest = postdate.DigestOf(&next.Message, next.ExecutionTime.String())
	next.State = postdate.State{
		Status: postdate.Pending, Version: was.Version + 1, Changes: was.Changes + 1, Run: was.Run, Paused: was.Paused,
		Occurrence: occurrence(next.Message, present), AttemptTime: begins(next.Message, present),
	}
	return next
}

// puts puts next in the place of was, and expects it to be there then.
func (x *trial) puts(next, was postdate.Record) {
	x.Helper()
	got, err := x.store.Replace(x.ctx, next, was)
	if err != nil {
		x.Fatalf("Replace of %s at version %d: %v", was.ScheduleID, was.Version, err)
	}
	x.wantRecord(got, next)
	x.wantRecord(x.get(next.Key), next)
}

// changes changes a series, and returns its message.
func (x *trial) changes(m postdate.Message, present int, edits ...edit) postdate.Message {
	x.Helper()
	was := x.get(m.Key)
	next := asChanged(was, present, edits...)
	x.puts(next, was)
	return next.Message
}

// pause pauses a series, which changes nothing else of it, however often.
func (x *trial) pause(m postdate.Message) {
	x.Helper()
	want := x.get(m.Key)
	want.Paused = true
	for range 2 {
		if err := x.store.Pause(x.ctx, m.Key, want.Version); err != nil {
			x.Fatalf("Pause of %s at version %d: %v", m.ScheduleID, want.Version, err)
		}
		x.wantRecord(x.get(m.Key), want)
	}
}

// rests is a settlement after which a series waits with its present occurrence until it is resumed.
func (x *trial) rests(m postdate.Message, token uint64, run int) store.Settlement {
	s := x.after(x.goesOn(m, token, store.SettleRest, run))
	s.Next, s.Attempts, s.At = store.Next{}, 0, 0
	return s
}

// trigger makes an extra occurrence of a series, and returns that as a message of its own.
func (x *trial) trigger(m postdate.Message, at postdate.Time) postdate.Message {
	x.Helper()
	want := x.get(m.Key)
	want.Series = want.Series.Add(postdate.Outcome{Occurrence: at, Status: postdate.Pending, At: at})
	if err := x.store.Trigger(x.ctx, m.Key, want.Version, at); err != nil {
		x.Fatalf("Trigger of %s at version %d: %v", m.ScheduleID, want.Version, err)
	}
	x.wantRecord(x.get(m.Key), want)
	child := want.Alone(at)
	x.first[child.Key] = want.Version
	x.wantRecord(x.get(child.Key), fresh(child))
	return child
}

// wantFound expects that a claim finds exactly these records. It may leave out what became of
// a series.
func (x *trial) wantFound(c store.Claim, want ...postdate.Record) {
	x.Helper()
	got := x.due(c)
	var messages []postdate.Message
	for _, r := range want {
		messages = append(messages, r.Message)
	}
	x.wantIDs("a scan", idsOf(got), messages...)
	for i := range min(len(got), len(want)) {
		got[i].Series, got[i].Log = want[i].Series, want[i].Log
		x.wantRecord(got[i], want[i])
	}
}

// wantSeries expects these counts.
func (x *trial) wantSeries(m postdate.Message, fired, failed, skipped int64) {
	x.Helper()
	if s := x.get(m.Key).Series; s.Fired != fired || s.Failed != failed || s.Skipped != skipped {
		x.broken("of %s %d occurrences were begun, %d failed and %d were skipped: want %d, %d and %d",
			m.ScheduleID, s.Fired, s.Failed, s.Skipped, fired, failed, skipped)
	}
}

// wantRetried expects that exactly these occurrences of a series are pending as messages of
// their own.
func (x *trial) wantRetried(series postdate.Key, want ...postdate.Message) {
	x.Helper()
	keys, err := x.store.Retried(x.ctx, series)
	if err != nil {
		x.Fatalf("Retried: %v", err)
	}
	ids := func(keys []postdate.Key) (ids []string) {
		for _, k := range keys {
			ids = append(ids, k.Tenant+" "+k.ScheduleID)
		}
		slices.Sort(ids)
		return ids
	}
	if got, want := ids(keys), ids(keysOf(want)); !slices.Equal(got, want) {
		x.broken("of %s %v are retried, want %v", series.ScheduleID, got, want)
	}
	for _, k := range keys {
		if k.Bucket != series.Bucket {
			x.broken("%s is in bucket %d, its series in %d", k.ScheduleID, k.Bucket, series.Bucket)
		}
	}
}
