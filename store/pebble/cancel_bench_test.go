package pebble_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/store"
)

const benchLater = postdate.Time(4_000_000_000_000)

// benchPending inserts so many messages, due at benchLater, and returns their keys.
func benchPending(b *testing.B, s store.Messages, messages int) []postdate.Key {
	keys := make([]postdate.Key, messages)
	for from := 0; from < messages; from += 500 {
		ms := make([]postdate.Message, min(500, messages-from))
		for i := range ms {
			ms[i] = benchMessage(from+i, benchLater)
			keys[from+i] = ms[i].Key
		}
		for _, r := range s.Insert(context.Background(), ms) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	return keys
}

// BenchmarkCancel is one message per call, from 64 callers, as a node does it.
func BenchmarkCancel(b *testing.B) { benchCancel(b, store.Coalesce(benchStore(b)), 64, 1) }

// BenchmarkCancelBatch is 500 messages per call, from four callers.
func BenchmarkCancelBatch(b *testing.B) { benchCancel(b, benchStore(b), 4, 500) }

func benchCancel(b *testing.B, s store.Messages, callers, size int) {
	keys := benchPending(b, s, b.N*size)
	var next atomic.Int64
	b.ResetTimer()
	done := benchtest.Start(b)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for n := int(next.Add(1)); n <= b.N; n = int(next.Add(1)) {
				for _, r := range s.Cancel(context.Background(), keys[(n-1)*size:n*size], 1) {
					if r.Err != nil || !r.Changed {
						b.Errorf("cancelled: %v, %v", r.Changed, r.Err)
					}
				}
			}
		})
	}
	wg.Wait()
	done(b.N * size)
}

// BenchmarkGet reads one message per call, among 20,000.
func BenchmarkGet(b *testing.B) {
	s := benchStore(b)
	keys := benchPending(b, s, 20_000)
	b.ReportAllocs()
	done := benchtest.Start(b)
	for n := 0; b.Loop(); n++ {
		if _, err := s.Get(context.Background(), keys[scattered(n)%len(keys)]); err != nil {
			b.Fatal(err)
		}
	}
	done(b.N)
}
