package node_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
)

// consoles are what the pages of ten open consoles read again and again, as often as these do (console/app/src/pages).
var consoles = []struct {
	open  int
	path  string
	every time.Duration
}{
	{3, "/v1/stats", 2 * time.Second},
	{2, "/v1/upcoming?from=%s&to=%s", 5 * time.Second},
	{2, "/v1/cluster", time.Second},
	{1, "/v1/channels", 2 * time.Second},
	{1, "/v1/failures", 5 * time.Second},
	{1, "/v1/messages?status=PENDING&limit=100", 5 * time.Second}, // a person searches
}

// BenchmarkConsoles shows what ten open consoles cost the API's other callers, on a node with a million pending
// messages: for some seconds messages are scheduled at a steady pace with the consoles' requests, for as long without
// them, and so on. It reports the p50 and p99 of the time that an answer takes without consoles, of all turns, and how
// many times as long it is with them.
func BenchmarkConsoles(b *testing.B) {
	ballast := node.HeapBallast() // as serve does
	defer runtime.KeepAlive(ballast)
	n, _ := start(b, config(b))
	schedulePending(b, n.Addr(), 1_000_000)
	for range 6 { // meanwhile the store merges what it took so fast
		paced(b, n.Addr(), false)
	}
	var took [2][]float64 // without consoles, and with
	for turn := 0; b.Loop(); turn++ {
		for i := range took {
			which := (turn + i) % 2
			took[which] = append(took[which], paced(b, n.Addr(), which == 1)...)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	for _, percent := range []int{50, 99} {
		var at [2]float64
		for i := range at {
			at[i] = took[i][len(took[i])*percent/100]
		}
		b.ReportMetric(at[0], fmt.Sprintf("p%d-ms", percent))
		b.ReportMetric(at[1]/at[0], fmt.Sprintf("p%d-times", percent))
	}
}

// schedulePending schedules messages over the next day.
func schedulePending(b *testing.B, address string, count int) {
	const batch = 10_000
	begin := time.Now().Add(time.Hour)
	for from := 0; from < count; from += batch {
		items := make([]string, batch)
		for i := range items {
			at := begin.Add(time.Duration(from+i) * (24 * time.Hour / time.Duration(count)))
			items[i] = fmt.Sprintf(`{"channel":"inbox:box%d","executionTime":%q,"payload":{"order":12345}}`, i%20, nodetest.At(at))
		}
		post(b, address, "/v1/messages/batch", "["+strings.Join(items, ",")+"]")
	}
}

// paced schedules messages at a steady pace, and returns the times that the answers took, in milliseconds. A late answer
// does not hold up the next request: its wait counts.
func paced(b *testing.B, address string, withConsoles bool) []float64 {
	const lasts, callers, every = 10 * time.Second, 32, 16 * time.Millisecond // 2,000 in a second
	ctx, end := context.WithCancel(b.Context())
	var all, looking sync.WaitGroup
	if withConsoles {
		opened := 0
		for _, page := range consoles {
			for range page.open {
				wait := page.every * time.Duration(opened) / 10
				looking.Go(func() { look(ctx, b, address, page.path, page.every, wait) })
				opened++
			}
		}
	}
	var mu sync.Mutex
	var took []float64
	begin := time.Now()
	for caller := range callers {
		all.Go(func() {
			var own []float64
			for at := begin.Add(every * time.Duration(caller) / callers); at.Before(begin.Add(lasts)); at = at.Add(every) {
				<-time.After(time.Until(at))
				post(b, address, "/v1/messages", `{"channel":"inbox:box","delay":"2h","payload":{"order":12345}}`)
				own = append(own, float64(time.Since(at).Microseconds())/1e3)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	all.Wait()
	end()
	looking.Wait()
	return took
}

// look is a page of a console that is open until ctx ends, and first reads after wait: pages are opened at different
// moments.
func look(ctx context.Context, b *testing.B, address, path string, every, wait time.Duration) {
	if strings.Contains(path, "%s") {
		now := time.Now()
		path = fmt.Sprintf(path, nodetest.At(now), nodetest.At(now.Add(24*time.Hour)))
	}
	next := time.NewTimer(wait)
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(every)
		}
		if status, _, err := fasthttp.Get(nil, "http://"+address+path); err != nil || status != fasthttp.StatusOK {
			b.Errorf("%s: %d, %v", path, status, err)
		}
	}
}
