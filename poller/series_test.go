package poller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

const seriesRoute = postdate.Route("inbox:series")

// sent is one publish of an occurrence.
type sent struct {
	occurrence, at postdate.Time
	attempt        int
	marked         bool
}

// addSeries stores a series, and notes what is sent of it.
func (s *shop) addSeries(r postdate.Recurrence) (key postdate.Key, all *[]sent) {
	s.t.Helper()
	m := postdate.Message{
		Key:     postdate.Key{Bucket: 0, Tenant: postdate.DefaultTenant, ScheduleID: "series"},
		Channel: seriesRoute.Channel(), CreatedAt: s.now.Wall, Recurrence: &r,
	}
	if err := recurrence.Begin(&m, s.now.Wall); err != nil {
		s.t.Fatal(err)
	}
	if res := s.store.Insert(s.t.Context(), []postdate.Message{m}); res[0].Err != nil {
		s.t.Fatal(res[0].Err)
	}
	all = new([]sent)
	s.watch = func(e Effect) {
		p, is := e.(Publish)
		if !is {
			return
		}
		for _, it := range p.Batch {
			d := it.Delivery
			if want := "series/" + d.Message.ExecutionTime.String(); d.Message.ScheduleID != want {
				s.t.Errorf("sent as %s, want %s", d.Message.ScheduleID, want)
			}
			*all = append(*all, sent{d.Message.ExecutionTime, s.now.Wall, d.Attempt, d.PossibleDuplicate})
		}
	}
	s.nudge(0, m.ExecutionTime.Sub(s.now.Wall))
	return m.Key, all
}

// wantOccurrences checks which were sent, each once.
func wantOccurrences(t *testing.T, what string, all []sent, from postdate.Time, every time.Duration, n int) {
	t.Helper()
	var got, want []postdate.Time
	for _, s := range all {
		got = append(got, s.occurrence)
	}
	for i := range n {
		want = append(want, from.Add(time.Duration(i)*every))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: sent %d, %v\nwant %d, %v", what, len(got), got[:min(len(got), 10)], len(want), want[:min(len(want), 10)])
	}
}

// passedOn gives the first bucket to a next owner, and returns its record.
func (s *shop) passedOn() bucket.Partition {
	s.store.Records[0].Token++
	return s.store.Records[0]
}

// An hour's occurrences are sent each once and in time, none marked, and the last one is where the rule
// has it: nothing adds up.
func TestSeriesDoesNotDrift(t *testing.T) {
	s := newShop(t, 1, nil)
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.sleep(time.Hour)
	wantOccurrences(t, "each second", *all, begin.Add(time.Second), time.Second, 3599)
	for _, o := range *all {
		if late := o.at.Sub(o.occurrence); late < ms || late > 100*ms || o.marked || o.attempt != 1 {
			t.Fatalf("%+v is %s late", o, late)
		}
	}
	row := s.store.Rows[key]
	if row.Occurrence != begin.Add(time.Hour) || row.Run != 3600 || row.Series.Fired != 3599 || row.Series.Skipped != 0 ||
		row.Attempts != 0 || len(row.Series.History) != postdate.HistoryMax {
		t.Errorf("it goes on as %+v", row.State)
	}
}

// Jitter moves when an occurrence begins, and nothing else.
func TestSeriesWithJitter(t *testing.T) {
	s := newShop(t, 1, nil)
	begin := s.now.Wall
	_, all := s.addSeries(postdate.Recurrence{Every: 10 * time.Second, Jitter: 5 * time.Second})
	s.sleep(1000 * time.Second)
	wantOccurrences(t, "with jitter", *all, begin.Add(10*time.Second), 10*time.Second, len(*all))
	if len(*all) < 98 {
		t.Errorf("only %d were sent", len(*all))
	}
	later := 0
	for _, o := range *all {
		if late := o.at.Sub(o.occurrence); late < ms || late > 5100*ms {
			t.Errorf("%+v is %s late", o, late)
		} else if late > time.Second {
			later++
		}
	}
	if later < 60 {
		t.Errorf("only %d were moved by more than a second", later)
	}
}

// A series ends with its last run, or with its last occurrence before its end.
func TestSeriesIsOver(t *testing.T) {
	for name, r := range map[string]postdate.Recurrence{
		"runs": {Every: time.Second, MaxRuns: 3},
		"end":  {Every: time.Second, End: 1_900_000_000_000 + 3_500},
	} {
		s := newShop(t, 1, nil)
		begin := s.now.Wall
		key, all := s.addSeries(r)
		s.sleep(10 * time.Second)
		wantOccurrences(t, name, *all, begin.Add(time.Second), time.Second, 3)
		if row := s.store.Rows[key]; row.Status != postdate.Delivered || row.Series.Fired != 3 || row.SettledAt == 0 {
			t.Errorf("%s: it ended as %+v", name, row.State)
		}
	}
}

// An occurrence that is refused is tried again on its own, with its own attempts, and holds up nothing.
func TestSeriesGoesOnWhileAnOccurrenceIsRetried(t *testing.T) {
	s := newMuteShop(t, 1, func(c *Config) { c.Retry.MinBackoff, c.Retry.MaxBackoff = 3*time.Second, 3*time.Second })
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second, MaxRuns: 8})
	s.untilSent()
	s.reply(unknown)
	s.mute = nil
	s.sleep(20 * time.Second)
	var again []sent
	*all = slices.DeleteFunc(*all, func(o sent) bool {
		if o.attempt > 1 {
			again = append(again, o)
		}
		return o.attempt > 1
	})
	wantOccurrences(t, "first attempts", *all, begin.Add(time.Second), time.Second, 8)
	for _, o := range *all {
		if late := o.at.Sub(o.occurrence); late > 100*ms {
			t.Errorf("%+v is %s late", o, late)
		}
	}
	if len(again) != 1 || again[0].occurrence != begin.Add(time.Second) || !again[0].marked || again[0].attempt != 2 ||
		again[0].at.Sub(begin) < 2500*ms {
		t.Errorf("tried again: %+v", again)
	}
	alone := s.store.Rows[postdate.Key{Tenant: key.Tenant, ScheduleID: "series/" + begin.Add(time.Second).String()}]
	if alone.Status != postdate.Delivered || alone.Attempts != 2 {
		t.Errorf("the one that was retried is %+v", alone.State)
	}
	if row := s.store.Rows[key]; row.Series.Fired != 8 || row.Series.Failed != 0 || row.Status != postdate.Delivered {
		t.Errorf("the series is %+v", row)
	}
}

// What was not begun in time, because no node was there, goes as the policy says.
func TestSeriesMisfires(t *testing.T) {
	for _, c := range []struct {
		misfire        postdate.Misfire
		fired, skipped int64 // of the 100
	}{{postdate.MisfireOnce, 61, 39}, {postdate.MisfireAll, 100, 0}, {postdate.MisfireSkip, 60, 40}} {
		s := openShop(t, nil)
		begin := s.now.Wall
		key, all := s.addSeries(postdate.Recurrence{Every: time.Second, Misfire: c.misfire, MisfireAfter: 59*time.Second + 900*ms})
		s.after(100*time.Second + 50*ms)
		s.renew()
		s.gain(s.partitions(1)...)
		s.run(900 * ms)
		row := s.store.Rows[key]
		if row.Series.Fired != c.fired || row.Series.Skipped != c.skipped || row.Run != 101 ||
			row.Occurrence != begin.Add(101*time.Second) {
			t.Errorf("misfire %d: %+v, goes on with %+v", c.misfire, row.Series, row.State)
		}
		for _, o := range row.Series.History {
			if o.At < begin.Add(100*time.Second) {
				t.Errorf("misfire %d: %+v", c.misfire, o)
			}
		}
		wantOccurrences(t, "late", *all, begin.Add(time.Duration(c.skipped+1)*time.Second), time.Second, int(c.fired))
	}
}

// The channel is down for a while: what is not misfired when it is back goes out, and the rest as the
// policy says. The series itself never fails.
func TestSeriesWaitsForItsChannel(t *testing.T) {
	for _, c := range []struct {
		after time.Duration
		skips bool
	}{{time.Hour, false}, {10 * time.Second, true}} {
		s := newShop(t, 1, nil)
		key, all := s.addSeries(postdate.Recurrence{Every: time.Second, MisfireAfter: c.after})
		s.down = every
		s.sleep(200 * time.Second)
		s.down = nil
		tried := len(*all)
		s.sleep(40 * time.Second)
		row := s.store.Rows[key]
		if row.Status != postdate.Pending || row.Series.Failed != 0 || row.Series.Fired+row.Series.Skipped != int64(row.Run-1) ||
			row.Run < 239 {
			t.Errorf("misfire after %s: %+v, %+v", c.after, row.State, row.Series)
		}
		if !c.skips && row.Series.Skipped != 0 || c.skips && (row.Series.Skipped < 150 || row.Series.Fired < 30) {
			t.Errorf("misfire after %s: %+v", c.after, row.Series)
		}
		for _, o := range (*all)[tried:] {
			if o.marked {
				t.Errorf("marked: %+v", o)
			}
		}
	}
}

// Each occurrence waits for a channel that is down as long as its policy says, from when it was to begin:
// those before it wait at the same time, and so it does not get later and later.
func TestSeriesOfAChannelThatStaysDown(t *testing.T) {
	s := waiting(t)
	key, _ := s.addSeries(postdate.Recurrence{Every: time.Second, MisfireAfter: time.Hour, MaxRuns: 30})
	s.down = every
	s.sleep(50 * time.Second)
	row := s.store.Rows[key]
	if row.Status != postdate.Delivered || row.Series.Failed != 30 {
		t.Errorf("its channel is down: %+v, %+v", row.State, row.Series)
	}
	for i, o := range row.Series.History {
		if waited := o.At.Sub(o.Occurrence); waited < 5*time.Second || waited > 8*time.Second {
			t.Errorf("the %d. of the last ones failed after %s", i+1, waited)
		}
	}
}

// A cancel that comes while an occurrence is with the broker ends the series with it, however that ends,
// and no other is begun: not by this owner, nor by the next one.
func TestSeriesIsCancelledInFlight(t *testing.T) {
	doubtful := []string{"unknown", "taken over"}
	for name, result := range map[string]func(s *shop){
		"delivered": func(s *shop) { s.reply(confirmed) }, "refused": func(s *shop) { s.reply(refused) },
		"unknown": func(s *shop) { s.reply(unknown) }, "down": func(s *shop) { s.reply(down) },
		"taken over": func(s *shop) {
			s.lose(0)
			s.gain(s.passedOn())
		},
	} {
		s := newMuteShop(t, 1, nil)
		key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
		s.untilSent()
		cancel := func() store.Cancelled { return s.store.Cancel(t.Context(), []postdate.Key{key}, s.now.Wall)[0] }
		if r := cancel(); postdate.KindOf(r.Err) != postdate.KindTooLate || !r.State.Ending {
			t.Fatalf("cancelled in flight: %+v", r)
		}
		result(s)
		s.sleep(10 * time.Second)
		r := cancel()
		if tooLate := postdate.KindOf(r.Err) == postdate.KindTooLate; r.State.Status != postdate.Cancelled || r.Changed ||
			tooLate != slices.Contains(doubtful, name) || !tooLate && r.Err != nil {
			t.Errorf("%s: cancelled again: %+v", name, r)
		}
		if row := s.store.Rows[key]; row.SettledAt < s.begin.Wall || row.Series.Skipped != 0 ||
			name == "taken over" && (row.Series.Failed != 1 || !strings.HasPrefix(row.LastError, "cancelled;")) {
			t.Errorf("%s: it ended as %+v, %+v", name, row.State, row.Series)
		}
		if len(*all) != 1 {
			t.Errorf("%s: sent %+v", name, *all)
		}
		if retried, _ := s.store.Retried(t.Context(), key); len(retried) > 0 {
			t.Errorf("%s: %v are still to be retried", name, retried)
		}
	}
}

// A delivery that is confirmed after its owner has lost the bucket still arms the next occurrence, and
// the next owner goes on from there.
func TestSeriesIsTakenOver(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.untilSent()
	s.lose(0)
	record := s.passedOn()
	s.reply(confirmed)
	if row := s.store.Rows[key]; row.Occurrence != begin.Add(2*time.Second) || row.Run != 2 {
		t.Errorf("it goes on with %+v", row.State)
	}
	s.mute = nil
	s.gain(record)
	s.sleep(10 * time.Second)
	wantOccurrences(t, "after a take-over", *all, begin.Add(time.Second), time.Second, len(*all))
	if len(*all) < 10 {
		t.Errorf("only %d were sent", len(*all))
	}
}

// A series that is behind does not keep its bucket with one occurrence after another, each of which would
// be in doubt in its turn: the next owner begins them.
func TestSeriesIsHandedOver(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: 100 * time.Millisecond})
	s.sleep(10 * time.Second)
	s.drain(0)
	s.sleep(100 * time.Millisecond)
	s.reply(confirmed)
	s.sleep(100 * time.Millisecond)
	if len(*all) != 1 || len(s.gone[0]) != 1 {
		t.Fatalf("sent %d, and handed over after %v", len(*all), s.gone[0])
	}
	s.mute = nil
	s.gain(s.passedOn())
	s.sleep(10 * time.Second)
	wantOccurrences(t, "after a hand-over", *all, begin.Add(100*time.Millisecond), 100*time.Millisecond, len(*all))
	for _, o := range *all {
		if o.marked {
			t.Errorf("marked: %+v", o)
		}
	}
	if row := s.store.Rows[key]; len(*all) < 195 || row.Series.Skipped > 0 {
		t.Errorf("sent %d: %+v", len(*all), row.Series)
	}
}

// A rule that this version cannot read loses nothing: it is tried again later.
func TestSeriesThatCannotBeRead(t *testing.T) {
	s := newShop(t, 1, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	row := s.store.Rows[key]
	next := row.Record
	next.Recurrence = &postdate.Recurrence{Cron: "0 9 * * *", Timezone: "Europe/Atlantis"}
	s.store.Put("test", row, next, nil)
	s.sleep(time.Minute)
	if row := s.store.Rows[key]; len(*all) > 0 || row.Status != postdate.Pending || row.LastError == "" || row.Occurrence != next.Occurrence {
		t.Errorf("sent %v, and is %+v", *all, row.State)
	}
}

// A store that is slower than the interval delays occurrences, and they are misfired by the time they are
// read. Some still begin: what a skip went on to is not skipped in its turn.
func TestSeriesOnASlowStore(t *testing.T) {
	for _, misfire := range []postdate.Misfire{postdate.MisfireOnce, postdate.MisfireSkip} {
		s := newShop(t, 1, nil)
		key, all := s.addSeries(postdate.Recurrence{Every: 100 * ms, Misfire: misfire, MisfireAfter: 300 * ms})
		s.waits = storeCalls
		for range 200 {
			s.after(300 * ms)
			s.step(fence.Tick{})
			s.answer(claims)
			s.after(300 * ms)
			s.step(fence.Tick{})
			s.answer(settles)
		}
		row := s.store.Rows[key]
		if len(*all) < 40 || row.Series.Skipped < 300 {
			t.Errorf("misfire %d: %d were sent in two minutes, %+v", misfire, len(*all), row.Series)
		}
	}
}

// Behind a backlog that is longer than misfireAfter and never gets shorter, a series has its turns all the
// same: what a skip went on to keeps its right to begin while it waits.
func TestSeriesBehindABacklog(t *testing.T) {
	for _, misfire := range []postdate.Misfire{postdate.MisfireOnce, postdate.MisfireSkip} {
		s := newShop(t, 1, nil)
		s.limits(store.ChannelSettings{Route: seriesRoute, MaxPerSecond: 10})
		key, _ := s.addSeries(postdate.Recurrence{Every: 10 * time.Second, Misfire: misfire})
		s.watch = nil
		s.add(0, seriesRoute, 2000, 0)
		for range 60 {
			s.add(0, seriesRoute, 300, 0)
			s.run(30 * time.Second)
		}
		if row := s.store.Rows[key]; row.Series.Fired < 5 {
			t.Errorf("misfire %d: in half an hour, in which %d others went out: %+v", misfire, s.arrived[seriesRoute], row.Series)
		}
	}
}

// A series that catches up arms occurrences in the past, one after the other. What turns up meanwhile among
// many others does not wait until it has caught up.
func TestSeriesThatCatchesUp(t *testing.T) {
	s := newShop(t, 1, func(c *Config) { c.PageMax = 8 })
	s.mute = func(r postdate.Route) bool { return r == "x:mute" }
	key, _ := s.addSeries(postdate.Recurrence{Every: 100 * ms, Misfire: postdate.MisfireAll, MisfireAfter: time.Hour})
	s.watch = nil
	s.put(0, "x:mute", 40, 95*time.Second)
	s.after(100 * time.Second) // in which nothing is done
	s.waits = storeCalls
	round := func() {
		s.tick(5 * ms)
		s.answer(claims)
		s.answer(settles)
	}
	for range 100 {
		round()
	}
	if s.flying("x:mute") != 40 {
		t.Fatalf("%d of 40 are with their broker", s.flying("x:mute"))
	}
	s.add(0, "x:a", 1, -50*ms)
	for range 40 {
		round()
	}
	row := s.store.Rows[key]
	if behind := s.now.Wall.Sub(row.Occurrence); behind < 60*time.Second {
		t.Fatalf("the series is only %s behind", behind)
	}
	if s.arrived["x:a"] != 1 {
		t.Errorf("it waits for the series, %+v", row.Series)
	}
}

// Where a tenant has no room for another message, a refused occurrence fails, and the series goes on.
func TestSeriesWithoutRoomForARetry(t *testing.T) {
	room := true
	s := newMuteShop(t, 1, func(c *Config) { c.Fits = func(string, int) bool { return room } })
	key, _ := s.addSeries(postdate.Recurrence{Every: time.Second})
	for _, room = range []bool{true, false} {
		s.untilSent()
		s.reply(refused)
		s.run(500 * ms)
	}
	row := s.store.Rows[key]
	if row.Series.Fired != 2 || row.Series.Failed != 1 || row.Run != 3 || !strings.Contains(row.LastError, "no room") {
		t.Errorf("%+v, %+v", row.State, row.Series)
	}
	if retried, _ := s.store.Retried(t.Context(), key); len(retried) != 1 || len(s.failed) != 1 {
		t.Errorf("%v are retried, and %v failed", retried, s.failed)
	}
}

// An occurrence that is read after the cancel is not begun: the series ends without it.
func TestSeriesIsCancelledBeforeItIsReadAgain(t *testing.T) {
	s := newShop(t, 1, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.sleep(980 * ms) // it is claimed, and not due yet
	if r := s.store.Cancel(t.Context(), []postdate.Key{key}, s.now.Wall)[0]; !r.State.Ending {
		t.Fatalf("cancelled: %+v", r)
	}
	s.lapse()
	s.sleep(10 * time.Second)
	row := s.store.Rows[key]
	if len(*all) != 0 || !row.Withdrawn() || row.Series.Skipped != 1 || row.Series.Fired != 0 {
		t.Errorf("sent %v, and it ended as %+v, %+v", *all, row.State, row.Series)
	}
}

// What a skip chose is judged anew if it then has to wait for its channel: the policy holds after that, too.
func TestSeriesIsMisfiredAgain(t *testing.T) {
	s := openShop(t, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: 10 * time.Second, Misfire: postdate.MisfireSkip})
	s.down = every
	s.after(300 * time.Second)
	s.renew()
	s.gain(s.partitions(1)...)
	s.sleep(time.Second)
	chosen := s.store.Rows[key]
	if chosen.Series.Skipped == 0 || !chosen.Parked {
		t.Fatalf("nothing is skipped, or it does not wait: %+v, %+v", chosen.State, chosen.Series)
	}
	s.sleep(300 * time.Second)
	s.down, *all = nil, nil
	back := s.now.Wall
	s.sleep(60 * time.Second)
	if first := (*all)[len(*all)-1]; s.store.Rows[key].Series.Fired == 0 || first.at < back {
		t.Fatalf("nothing is sent: %+v", s.store.Rows[key].Series)
	}
	for _, o := range s.store.Rows[key].Series.History {
		if o.Status == postdate.Delivered && o.At.Sub(o.Occurrence) > 70*time.Second {
			t.Errorf("%+v began late", o)
		}
	}
}

// What is remembered of chosen occurrences is bounded.
func TestKeptOccurrencesAreBounded(t *testing.T) {
	kept := map[postdate.Key]postdate.Time{}
	for i := range 2*keptMax + 1 {
		if keep(kept, postdate.Key{Bucket: i}, 1); len(kept) > keptMax || kept[postdate.Key{Bucket: i}] != 1 ||
			len(kept) != i%keptMax+1 {
			t.Fatalf("%d are kept after %d", len(kept), i+1)
		}
	}
}

// Of a series that is behind when its bucket is taken over, only the present occurrence may have been begun:
// those that the new owner arms are not in doubt, although they lie in the range that was claimed.
func TestSeriesIsInDoubtOnce(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	begin := s.now.Wall
	_, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.untilSent()
	s.lose(0)
	record := s.passedOn()
	record.Claimed = bucket.UpTo(begin.Add(20 * time.Second))
	s.store.Records[0] = record
	s.mute = nil
	s.gain(record)
	s.sleep(10 * time.Second)
	wantOccurrences(t, "after the take-over", (*all)[1:], begin.Add(time.Second), time.Second, len(*all)-1)
	for i, o := range *all {
		if o.marked != (i == 1) {
			t.Errorf("%d: %+v", i, o)
		}
	}
	if len(*all) < 10 {
		t.Errorf("only %d were sent", len(*all))
	}
}

// What was read of a series before its bucket is to rest is still begun, as of any message.
func TestSeriesIsSentBeforeItIsHandedOver(t *testing.T) {
	s := newShop(t, 1, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.sleep(980 * ms) // it is in hand, and not due yet
	s.drain(0)
	s.sleep(time.Second)
	if row := s.store.Rows[key]; len(*all) != 1 || len(s.gone[0]) != 1 || row.Series.Fired != 1 {
		t.Errorf("sent %v, handed over after %v: %+v", *all, s.gone[0], row.State)
	}
}

// changeAs changes the series as a PATCH does.
func (s *shop) changeAs(key postdate.Key, paused bool, edit func(r *postdate.Recurrence)) error {
	s.t.Helper()
	return s.changeBy(s.now.Wall, key, paused, edit)
}

// changeBy does the same by a node whose clock shows another time.
func (s *shop) changeBy(now postdate.Time, key postdate.Key, paused bool, edit func(r *postdate.Recurrence)) error {
	s.t.Helper()
	old, err := s.store.Get(s.t.Context(), key)
	if err != nil {
		s.t.Fatal(err)
	}
	m, rule := old.Message, *old.Recurrence
	edit(&rule)
	m.Recurrence = &rule
	next, err := recurrence.Change(&old, m, paused, now)
	if err == nil {
		_, err = s.store.Replace(s.t.Context(), next, old)
	}
	if err == nil {
		s.nudge(0, next.AttemptTime.Sub(s.now.Wall))
	}
	return err
}

func (s *shop) pause(key postdate.Key) {
	s.t.Helper()
	if err := s.store.Pause(s.t.Context(), key, s.store.Rows[key].Version); err != nil {
		s.t.Fatal(err)
	}
}

func asItIs(*postdate.Recurrence) {}

// A paused series sends nothing, costs nothing, and goes on with the first occurrence after it is resumed.
// What was missed is counted, and maxRuns does not count it.
func TestSeriesIsPaused(t *testing.T) {
	s := newShop(t, 1, nil)
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second, MaxRuns: 20})
	s.sleep(5500 * time.Millisecond)
	s.pause(key)
	s.sleep(time.Minute)
	wantOccurrences(t, "until the pause", *all, begin.Add(time.Second), time.Second, 5)
	if row := s.store.Rows[key]; row.AttemptTime != postdate.Far || row.Run != 6 || row.Series.Skipped != 0 {
		t.Errorf("paused: %+v, %+v", row.State, row.Series)
	}
	if err := s.changeAs(key, false, asItIs); err != nil {
		t.Fatal(err)
	}
	s.sleep(time.Minute)
	wantOccurrences(t, "after it was resumed", (*all)[5:], begin.Add(66*time.Second), time.Second, 15)
	if row := s.store.Rows[key]; row.Status != postdate.Delivered || row.Series.Fired != 20 || row.Series.Skipped != 60 {
		t.Errorf("it ended as %+v, %+v", row.State, row.Series)
	}
}

// A pause that is over before the next occurrence is due changes nothing.
func TestSeriesIsPausedForAMoment(t *testing.T) {
	s := newShop(t, 1, nil)
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.sleep(5200 * time.Millisecond)
	s.pause(key)
	s.sleep(200 * time.Millisecond)
	if err := s.changeAs(key, false, asItIs); err != nil {
		t.Fatal(err)
	}
	s.sleep(5 * time.Second)
	wantOccurrences(t, "in all", *all, begin.Add(time.Second), time.Second, 10)
	if row := s.store.Rows[key]; row.Series.Skipped != 0 || row.Changes != 1 {
		t.Errorf("it is %+v, %+v", row.State, row.Series)
	}
}

// A pause that comes while an occurrence is on its way lets that one come, whatever becomes of it, and holds
// the next.
func TestSeriesIsPausedInFlight(t *testing.T) {
	for name, result := range map[string]func(s *shop){
		"delivered": func(s *shop) { s.reply(confirmed) }, "refused": func(s *shop) { s.reply(refused) },
		"unknown": func(s *shop) { s.reply(unknown) },
	} {
		s := newMuteShop(t, 1, nil)
		key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
		s.untilSent()
		s.pause(key)
		if err := s.changeAs(key, false, asItIs); postdate.KindOf(err) != postdate.KindTooLate {
			t.Errorf("%s: resumed in flight: %v", name, err)
		}
		result(s)
		s.mute = nil
		s.sleep(time.Minute)
		first := (*all)[0].occurrence
		for _, o := range *all {
			if o.occurrence != first {
				t.Errorf("%s: %+v is sent although the series is paused", name, o)
			}
		}
		if row := s.store.Rows[key]; !row.Paused || row.Series.Fired != 1 || row.AttemptTime != postdate.Far {
			t.Errorf("%s: it is %+v, %+v", name, row.State, row.Series)
		}
		if err := s.changeAs(key, false, asItIs); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An occurrence that may have been begun before a take-over comes, marked, although its series is paused.
func TestSeriesIsPausedInDoubt(t *testing.T) {
	s := newMuteShop(t, 1, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.untilSent()
	s.pause(key)
	s.lose(0)
	record := s.passedOn()
	s.mute = nil
	s.gain(record)
	s.sleep(10 * time.Second)
	if len(*all) != 2 || !(*all)[1].marked || (*all)[1].occurrence != (*all)[0].occurrence {
		t.Errorf("sent %+v", *all)
	}
	if row := s.store.Rows[key]; !row.Paused || row.Run != 2 || row.AttemptTime != postdate.Far {
		t.Errorf("it is %+v", row.State)
	}
}

// A series that waits for a channel rests when it is paused, and the channel's return does not begin it.
func TestSeriesIsPausedWhileItsChannelIsDown(t *testing.T) {
	s := newShop(t, 1, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second, MisfireAfter: time.Hour})
	s.down = every
	s.sleep(10 * time.Second)
	s.pause(key)
	s.down = nil
	tried := len(*all)
	s.sleep(time.Minute)
	if row := s.store.Rows[key]; len(*all) > tried || row.Parked || row.AttemptTime != postdate.Far {
		t.Errorf("sent %d more, and it is %+v", len(*all)-tried, row.State)
	}
}

// A changed rule counts from the change on, and what its series has counted stays.
func TestSeriesIsChanged(t *testing.T) {
	s := newShop(t, 1, nil)
	begin := s.now.Wall
	key, all := s.addSeries(postdate.Recurrence{Every: time.Second})
	s.sleep(5500 * time.Millisecond)
	err := s.changeAs(key, false, func(r *postdate.Recurrence) { r.Every = 10 * time.Second })
	if err != nil {
		t.Fatal(err)
	}
	s.sleep(time.Minute)
	wantOccurrences(t, "before", (*all)[:5], begin.Add(time.Second), time.Second, 5)
	wantOccurrences(t, "after", (*all)[5:], begin.Add(10*time.Second), 10*time.Second, 6)
	if row := s.store.Rows[key]; row.Series.Fired != 11 || row.Run != 12 || row.Changes != 1 || len(row.Series.History) != 11 {
		t.Errorf("it is %+v, %+v", row.State, row.Series)
	}
}

// A first occurrence that loses its jitter when that was over, by a clock that is ahead, is not early by
// another one.
func TestSeriesLosesItsJitter(t *testing.T) {
	s := newShop(t, 1, nil)
	key, all := s.addSeries(postdate.Recurrence{Every: time.Hour, Jitter: time.Hour})
	over := s.store.Rows[key].ExecutionTime
	s.sleep(over.Sub(s.now.Wall) - 50*ms)
	if err := s.changeBy(over, key, false, func(r *postdate.Recurrence) { r.Jitter = 0 }); err != nil {
		t.Fatal(err)
	}
	s.sleep(time.Second)
	if len(*all) != 1 || (*all)[0].at != over+1 {
		t.Errorf("sent: %+v, want one at %s", *all, over+1)
	}
}
