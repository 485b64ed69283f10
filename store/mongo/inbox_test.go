package mongo_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

func letters(from string, first, n, size int) (all []store.InboxMessage) {
	for i := range n {
		all = append(all, store.InboxMessage{
			Tenant: "default", Inbox: "news", ScheduleID: fmt.Sprintf("%s-%d", from, first+i), ExecutionTime: 1, DeliveredAt: 1000, Attempt: first + i,
			Payload: make([]byte, size),
		})
	}
	return all
}

// TestInboxSegments lets two nodes append to one inbox until it has several segments, while a
// reader follows. The reader sees every message once, and those of each node in order.
func TestInboxSegments(t *testing.T) {
	c := config(mongotest.Fresh(t))
	nodes := []store.Store{open(t, c), open(t, c)}
	const calls, perCall = 40, 45
	var group sync.WaitGroup
	for n, s := range nodes {
		defer s.Close()
		group.Go(func() {
			for i := range calls {
				if err := s.AppendInbox(t.Context(), letters(fmt.Sprint("node", n), i*perCall, perCall, 100)); err != nil {
					t.Errorf("AppendInbox: %v", err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	next := map[string]int{}
	cursor, ended := "", false
	for {
		page, to, err := nodes[0].ReadInbox(t.Context(), "default", "news", cursor, 70)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page {
			node := m.ScheduleID[:5]
			if m.Attempt != next[node] {
				t.Fatalf("%s came where %d of its node was next", m.ScheduleID, next[node])
			}
			next[node]++
		}
		cursor = to
		if len(page) > 0 {
			continue
		}
		if ended {
			break
		}
		select {
		case <-done:
			ended = true // one more round finds what came since the empty page
		default:
		}
	}
	for n := range nodes {
		if got := next[fmt.Sprint("node", n)]; got != calls*perCall {
			t.Errorf("%d messages of node %d were read, want %d", got, n, calls*perCall)
		}
	}
	if n, err := nodes[1].Expire(t.Context(), store.Expiry{Buckets: allOf(nodes[1]), DeliveredBefore: 2000, Limit: 100_000}); err != nil || n != 2*calls*perCall {
		t.Errorf("Expire: %d, %v", n, err)
	}
	if err := nodes[1].AppendInbox(t.Context(), letters("late", 0, 1, 1)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"", cursor} {
		if page, _, err := nodes[0].ReadInbox(t.Context(), "default", "news", from, 10); err != nil || len(page) != 1 || page[0].ScheduleID != "late-0" {
			t.Errorf("after all expired, the cursor %q reads %d messages, %v; want the late one", from, len(page), err)
		}
	}
}

// TestInboxLargeCall appends more in one call than one document takes.
func TestInboxLargeCall(t *testing.T) {
	s := open(t, config(mongotest.Fresh(t)))
	defer s.Close()
	for i := range 2 {
		all := append(letters("small", 10*i, 3, 10), append(letters("large", 10*i, 5, 3<<20), letters("after", 10*i, 2, 10)...)...)
		if err := s.AppendInbox(t.Context(), all); err != nil {
			t.Fatal(err)
		}
	}
	cursor := ""
	for n := range 20 {
		page, next, err := s.ReadInbox(t.Context(), "default", "news", cursor, 1)
		if err != nil || len(page) != 1 {
			t.Fatalf("message %d: %d read, %v", n, len(page), err)
		}
		want := []string{"small", "small", "small", "large", "large", "large", "large", "large", "after", "after"}[n%10]
		if page[0].ScheduleID[:5] != want {
			t.Fatalf("message %d is %s, want one that is %s", n, page[0].ScheduleID, want)
		}
		cursor = next
	}
	if err := s.AppendInbox(t.Context(), letters("huge", 0, 1, 7<<20)); postdate.KindOf(err) != postdate.KindTooLarge {
		t.Errorf("a message that fits into no document: %v", err)
	}
}
