package pebble

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

const upcomingBegin = postdate.Time(2_000_000_000_000)

// layUpcoming puts n entries of a tenant where Upcoming looks: entry i is due i%spread seconds after from.
func layUpcoming(t *testing.T, s *Store, tenant string, n, spread int, from postdate.Time) {
	t.Helper()
	b := s.db.NewBatch()
	for i := range n {
		m := postdate.Message{Key: bucket.KeyOf(tenant, fmt.Sprint("m", from, "-", i), s.Buckets()),
			Channel: postdate.Channel(fmt.Sprintf("inbox:%s-%d", tenant, i%3)), ExecutionTime: from + postdate.Time(i%spread)*1000}
		st := stateOf(&m, postdate.NewState(&m, 1<<32))
		if err := b.Set(timedKey(nil, spaceDue, m.Bucket, bucket.PositionOf(m.Key, m.ExecutionTime)), appendState(nil, &st, layoutLean), nil); err != nil {
			t.Fatal(err)
		}
		if b.Len() > 1<<18 || i == n-1 {
			if err := s.db.Apply(b, lsm.NoSync); err != nil {
				t.Fatal(err)
			}
			b.Reset()
		}
	}
	s.pending.Add(store.Change{Tenant: tenant, Messages: int64(n)})
}

// upcomingStore has messages of two tenants in ten slots of ten seconds.
func upcomingStore(t *testing.T, buckets int) (*Store, store.UpcomingQuery) {
	t.Helper()
	c := DefaultConfig("store")
	c.Buckets = buckets
	s, err := OpenWith(c, Parts{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	layUpcoming(t, s, "a", 8_000, 100, upcomingBegin)
	layUpcoming(t, s, "b", 800, 100, upcomingBegin)
	return s, store.UpcomingQuery{Tenant: "a", From: upcomingBegin, To: upcomingBegin + 100_000, Step: 10 * time.Second}
}

// upcomingOf looks at no more than most entries, and as many again for an estimate, besides at least one in each slot
// and the seeks.
func upcomingOf(t *testing.T, s *Store, q store.UpcomingQuery, most int) []store.UpcomingSlot {
	t.Helper()
	u := upcoming{s: s, q: &q, names: map[string]postdate.Channel{}}
	f, err := u.forecast(t.Context(), most)
	if err != nil {
		t.Fatal(err)
	}
	slots := f.Slots()
	if len(slots) != q.Slots() {
		t.Fatalf("%d slots, want %d", len(slots), q.Slots())
	}
	if u.examined > 2*most+1+2*(q.Slots()+2) {
		t.Errorf("of at most %d entries it looked at %d", most, u.examined)
	}
	return slots
}

// wantAbout expects an estimate of each slot that is right within a share of what it should be.
func wantAbout(t *testing.T, slots []store.UpcomingSlot, share float64, want int) {
	t.Helper()
	for i, s := range slots {
		if off := float64(s.Count) - float64(want); s.Exact || off > share*float64(want) || -off > share*float64(want) {
			t.Errorf("slot %d is %+v, want %d, give or take %.0f%%", i, s, want, 100*share)
		}
	}
}

// An estimate is scaled from whole buckets, and tells of nobody else's messages.
func TestUpcomingOfSomeBuckets(t *testing.T) {
	s, q := upcomingStore(t, 8)
	slots := upcomingOf(t, s, q, 3_500)
	wantAbout(t, slots, 0.25, 800)
	named := 0
	for _, slot := range slots {
		for _, c := range slot.Channels {
			if named++; !strings.HasPrefix(string(c.Channel), "inbox:a-") {
				t.Errorf("a tenant is told of %s", c.Channel)
			}
		}
	}
	if named != 30 {
		t.Errorf("the slots name %d channels, want 3 each", named)
	}
	one := q
	one.Channel = "inbox:a-1"
	wantAbout(t, upcomingOf(t, s, one, 3_500), 0.25, 267)
	for i, slot := range upcomingOf(t, s, q, 10_000) {
		if slot.Count != 800 || !slot.Exact {
			t.Errorf("slot %d is %+v, want exactly 800", i, slot)
		}
	}
	one.Tenant, one.Channel = "b", ""
	wantAbout(t, upcomingOf(t, s, one, 5_000), 0.6, 80)
}

// If not one bucket can be counted, each slot tells by its beginning what it has, in memory and on the disk.
func TestUpcomingOfNoBucket(t *testing.T) {
	s, q := upcomingStore(t, 1)
	wantAbout(t, upcomingOf(t, s, q, 3_000), 0.25, 800)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	wantAbout(t, upcomingOf(t, s, q, 3_000), 0.25, 800)
}

// All that is pending is estimated by channel, from some whole buckets or from the beginnings of slots, also what is far
// off.
func TestPendingOfSomeBuckets(t *testing.T) {
	for _, buckets := range []int{1, 8} {
		s, _ := upcomingStore(t, buckets)
		layUpcoming(t, s, "a", 9_000, 100, upcomingBegin+40_000_000_000)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		q := store.PendingQuery("a", upcomingBegin+49_999)
		u := upcoming{s: s, q: &q, names: map[string]postdate.Channel{}}
		f, err := u.forecast(t.Context(), 4_000)
		if err != nil {
			t.Fatal(err)
		}
		p := f.Pending()
		if p.Exact || p.More || len(p.Channels) != 3 {
			t.Errorf("of %d buckets: %+v", buckets, p)
		}
		about := func(n int64, want float64) bool { return float64(n) > 0.75*want && float64(n) < 1.25*want }
		for name, n := range p.Channels {
			if !about(n.All, 17_000.0/3) || !about(n.Due, 4_000.0/3) || !strings.HasPrefix(string(name), "inbox:a-") {
				t.Errorf("of %d buckets, %s has %+v, want about 5,667 of which 1,333 are due", buckets, name, n)
			}
		}
	}
}

// A peak at one instant shows, beside what goes on evenly, and however much is due after it.
func TestUpcomingPeak(t *testing.T) {
	s, q := upcomingStore(t, 1)
	const peak = 40_000
	layUpcoming(t, s, "a", peak, 1, upcomingBegin+35_000)
	for _, later := range []int{0, 2 * peak} {
		layUpcoming(t, s, "a", later, 10_000, q.To)
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, most := range []int{1_000, 5_000} {
			slots := upcomingOf(t, s, q, most)
			wantAbout(t, slots[3:4], 0.5, peak+800)
			wantAbout(t, slots[:3], 1, 800)
			wantAbout(t, slots[4:], 1, 800)
		}
	}
}

// A peak shows among others' messages, also if these are most at the beginning of its slot.
func TestUpcomingPeakAmongOthers(t *testing.T) {
	s, q := upcomingStore(t, 1)
	const peak = 40_000
	layUpcoming(t, s, "a", peak, 1, upcomingBegin+35_000)
	layUpcoming(t, s, "a", peak, 10_000, q.To)
	layUpcoming(t, s, "b", 20_000, 100, upcomingBegin)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	slots := upcomingOf(t, s, q, upcomingExaminedMax)
	wantAbout(t, slots[3:4], 0.5, peak+800)
	wantAbout(t, slots[:3], 1, 800)
	wantAbout(t, slots[4:], 1, 800)
}

// Whoever else has most of what is due: what is looked at is bounded, and none of it shows.
func TestUpcomingAmongOthers(t *testing.T) {
	s, q := upcomingStore(t, 1)
	q.Tenant = "nobody"
	for _, most := range []int{1, 100, 3_000, 20_000} {
		for i, slot := range upcomingOf(t, s, q, most) {
			if slot.Count != 0 || len(slot.Channels) != 0 || slot.Exact != (most == 20_000) {
				t.Errorf("with %d looked at, slot %d is %+v", most, i, slot)
			}
		}
	}
}

// A message that cannot be read does not hide the others.
func TestUpcomingBesideDamagedMessages(t *testing.T) {
	c := openConfig(t.TempDir())
	var log bytes.Buffer
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	at := openMessage(0).ExecutionTime
	for i := range 5 {
		m := openMessage(i)
		m.ExecutionTime = at
		if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
		if i%2 == 1 {
			if err := s.db.Set(timedKey(nil, spaceDue, m.Bucket, bucket.PositionOf(m.Key, at)), []byte{layoutLean}, lsm.Sync); err != nil {
				t.Fatal(err)
			}
		}
	}
	slots, err := s.Upcoming(t.Context(), store.UpcomingQuery{Tenant: postdate.DefaultTenant, From: at, To: at + 1, Step: time.Second})
	if err != nil || len(slots) != 1 || slots[0].Count != 3 || slots[0].Exact {
		t.Errorf("%+v, want 3, not exact: %v", slots, err)
	}
	if text := log.String(); !strings.Contains(text, "message cannot be counted") || !strings.Contains(text, "more messages cannot be counted\" count=1") {
		t.Errorf("the log says %q", text)
	}
}

// What others have may hide all that a tenant has from a bounded look. Then nothing is said, and not that there is none.
func TestPendingHiddenByOthers(t *testing.T) {
	s, _ := upcomingStore(t, 1)
	layUpcoming(t, s, "b", 40_000, 100, upcomingBegin)
	layUpcoming(t, s, "c", 5_000, 100, upcomingBegin+200_000)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	p, err := s.Pending(t.Context(), "c", upcomingBegin+400_000)
	if err != nil {
		t.Fatal(err)
	}
	if n, known := p.Of("inbox:c-0"); known && n.Due < 100 {
		t.Errorf("of 1,667 messages that are due, %+v are known", n)
	}
}
