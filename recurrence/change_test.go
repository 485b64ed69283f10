package recurrence_test

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/recurrence"
)

const born = postdate.Time(1_800_000_000_000)

// running is a series of each ten seconds whose third occurrence is present, and which was fired twice.
func running(edit func(r *postdate.Recurrence)) postdate.Record {
	rule := postdate.Recurrence{Every: 10 * time.Second}
	edit(&rule)
	m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: "s"}, CreatedAt: born, Recurrence: &rule}
	if err := recurrence.Begin(&m, born); err != nil {
		panic(err)
	}
	r := postdate.NewRecord(m, 7)
	r.Occurrence, r.Run, r.AttemptTime = born+30_000, 3, born+30_000
	for at := m.First; at < r.Occurrence; at += 10_000 {
		r.Series = r.Series.Add(postdate.Outcome{Occurrence: at, Status: postdate.Delivered, At: at + 3, Attempts: 1})
	}
	return r
}

func asItIs(*postdate.Recurrence) {}

// changes are changes, pauses and resumes of a series, and what follows.
var changes = []struct {
	name          string
	was           func(r *postdate.Recurrence)
	paused        bool // before
	to            func(r *postdate.Recurrence)
	pause         bool // afterwards
	now           postdate.Time
	next, attempt postdate.Time // after born; 0: none
	skipped       int64
}{
	{"nothing", asItIs, false, asItIs, false, 25_000, 30_000, 30_000, 0},
	{"nothing, when it is due", asItIs, false, asItIs, false, 45_000, 30_000, 30_000, 0},
	{"paused", asItIs, false, asItIs, true, 25_000, 30_000, 30_000, 0},
	{"paused, when it is due", asItIs, false, asItIs, true, 30_000, 30_000, postdate.Far - born, 0},
	{"paused, and stays so", asItIs, true, asItIs, true, 45_000, 30_000, postdate.Far - born, 0},
	{"resumed before it is due", asItIs, true, asItIs, false, 29_999, 30_000, 30_000, 0},
	{"resumed when it is due", asItIs, true, asItIs, false, 30_000, 40_000, 40_000, 1},
	{"resumed later", asItIs, true, asItIs, false, 65_000, 70_000, 70_000, 4},
	{"resumed by a clock that is behind", asItIs, true, asItIs, false, -5_000, 30_000, 30_000, 0},
	{"another rule", asItIs, false, func(r *postdate.Recurrence) { r.Every = 4 * time.Second }, false,
		25_000, 28_000, 28_000, 0},
	{"another rule, when it is due", asItIs, false, func(r *postdate.Recurrence) { r.Every = 4 * time.Second }, false,
		31_000, 32_000, 32_000, 1},
	{"another rule, by a clock that is behind", asItIs, false,
		func(r *postdate.Recurrence) { r.Every = 4 * time.Second }, false, 5_000, 24_000, 24_000, 0},
	{"another policy, when it is due", asItIs, false,
		func(r *postdate.Recurrence) { r.Misfire, r.MisfireAfter = postdate.MisfireAll, time.Hour }, false,
		45_000, 30_000, 30_000, 0},
	{"another policy, and resumed", asItIs, true, func(r *postdate.Recurrence) { r.Misfire = postdate.MisfireAll }, false,
		45_000, 50_000, 50_000, 2},
	{"another end, when it is due", asItIs, false, func(r *postdate.Recurrence) { r.End = born + 60_000 }, false,
		45_000, 30_000, 30_000, 0},
	{"an end that leaves what is due", asItIs, false, func(r *postdate.Recurrence) { r.End = born + 30_000 }, false,
		45_000, 30_000, 30_000, 0},
	{"an end before what is due", asItIs, false, func(r *postdate.Recurrence) { r.End = born + 29_999 }, false,
		45_000, 0, 0, 0},
	{"as many runs, when it is due", asItIs, false, func(r *postdate.Recurrence) { r.MaxRuns = 3 }, false,
		45_000, 30_000, 30_000, 0},
	{"another start, when it is due", asItIs, false, func(r *postdate.Recurrence) { r.Start = born + 1_000 }, false,
		45_000, 51_000, 51_000, 2},
	{"another rule of a paused series", asItIs, true, func(r *postdate.Recurrence) { r.Every = 4 * time.Second }, true,
		51_000, 52_000, 52_000, 3},
	{"the last one, which is missed, has no number", func(r *postdate.Recurrence) { r.MaxRuns = 3 }, true, asItIs, false,
		65_000, 70_000, 70_000, 4},
	{"an end that is over", asItIs, false, func(r *postdate.Recurrence) { r.End = born + 26_000 }, false,
		25_000, 0, 0, 0},
	{"resumed after the end", func(r *postdate.Recurrence) { r.End = born + 50_000 }, true, asItIs, false,
		65_000, 0, 0, 0},
	{"fewer runs than there were", asItIs, false, func(r *postdate.Recurrence) { r.MaxRuns = 2 }, false, 25_000, 0, 0, 0},
	{"as many runs as with the next", asItIs, false, func(r *postdate.Recurrence) { r.MaxRuns = 3 }, false,
		25_000, 30_000, 30_000, 0},
}

// What becomes of a series that is changed, paused or resumed.
func TestChange(t *testing.T) {
	for _, c := range changes {
		old := running(c.was)
		old.Paused = c.paused
		m, rule := old.Message, *old.Recurrence
		c.to(&rule)
		m.Recurrence, m.Payload = &rule, []byte("new")
		next, err := recurrence.Change(&old, m, c.pause, born+c.now)
		if c.next == 0 {
			if postdate.KindOf(err) != postdate.KindInvalid || err == nil {
				t.Errorf("%s: %+v, %v", c.name, next.State, err)
			}
			continue
		}
		want := postdate.State{Status: postdate.Pending, Version: 8, Changes: 1, Run: 3, Paused: c.pause,
			Occurrence: born + c.next, AttemptTime: born + c.attempt}
		if err != nil || next.State != want {
			t.Errorf("%s: %+v, %v\nwant %+v", c.name, next.State, err, want)
		}
		if s := next.Series; s.Fired != 2 || s.Skipped != c.skipped || string(next.Payload) != "new" ||
			next.First != old.First || next.ExecutionTime != old.ExecutionTime {
			t.Errorf("%s: %+v, first %d", c.name, s, next.First-born)
		}
	}
}

// A series that has not begun begins as the new rule says, also sooner. One that has begun keeps its place.
func TestChangeBeforeTheFirst(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: "s"}, CreatedAt: born,
		Recurrence: &postdate.Recurrence{Every: time.Hour, Start: born + 86_400_000}}
	if err := recurrence.Begin(&m, born); err != nil {
		t.Fatal(err)
	}
	old := postdate.NewRecord(m, 1)
	old.Series = old.Series.Triggered(born + 500) // which is no beginning
	m.Recurrence = &postdate.Recurrence{Every: time.Minute, Jitter: 30 * time.Second}
	next, err := recurrence.Change(&old, m, false, born+1_000)
	if err != nil || next.First != born+60_000 || next.Occurrence != next.First ||
		next.ExecutionTime != next.AttemptTime || next.AttemptTime < next.First || next.NotBefore() > next.AttemptTime {
		t.Errorf("%+v, first %d, %v", next, next.First-born, err)
	}
}

// A first occurrence whose time with its jitter has come stays until then, also without jitter: another node's
// clock may be behind.
func TestChangeOfJitter(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: "s"}, CreatedAt: born,
		Recurrence: &postdate.Recurrence{Every: time.Hour, Jitter: time.Hour}}
	if err := recurrence.Begin(&m, born); err != nil {
		t.Fatal(err)
	}
	old := postdate.NewRecord(m, 1)
	m.Recurrence = &postdate.Recurrence{Every: time.Hour}
	for now, want := range map[postdate.Time]postdate.Time{
		old.ExecutionTime: old.ExecutionTime, old.ExecutionTime - 1: old.First, born: old.First,
	} {
		next, err := recurrence.Change(&old, m, false, now)
		if err != nil || next.Occurrence != old.First || next.AttemptTime != want || next.ExecutionTime != want {
			t.Errorf("at %d: %+v, %v", now-born, next.State, err)
		}
	}
}

// A series whose first occurrence is due keeps its place: that one is skipped.
func TestChangeAtTheFirst(t *testing.T) {
	m := postdate.Message{Key: postdate.Key{Tenant: "t", ScheduleID: "s"}, CreatedAt: born,
		Recurrence: &postdate.Recurrence{Every: time.Minute}}
	if err := recurrence.Begin(&m, born); err != nil {
		t.Fatal(err)
	}
	old := postdate.NewRecord(m, 1)
	m.Recurrence = &postdate.Recurrence{Every: time.Hour}
	next, err := recurrence.Change(&old, m, false, old.ExecutionTime)
	if err != nil || next.First != born+60_000 || next.ExecutionTime != next.First || next.Series.Skipped != 1 ||
		next.Occurrence != born+3_600_000 {
		t.Errorf("%+v, %v", next, err)
	}
}

// An occurrence out of turn has a time of its own.
func TestExtra(t *testing.T) {
	r := running(asItIs)
	for now, want := range map[postdate.Time]postdate.Time{
		25_000: 25_000, 30_000: 30_001, 40_000: 40_001, 10_000: 20_001, 20_000: 20_001,
	} {
		if at, err := recurrence.Extra(&r, born+now); err != nil || at != born+want {
			t.Errorf("at %d: %d, %v; want %d", now, at-born, err, want)
		}
	}
	r.Series = r.Series.Triggered(born + 29_999)
	if at, err := recurrence.Extra(&r, born+29_999); err != nil || at != born+30_001 {
		t.Errorf("after another one: %d, %v", at-born, err)
	}
}
