package pebble

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// deliveryOf delivers a message that is stored to an inbox.
func deliveryOf(t *testing.T, s *Store, m *postdate.Message, inbox string) store.InboxDelivery {
	t.Helper()
	return store.InboxDelivery{
		Message:    store.InboxMessage{Tenant: m.Tenant, Inbox: inbox, ScheduleID: m.ScheduleID, DeliveredAt: 1500, Payload: m.Payload},
		Settlement: settlementOf(t, s, m.Key, store.SettleDelivered, store.Next{}),
	}
}

// A damaged state fails its own delivery, and no other one of the call.
func TestDeliverBesideADamagedState(t *testing.T) {
	s := ownedBuckets(t, 2)
	bad, here, there := insertAt(t, s, 0, "bad", 1000), insertAt(t, s, 0, "here", 1000), insertAt(t, s, 1, "there", 1000)
	all := []store.InboxDelivery{deliveryOf(t, s, &here, "x"), deliveryOf(t, s, &bad, "x"), deliveryOf(t, s, &there, "x")}
	if err := s.db.Set(stateKey(nil, bad.Key), []byte{255}, lsm.Sync); err != nil {
		t.Fatal(err)
	}
	errs := s.Deliver(t.Context(), all)
	if errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("answered %v, want an error for the second alone", errs)
	}
	got, _, err := s.ReadInbox(t.Context(), here.Tenant, "x", "", 9)
	if err != nil || len(got) != 2 || got[0].ScheduleID != "here" || got[1].ScheduleID != "there" {
		t.Errorf("the inbox holds %+v, %v", got, err)
	}
}

// Deliveries, many of them twice, cancels, expiry and readers at once: what is DELIVERED was in an inbox once.
func TestDeliverBesideExpiry(t *testing.T) {
	s := ownedBuckets(t, 4)
	const n, inboxes = 3000, 3
	random := testrun.Random(t)
	ms, deliveries := forInboxes(t, s, n, inboxes)
	var work, back sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		random := rand.New(rand.NewPCG(random.Uint64(), 0))
		work.Go(func() {
			for range 60 {
				var some []store.InboxDelivery
				inbox := random.IntN(inboxes)
				for range 1 + random.IntN(300) {
					some = append(some, deliveries[random.IntN(n/inboxes)*inboxes+inbox])
				}
				for _, err := range s.Deliver(t.Context(), some) {
					if err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	work.Go(func() {
		for i := 0; i < n; i += 7 {
			s.Cancel(t.Context(), []postdate.Key{ms[i].Key}, 1)
		}
	})
	expired := 0
	expire := func() int {
		k, err := s.Expire(t.Context(), store.Expiry{Buckets: []int{0, 1, 2, 3}, DeliveredBefore: 9000, Limit: 50})
		if err != nil {
			t.Error(err)
		}
		expired += k
		return k
	}
	back.Go(func() { until(over, func() { expire() }) })
	for i := range inboxes {
		back.Go(func() { neverBack(t, s, fmt.Sprint(i), over) })
	}
	work.Wait()
	close(over)
	back.Wait()
	for expire() > 0 {
	}
	delivered := 0
	for i := range ms {
		if r, err := s.Get(t.Context(), ms[i].Key); err == nil && r.Status == postdate.Delivered {
			delivered++
		}
	}
	if delivered != expired || delivered == 0 {
		t.Errorf("%d messages are DELIVERED, and %d were in inboxes", delivered, expired)
	}
}

// until calls do again and again until over is closed.
func until(over <-chan struct{}, do func()) {
	for {
		select {
		case <-over:
			return
		default:
			do()
		}
	}
}

// forInboxes stores n messages for some inboxes in turn, with their deliveries.
func forInboxes(t *testing.T, s *Store, n, inboxes int) (ms []postdate.Message, deliveries []store.InboxDelivery) {
	t.Helper()
	for i := range n {
		m := openMessage(0)
		m.Key = bucket.KeyOf("t", fmt.Sprint("m-", i), s.c.Buckets)
		m.Channel, m.ExecutionTime = postdate.Channel(fmt.Sprint("inbox:", i%inboxes)), postdate.Time(1000+i)
		ms = append(ms, m)
	}
	for _, r := range s.Insert(t.Context(), ms) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for i := range ms {
		deliveries = append(deliveries, deliveryOf(t, s, &ms[i], fmt.Sprint(i%inboxes)))
	}
	return ms, deliveries
}

// neverBack follows an inbox until over is closed, and expects that each message lies behind the one before.
func neverBack(t *testing.T, s *Store, inbox string, over <-chan struct{}) {
	cursor, last := "", int64(0)
	until(over, func() {
		got, next, err := s.ReadInbox(t.Context(), "t", inbox, cursor, 100)
		if err != nil {
			t.Error(err)
		}
		for _, m := range got {
			if m.Place.Number <= last {
				t.Errorf("message %d comes behind message %d", m.Place.Number, last)
			}
			last = m.Place.Number
		}
		cursor = next
	})
}
