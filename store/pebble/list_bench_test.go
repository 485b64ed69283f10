package pebble_test

import (
	"context"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// labelledTenth labels each tenth message that it inserts.
type labelledTenth struct{ store.Messages }

func (s labelledTenth) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	for i := range messages {
		if i%10 == 0 {
			messages[i].Labels = []string{"campaign-7"}
		}
	}
	return s.Messages.Insert(ctx, messages)
}

// BenchmarkListLabelled lists the 100,000 messages with a label among 1,000,000, in pages of 1,000, whole and by their
// states alone.
func BenchmarkListLabelled(b *testing.B) {
	c := pebble.DefaultConfig(b.TempDir())
	c.CacheBytes = 256 << 20
	s := benchOpen(b, c)
	defer s.Close()
	benchFill(b, labelledTenth{s}, 0, 1_000_000)
	b.Run("whole", func(b *testing.B) { benchLabelled(b, s, false) })
	b.Run("states", func(b *testing.B) { benchLabelled(b, s, true) })
}

func benchLabelled(b *testing.B, s *pebble.Store, statesOnly bool) {
	for b.Loop() {
		n := 0
		q := store.ListQuery{Tenant: postdate.DefaultTenant, Label: "campaign-7", Limit: 1000,
			StatesOnly: statesOnly}
		for more := true; more; more = q.After != nil {
			page, err := s.List(context.Background(), q)
			if err != nil {
				b.Fatal(err)
			}
			n += len(page.Records)
			q.After = page.Next
		}
		if n != 100_000 {
			b.Fatalf("%d messages have the label", n)
		}
	}
	b.ReportMetric(100_000/(b.Elapsed().Seconds()/float64(b.N)), "msg/s")
}

// BenchmarkListPending lists the first 100 of 100,000 pending messages, before which are 100,000 that are settled.
func BenchmarkListPending(b *testing.B) {
	const messages = 100_000
	s := benchStore(b)
	benchFill(b, s, 0, messages)
	settled := make([]postdate.Key, messages)
	for i := range settled {
		settled[i] = benchMessage(scattered(i), 0).Key
	}
	for _, r := range s.Cancel(b.Context(), settled, 1) {
		if r.Err != nil || !r.Changed {
			b.Fatal(r.Changed, r.Err)
		}
	}
	benchPending(b, s, messages)
	q := store.ListQuery{Tenant: postdate.DefaultTenant, Status: postdate.Pending, Limit: 100}
	for b.Loop() {
		page, err := s.List(b.Context(), q)
		if err != nil || len(page.Records) != q.Limit {
			b.Fatalf("%d messages: %v", len(page.Records), err)
		}
	}
}
