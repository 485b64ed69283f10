package mongo

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// BenchmarkUpcoming looks at what is upcoming in stores of a million messages over a day, with one bucket and with as
// many as by default: in the whole day, and in its first minute.
func BenchmarkUpcoming(b *testing.B) {
	const messages, day = 1_000_000, 24 * 60 * 60 * 1000
	for _, buckets := range []int{1, postdate.BucketsDefault} {
		c := DefaultConfig(mongotest.Fresh(b))
		c.Buckets = buckets
		s, err := Open(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		for from := 0; from < messages; from += 10_000 {
			var some []any
			for i := from; i < from+10_000; i++ {
				m := dueMessage(bucket.KeyOf("default", fmt.Sprint("m", i), buckets))
				m.Channel = postdate.Channel(fmt.Sprint("inbox:", i%20))
				m.ExecutionTime = upcomingBegin + postdate.Time(i*7_919%day)
				st := postdate.NewState(&m, 1<<16)
				some = append(some, documentOf(&m, &st))
			}
			if _, err := s.messages.InsertMany(b.Context(), some); err != nil {
				b.Fatal(err)
			}
		}
		for _, q := range []store.UpcomingQuery{
			{From: upcomingBegin, To: upcomingBegin + day, Step: 24 * time.Minute},
			{From: upcomingBegin, To: upcomingBegin + day, Step: day * time.Millisecond / 500},
			{From: upcomingBegin, To: upcomingBegin + 60_000, Step: time.Second},
			{From: upcomingBegin - day, To: upcomingBegin, Step: time.Hour},
		} {
			q.Tenant = "default"
			b.Run(fmt.Sprintf("%d/%v/%d", buckets, q.To.Sub(q.From), q.Slots()), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Upcoming(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		s.Close()
	}
}
