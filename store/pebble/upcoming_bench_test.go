package pebble_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// BenchmarkUpcoming looks at what is upcoming in stores of a million messages over a day, with one bucket, with as many
// as by default, and with as many as there may be: in the whole day, and in its first minute. It also counts what is
// pending by channel.
func BenchmarkUpcoming(b *testing.B) {
	const messages, day, begin = 1_000_000, 24 * 60 * 60 * 1000, postdate.Time(2_000_000_000_000)
	for _, buckets := range []int{1, postdate.BucketsDefault, postdate.BucketsMax} {
		c := pebble.DefaultConfig(b.TempDir())
		c.Buckets = buckets
		s := benchOpen(b, c)
		for from := 0; from < messages; from += 1_000 {
			ms := make([]postdate.Message, 1_000)
			for i := range ms {
				at := begin + postdate.Time(scattered(from+i)%day)
				ms[i] = benchMessage(from+i, at)
				ms[i].Key, ms[i].Payload = bucket.KeyOf(postdate.DefaultTenant, ms[i].ScheduleID, buckets), ms[i].Payload[:64]
				ms[i].Channel = postdate.Channel(fmt.Sprint("inbox:", i%20))
			}
			for _, r := range s.Insert(b.Context(), ms) {
				if r.Err != nil {
					b.Fatal(r.Err)
				}
			}
		}
		for _, q := range []store.UpcomingQuery{
			{From: begin, To: begin + day, Step: 24 * time.Minute},
			{From: begin, To: begin + day, Step: day * time.Millisecond / 500},
			{From: begin, To: begin + 60_000, Step: time.Second},
			{From: begin - day, To: begin, Step: time.Hour},
		} {
			q.Tenant = postdate.DefaultTenant
			b.Run(fmt.Sprintf("%d/%v/%d", buckets, q.To.Sub(q.From), q.Slots()), func(b *testing.B) {
				for b.Loop() {
					if _, err := s.Upcoming(b.Context(), q); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(fmt.Sprintf("%d/pending", buckets), func(b *testing.B) {
			for b.Loop() {
				if p, err := s.Pending(b.Context(), postdate.DefaultTenant, begin+day/2); err != nil || len(p.Channels) != 20 {
					b.Fatal(len(p.Channels), err)
				}
			}
		})
		s.Close()
	}
}
