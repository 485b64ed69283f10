package mongo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/storetest"
)

const usageBuckets = 8

// usageNode opens the store at uri as one node does; share as in Config.
func usageNode(t *testing.T, uri string, share time.Duration) *Store {
	t.Helper()
	c := DefaultConfig(uri)
	c.Buckets, c.Share, c.Log = usageBuckets, share, nil
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func usageMessage(i, payloadBytes int) postdate.Message {
	return postdate.Message{
		Key: bucket.KeyOf("t", fmt.Sprint("m-", i), usageBuckets), Channel: "inbox:a", ExecutionTime: 1_900_000_000_000,
		CreatedAt: 1, Payload: make([]byte, payloadBytes),
	}
}

func insertMessages(t *testing.T, s *Store, messages ...postdate.Message) {
	t.Helper()
	for _, r := range s.Insert(t.Context(), messages) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// must fails if a step failed.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCounted(t *testing.T, who string, s *Store, want store.Usage) {
	t.Helper()
	if got, _ := s.UsageOf("t", "inbox:a"); got != want {
		t.Errorf("for %s %+v is pending, want %+v", who, got, want)
	}
}

// own takes the bucket of a message, and returns the token.
func own(t *testing.T, s *Store, b int) uint64 {
	t.Helper()
	got, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: b, Owner: "n", Lease: "n/1"}})
	if err != nil || !got[0].OK {
		t.Fatal(got, err)
	}
	return got[0].Partition.Token
}

// Nodes tell each other what they counted. In the normal course of things none of them is
// unsure, and nothing is counted anew.
func TestUsageIsShared(t *testing.T) {
	uri := mongotest.Fresh(t)
	a, b := usageNode(t, uri, 0), usageNode(t, uri, 0)
	m, large, gone := usageMessage(1, 100), usageMessage(2, 5000), usageMessage(3, 7)
	insertMessages(t, a, m, large, gone)
	insertMessages(t, a, m) // repeated
	wantCounted(t, "the node itself", a, store.Usage{Messages: 3, Bytes: 5107, Channels: 1})
	wantCounted(t, "another node, before it is shared", b, store.Usage{})
	must(t, a.share(t.Context()))
	must(t, b.share(t.Context()))
	wantCounted(t, "another node", b, store.Usage{Messages: 3, Bytes: 5107, Channels: 1})

	for _, r := range b.Cancel(t.Context(), []postdate.Key{gone.Key, gone.Key}, 2) {
		must(t, r.Err)
	}
	rec, err := b.Get(t.Context(), large.Key)
	must(t, err)
	large.Payload = large.Payload[:4000]
	_, err = storetest.Replace(t.Context(), b, large, rec.Version)
	must(t, err)
	wantCounted(t, "the one that cancelled and replaced", b, store.Usage{Messages: 2, Bytes: 4100, Channels: 1})

	token := own(t, b, m.Bucket)
	due := b.Claim(t.Context(), []store.Claim{{Bucket: m.Bucket, Scan: store.Scan{Limit: 9, BytesMax: 1 << 20},
		Claim: bucket.Claim{Token: token, Number: 1, To: bucket.UpTo(m.ExecutionTime)}}})[0].Due
	for _, how := range []store.Settling{store.SettleRetry, store.SettleDelivered, store.SettleDelivered} { // the last one is repeated
		for _, r := range due {
			if r.ScheduleID == m.ScheduleID {
				must(t, b.Settle(t.Context(), []store.Settlement{{Key: r.Key, ExecutionTime: r.ExecutionTime, Version: r.Version,
					Token: token, How: how, At: 3, Attempts: 1, AttemptTime: r.ExecutionTime}}))
			}
		}
	}
	must(t, b.share(t.Context()))
	must(t, a.share(t.Context()))
	for who, s := range map[string]*Store{"the one that settled": b, "the other one": a, "a new one": usageNode(t, uri, 0)} {
		wantCounted(t, who, s, store.Usage{Messages: 1, Bytes: 4000, Channels: 1})
		if s.counts.unsure.Load() {
			t.Errorf("%s is unsure", who)
		}
	}
}

// What a node that died had not shared, a recount finds. What another one shares at the same
// time is not lost, and counts once.
func TestRecount(t *testing.T) {
	uri := mongotest.Fresh(t)
	dead, a, b := usageNode(t, uri, 0), usageNode(t, uri, 0), usageNode(t, uri, 0)
	insertMessages(t, dead, usageMessage(1, 100), usageMessage(2, 5000)) // never shared
	insertMessages(t, a, usageMessage(3, 10))
	must(t, b.recount(t.Context(), 0)) // counts also what a did not share
	insertMessages(t, a, usageMessage(4, 1))
	must(t, a.share(t.Context()))
	must(t, b.share(t.Context()))
	must(t, b.recount(t.Context(), 0)) // nothing is under way now
	must(t, b.share(t.Context()))
	must(t, a.share(t.Context()))
	for who, s := range map[string]*Store{"a": a, "b": b, "a new one": usageNode(t, uri, 0)} {
		wantCounted(t, who, s, store.Usage{Messages: 4, Bytes: 5111, Channels: 1})
	}
}

// Whatever nodes share, lose and count anew at the same time: once they are quiet, one recount
// makes the documents exact. And a recount never adds more than was lost or is not shared.
func TestCorrectionsConverge(t *testing.T) {
	random := testrun.Random(t)
	for range 2000 {
		pending, document, unshared := int64(0), int64(0), int64(0)
		step := func(lose bool) {
			n := random.Int64N(9) - min(4, pending)
			if pending += n; !lose {
				unshared += n
			}
		}
		share := func() { document, unshared = document+unshared, 0 }
		for range random.IntN(20) {
			step(random.IntN(5) == 0)
			if random.IntN(2) == 0 {
				share()
			}
		}
		counted, first, before := pending, document, unshared // the snapshot
		share()
		for range random.IntN(3) {
			step(false)
			share()
		}
		second := document
		step(false)
		document += lack(counted, first, second)
		share()
		if off := document - pending; off < -90 || off > 90 {
			t.Fatalf("after a recount beside others it is off by %d, with %d not shared", off, before)
		}
		document += lack(pending, document, document) // all is quiet
		if document != pending {
			t.Fatalf("%d is pending, and %d counted", pending, document)
		}
	}
}

// One node at a time counts anew, at its time; if one is unsure, earlier.
func TestWhoRecounts(t *testing.T) {
	uri := mongotest.Fresh(t)
	a, b := usageNode(t, uri, 0), usageNode(t, uri, 0)
	take := func(s *Store, soon, want bool, when string) {
		t.Helper()
		if mine, err := s.takeRecount(t.Context(), soon); mine != want || err != nil {
			t.Errorf("%s: %t, %v; want %t", when, mine, err, want)
		}
	}
	began := func(ago time.Duration) {
		t.Helper()
		_, err := a.usage.UpdateOne(t.Context(), doc("_id", recountID), bson.A{doc("$set",
			doc("began", doc("$subtract", bson.A{"$$NOW", ago.Milliseconds()}),
				"next", doc("$add", bson.A{"$$NOW", (recountEvery - ago).Milliseconds()})))})
		must(t, err)
	}
	take(a, false, false, "there is no document yet: it is made")
	take(a, false, true, "at first")
	take(b, false, false, "just after another one began")
	take(b, true, false, "just after, and unsure")
	began(recountSoonest + time.Second)
	take(b, false, false, "a little later")
	take(b, true, true, "a little later, and unsure")
	take(a, true, false, "after that")
	began(recountEvery + time.Second)
	take(a, false, true, "in time")
}

// A store shares by itself, and when it is closed.
func TestSharesByItself(t *testing.T) {
	uri := mongotest.Fresh(t)
	a := usageNode(t, uri, time.Millisecond)
	reads := make(chan struct{}, 1)
	c := a.c
	b, err := OpenWatched(t.Context(), c, &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "find" {
			select {
			case reads <- struct{}{}:
			default:
			}
		}
	}})
	must(t, err)
	defer b.Close()
	insertMessages(t, a, usageMessage(1, 100))
	for range reads { // it ends: b goes on reading
		if u, uses := b.UsageOf("t", "inbox:a"); uses && u.Bytes == 100 {
			break
		}
	}
	last := usageNode(t, uri, time.Hour)
	insertMessages(t, last, usageMessage(2, 11))
	must(t, last.Close())
	wantCounted(t, "one that is opened after it", usageNode(t, uri, 0), store.Usage{Messages: 2, Bytes: 111, Channels: 1})
}

// What is remembered of messages that were handed out is bounded, and the latest are there.
func TestHandedIsBounded(t *testing.T) {
	var h handed
	key := func(i int) handedKey { return handedKey{version: uint64(i)} }
	const many = 3*handedMax + handedMax/2
	for i := range many {
		h.note(key(i), store.Change{Messages: int64(i)})
	}
	if n := len(h.young) + len(h.old); n > 2*handedMax {
		t.Errorf("%d are remembered", n)
	}
	for _, i := range []int{many - 1, many - handedMax, many - 1 - rand.IntN(handedMax)} {
		if c, known := h.take(key(i)); !known || c.Messages != int64(i) {
			t.Errorf("message %d: %+v, %t", i, c, known)
		}
	}
	if _, known := h.take(key(many - 1)); known {
		t.Error("it was taken twice")
	}
	if _, known := h.take(key(0)); known {
		t.Error("the first one is remembered")
	}
}
