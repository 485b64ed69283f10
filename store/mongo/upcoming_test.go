package mongo

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/mongo/routertest"
)

const upcomingBegin = postdate.Time(2_000_000_000_000)

// upcomingStore is a store of eight buckets, opened behind a mongos if it is sharded. direct is the same past the
// mongos. The monitor, if there is one, sees what is sent.
func upcomingStore(t *testing.T, sharded bool, monitor *event.CommandMonitor) (s, direct *Store) {
	t.Helper()
	uri := mongotest.Fresh(t)
	c := DefaultConfig(uri)
	c.Buckets = 8
	if sharded {
		c.URI = routertest.Start(t, uri).URI()
	}
	s, err := OpenWatched(t.Context(), c, monitor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, (&filled{t: t, c: c}).bare(uri)
}

// lay lays down n messages of a tenant past the API: message i is due i%spread seconds after upcomingBegin.
func lay(t *testing.T, s *Store, tenant string, n, spread int) {
	t.Helper()
	var all []any
	for i := range n {
		m := dueMessage(bucket.KeyOf(tenant, fmt.Sprint("m", i), 8))
		m.Channel = postdate.Channel(fmt.Sprintf("inbox:%s-%d", tenant, i%3))
		m.ExecutionTime = upcomingBegin + postdate.Time(i%spread)*1000
		st := postdate.NewState(&m, 1<<16)
		all = append(all, documentOf(&m, &st))
	}
	if _, err := s.messages.InsertMany(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// recounted makes the store know how much is pending.
func recounted(t *testing.T, s *Store) {
	t.Helper()
	s.doubt()
	if err := s.ShareUsage(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func upcomingOf(t *testing.T, s *Store, q store.UpcomingQuery, most int) []store.UpcomingSlot {
	t.Helper()
	u := upcoming{s: s, q: &q, most: most}
	f, err := u.forecast(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slots := f.Slots()
	if len(slots) != q.Slots() {
		t.Fatalf("%d slots, want %d", len(slots), q.Slots())
	}
	return slots
}

// tenSlots are ten slots of ten seconds.
func tenSlots(tenant string) store.UpcomingQuery {
	return store.UpcomingQuery{Tenant: tenant, From: upcomingBegin, To: upcomingBegin + 100_000, Step: 10 * time.Second}
}

// wantAbout expects an estimate of each slot that is right within a share of what it should be.
func wantAbout(t *testing.T, slots []store.UpcomingSlot, share float64, want func(slot int) int) {
	t.Helper()
	for i, s := range slots {
		if off := float64(s.Count) - float64(want(i)); s.Exact || off > share*float64(want(i)) || -off > share*float64(want(i)) {
			t.Errorf("slot %d is %+v, want %d, give or take %.0f%%", i, s, want(i), 100*share)
		}
	}
}

// An estimate is scaled from whole buckets, and tells of nobody else's messages.
func TestUpcomingOfSomeBuckets(t *testing.T) {
	s, _ := upcomingStore(t, false, nil)
	lay(t, s, "default", 8_000, 100)
	lay(t, s, "other", 800, 100)
	slots := upcomingOf(t, s, tenSlots("default"), 3_500)
	wantAbout(t, slots, 0.25, func(int) int { return 800 })
	named := 0
	for _, slot := range slots {
		for _, c := range slot.Channels {
			if named++; !strings.HasPrefix(string(c.Channel), "inbox:default-") {
				t.Errorf("the default tenant is told of %s", c.Channel)
			}
		}
	}
	if named != 30 {
		t.Errorf("the slots name %d channels, want 3 each", named)
	}
	for i, slot := range upcomingOf(t, s, tenSlots("default"), 10_000) {
		if slot.Count != 800 || !slot.Exact {
			t.Errorf("slot %d is %+v, want exactly 800", i, slot)
		}
	}
	q := tenSlots("default")
	q.Channel = "inbox:default-1"
	wantAbout(t, upcomingOf(t, s, q, 3_500), 0.25, func(int) int { return 267 })
}

// If not one bucket can be counted, a peak shows all the same, and beside it what goes on evenly.
func TestUpcomingPeak(t *testing.T) {
	s, _ := upcomingStore(t, false, nil)
	lay(t, s, "default", 400, 100)
	q := tenSlots("default")
	q.Tenant = "b" // it has a peak at the very beginning, and one message a second after that
	lay(t, s, "b", 16_000, 1)
	recounted(t, s)
	slots := upcomingOf(t, s, q, 300)
	wantAbout(t, slots[:1], 0.25, func(int) int { return 16_000 })
	wantAbout(t, slots[1:], 0, func(int) int { return 0 })
	lay(t, s, "c", 8_000, 100)
	recounted(t, s)
	q.Tenant, q.From = "c", q.From+10_000
	wantAbout(t, upcomingOf(t, s, q, 800), 0.3, func(int) int { return 800 })
}

// A message that cannot be counted does not hide the others.
func TestUpcomingBesideDamagedMessages(t *testing.T) {
	s, _ := upcomingStore(t, false, nil)
	lay(t, s, "default", 20, 1)
	for i, damage := range []bson.D{doc("due", bson.A{upcomingBegin}), doc("channel", 5), doc("parked", "?")} {
		key := bucket.KeyOf("default", fmt.Sprint("m", i), 8)
		if _, err := s.messages.UpdateOne(t.Context(), doc("_id", idOf(key)), doc("$set", damage)); err != nil {
			t.Fatal(err)
		}
	}
	if slots := upcomingOf(t, s, tenSlots("default"), 1_000); slots[0].Count != 18 || slots[0].Exact {
		t.Errorf("%+v, want 18, not exact", slots[0])
	}
}

// A message that a version before tenants wrote names its channel alone, and counts for its tenant.
func TestUpcomingOfAnEarlierVersion(t *testing.T) {
	s, _ := upcomingStore(t, false, nil)
	lay(t, s, "b", 1, 1)
	key := bucket.KeyOf("b", "m0", 8)
	if _, err := s.messages.UpdateOne(t.Context(), doc("_id", idOf(key)), doc("$set", doc("channel", "inbox:old"))); err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]int64{"b": 1, "default": 0} {
		q := tenSlots(tenant)
		q.Channel = "inbox:old"
		if slots := upcomingOf(t, s, q, 1_000); slots[0].Count != want || !slots[0].Exact {
			t.Errorf("%s has %+v, want %d", tenant, slots[0], want)
		}
	}
}

// However much is stored, no more of the index and no more messages are looked at than may be, in the order of the
// index, and the first look reads the index alone.
func TestUpcomingIsBounded(t *testing.T) {
	for _, sharded := range []bool{false, true} {
		var mu sync.Mutex
		var sent []bson.Raw
		s, direct := upcomingStore(t, sharded, &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "aggregate" && e.Command.Lookup("aggregate").StringValue() == "messages" {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, append(bson.Raw{}, e.Command...))
			}
		}})
		lay(t, direct, "default", 2_000, 100)
		lay(t, direct, "other", 2_000, 100)
		for _, most := range []int{10_000, 1_200, 120} {
			sent = nil
			upcomingOf(t, s, tenSlots("default"), most)
			total := 0
			for i, command := range sent {
				keys, messages := explainUpcoming(t, direct, command, s.dueIndex())
				if total += messages; i == 0 && messages > 0 {
					t.Errorf("the first look reads %d messages", messages)
				}
				if keys > most+1+2*s.c.Buckets {
					t.Errorf("of at most %d entries it looks at %d: %v", most, keys, command)
				}
			}
			if len(sent) < 2 || total == 0 || total > most {
				t.Errorf("%d commands read %d messages, want at most %d", len(sent), total, most)
			}
		}
	}
}

// explainUpcoming returns how many entries of the index, and how many messages, a command looks at.
func explainUpcoming(t *testing.T, s *Store, command bson.Raw, index string) (keys, messages int) {
	t.Helper()
	bare := doc("aggregate", "messages", "pipeline", command.Lookup("pipeline"), "cursor", doc(), "hint", index)
	var answer bson.Raw
	err := s.messages.Database().RunCommand(t.Context(), doc("explain", bare, "verbosity", "executionStats")).Decode(&answer)
	if err != nil {
		t.Fatal(err)
	}
	plan := answer.String()
	if !strings.Contains(plan, `"indexName": "`+index+`"`) || strings.Contains(plan, `"COLLSCAN"`) || strings.Contains(plan, `"SORT"`) {
		t.Errorf("it does not go by the index %s in its order: %s", index, plan)
	}
	stats := answer.Lookup("executionStats")
	if stats.Type == 0 {
		stats = answer.Lookup("stages", "0", "$cursor", "executionStats")
	}
	k, _ := stats.Document().Lookup("totalKeysExamined").AsInt64OK()
	m, _ := stats.Document().Lookup("totalDocsExamined").AsInt64OK()
	return int(k), int(m)
}
