package pebble

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// asLayout3 turns a store into what the version before wrote: nothing is counted, and no state
// has the size of its payload.
func asLayout3(t *testing.T, s *Store) {
	t.Helper()
	b := s.db.NewBatch()
	defer b.Close()
	for _, space := range []byte{spaceState, spaceParked} {
		iter, err := s.db.NewIter(spaceOnly(space))
		if err != nil {
			t.Fatal(err)
		}
		for ok := iter.First(); ok; ok = iter.Next() {
			st, err := readState(iter.Value())
			if err != nil {
				t.Fatal(err)
			}
			b.Set(iter.Key(), appendState(nil, &st, layout), nil)
		}
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b.DeleteRange([]byte{spaceUsage}, []byte{spaceUsage + 1}, nil)
	birth := append([]byte{3}, appendBirth(nil, s.c.Buckets, s.birth)[1:9]...)
	b.Set([]byte{spaceBirth}, sealBirth(birth), nil)
	if err := b.Commit(lsm.Sync); err != nil {
		t.Fatal(err)
	}
}

// listedUsage is what the default tenant has pending, by a list.
func listedUsage(t *testing.T, s *Store) (u store.Usage) {
	t.Helper()
	page, err := s.List(t.Context(), store.ListQuery{Tenant: postdate.DefaultTenant, Status: postdate.Pending, Limit: 10_000})
	if err != nil || page.Next != nil {
		t.Fatal(page.Next, err)
	}
	channels := map[postdate.Channel]bool{}
	for _, r := range page.Records {
		u.Messages++
		u.Bytes += int64(len(r.Payload))
		channels[r.Channel] = true
	}
	u.Channels = int64(len(channels))
	return u
}

// counted expects that what is counted is what a list shows.
func counted(t *testing.T, s *Store, when string, messages int64) {
	t.Helper()
	got, _ := s.UsageOf(postdate.DefaultTenant, "inbox:a")
	if want := listedUsage(t, s); got != want || got.Messages != messages {
		t.Errorf("%s %+v is counted, a list shows %+v, and %d messages are there", when, got, want, messages)
	}
}

// settleLatest settles a message at its present version.
func settleLatest(t *testing.T, s *Store, m postdate.Message, token uint64, how store.Settling) {
	t.Helper()
	rec, err := s.Get(t.Context(), m.Key)
	if err == nil {
		err = s.Settle(t.Context(), []store.Settlement{{Key: m.Key, ExecutionTime: m.ExecutionTime, Version: rec.Version,
			Token: token, How: how, AttemptTime: m.ExecutionTime + 5}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// ofLayout3 makes a store of the version before with 40 messages, of which 39 are pending. It
// returns some of those in one bucket, whose owner has the token: the first one is delivered,
// the next two are parked.
func ofLayout3(t *testing.T, dir string) (here []postdate.Message, token uint64) {
	t.Helper()
	filled(t, dir, 40)
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	home := openMessage(0).Bucket
	got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: home, Owner: "n", Lease: "n/1"}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if m := openMessage(i); m.Bucket == home {
			here = append(here, m)
		}
	}
	token = got[0].Partition.Token
	settleLatest(t, s, here[0], token, store.SettleDelivered)
	settleLatest(t, s, here[1], token, store.SettlePark)
	settleLatest(t, s, here[2], token, store.SettlePark)
	early := bucket.PositionOf(here[2].Key, here[2].ExecutionTime+5) // parked before the due space had such messages
	if err := s.db.Delete(timedKey(nil, spaceDue, home, early), lsm.Sync); err != nil {
		t.Fatal(err)
	}
	asLayout3(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return here, token
}

// A store of an earlier version is counted once, when it is opened. What it has pending can end
// in each way, and then no longer counts.
func TestUsageOfAnEarlierVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	here, token := ofLayout3(t, dir)
	var log bytes.Buffer
	c := openConfig(dir)
	c.Log = slog.New(slog.NewTextHandler(&log, nil))
	open := func() *Store {
		t.Helper()
		s, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	counted(t, s, "after it was opened", 39)
	if !strings.Contains(log.String(), "counted what is pending") || !strings.Contains(log.String(), "messages=39") {
		t.Errorf("the log does not say it: %s", &log)
	}
	if n, _, err := s.Unpark(t.Context(), store.Unpark{Bucket: here[0].Bucket, Token: token, Route: "inbox:a",
		At: 5, Limit: 9}); n != 2 || err != nil {
		t.Errorf("%d are unparked: %v", n, err)
	}
	counted(t, s, "after an unpark", 39)
	settleLatest(t, s, here[1], token, store.SettleRetry)
	counted(t, s, "after a retry", 39)
	settleLatest(t, s, here[1], token, store.SettleDelivered)
	settleLatest(t, s, here[2], token, store.SettleFailed)
	counted(t, s, "after two settlements", 37)
	if r := s.Cancel(t.Context(), []postdate.Key{here[3].Key}, 1)[0]; !r.Changed {
		t.Errorf("it is not cancelled: %+v", r)
	}
	next := openMessage(39)
	rec, err := s.Get(t.Context(), next.Key)
	if err == nil {
		next.Payload = []byte("short")
		_, err = storetest.Replace(t.Context(), s, next, rec.Version)
	}
	if err != nil {
		t.Fatal(err)
	}
	counted(t, s, "after a cancel and a replace", 36)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	s = open()
	defer s.Close()
	counted(t, s, "after it was opened again", 36)
	if strings.Contains(log.String(), "counted") {
		t.Errorf("it was counted again: %s", &log)
	}
}

// FuzzCounts: whatever bytes a value holds, summing up neither panics nor depends on how they
// are put together, and a list of pairs is what their sum is.
func FuzzCounts(f *testing.F) {
	f.Add((&countSum{3, 500}).append(nil), (&countSum{-1, -70}).append(nil))
	f.Add([]byte{1}, []byte{0xff, 0xff})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var apart, joined countSum
		if apart.add(a) != nil || apart.add(b) != nil {
			return
		}
		if err := joined.add(append(bytes.Clone(a), b...)); err != nil || joined != apart {
			t.Errorf("%v and %v are %+v, and joined %+v, %v", a, b, apart, joined, err)
		}
		var again countSum
		if err := again.add(apart.append(nil)); err != nil || again != apart {
			t.Errorf("%+v is written as %+v, %v", apart, again, err)
		}
	})
}

// What an earlier version parked for another tenant than the default one lay where the default
// tenant's does. It is found by its route, and is gone from there once it is delivered.
func TestParkedOfAnEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	m := postdate.Message{Key: bucket.KeyOf("acme", "1", s.Buckets()), Channel: "inbox:a", ExecutionTime: 1000}
	s.Insert(t.Context(), []postdate.Message{m})
	got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: m.Bucket, Owner: "a", Lease: "a/1"}})
	if err != nil {
		t.Fatal(err)
	}
	rec, err := s.Get(t.Context(), m.Key)
	if err != nil {
		t.Fatal(err)
	}
	settle := store.Settlement{Key: m.Key, ExecutionTime: 1000, Version: rec.Version, Token: got[0].Partition.Token, How: store.SettlePark, AttemptTime: 5000}
	if err := s.Settle(t.Context(), []store.Settlement{settle}); err != nil {
		t.Fatal(err)
	}
	at := bucket.PositionOf(m.Key, 5000)
	present := parkedKey(nil, m.Bucket, m.Route(), at)
	former := appendName(appendTime(parkedPrefix(nil, m.Bucket, postdate.Route(m.Channel)), at.Time), at.Tenant, at.ScheduleID)
	value, closer, err := s.db.Get(present)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.db.Set(former, value, lsm.Sync), s.db.Delete(present, lsm.Sync)); err != nil {
		t.Fatal(err)
	}
	closer.Close()
	asLayout3(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(openConfig(dir)); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := []store.ParkedRoute{{Bucket: m.Bucket, Route: "@acme inbox:a"}}
	if parked, err := s.Parked(t.Context(), []int{m.Bucket}); err != nil || !slices.Equal(parked, want) {
		t.Fatalf("parked are %v, %v", parked, err)
	}
	settle.How = store.SettleDelivered
	if err := s.Settle(t.Context(), []store.Settlement{settle}); err != nil {
		t.Fatal(err)
	}
	if parked, err := s.Parked(t.Context(), []int{m.Bucket}); err != nil || len(parked) > 0 {
		t.Errorf("after it was delivered, parked are %v, %v", parked, err)
	}
}

// Sums that become zero beside new ones, over and over, are compacted like any others: what Pebble
// 2.1.7 does to a value that its merger deletes ends the process, so ours deletes none.
func TestUsageIsCompacted(t *testing.T) {
	s, err := Open(openConfig(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for round := range 3 {
		var keys []postdate.Key
		var messages []postdate.Message
		for i := range 200 {
			m := postdate.Message{Key: bucket.KeyOf(postdate.DefaultTenant, fmt.Sprint(round, "-", i), s.Buckets()),
				Channel: postdate.Channel(fmt.Sprint("inbox:", round, "-", i)), ExecutionTime: 1_900_000_000_000}
			messages, keys = append(messages, m), append(keys, m.Key)
		}
		for _, r := range s.Insert(t.Context(), messages) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
			t.Fatal(err)
		}
		for _, r := range s.Cancel(t.Context(), keys[:150], 1) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	if err := s.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	if usage, _ := s.UsageOf(postdate.DefaultTenant, ""); usage.Messages != 150 {
		t.Errorf("pending are %+v", usage)
	}
}
