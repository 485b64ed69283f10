package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/internal/nodetest"
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
// them, and so on. It reports the p50 and p99 of the time that an answer takes without consoles, and how many times as
// long it takes with them: the median of all turns.
func BenchmarkConsoles(b *testing.B) {
	n, _ := start(b, config(b))
	schedulePending(b, n.Addr(), 1_000_000)
	for range 6 { // meanwhile the store merges what it took so fast
		paced(b, n.Addr(), false)
	}
	var p50, p99, ratio50, ratio99 []float64
	for turn := 0; b.Loop(); turn++ {
		var at [2][2]float64
		for i := range at {
			which := (turn + i) % 2
			at[which] = paced(b, n.Addr(), which == 1)
		}
		p50, p99 = append(p50, at[0][0]), append(p99, at[0][1])
		ratio50, ratio99 = append(ratio50, at[1][0]/at[0][0]), append(ratio99, at[1][1]/at[0][1])
	}
	b.ReportMetric(median(p50), "p50-ms")
	b.ReportMetric(median(p99), "p99-ms")
	b.ReportMetric(median(ratio50), "p50-times")
	b.ReportMetric(median(ratio99), "p99-times")
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

// paced schedules messages at a steady pace, and returns the p50 and p99 of the time that an answer took, in
// milliseconds. A late answer does not hold up the next request: its wait counts.
func paced(b *testing.B, address string, withConsoles bool) [2]float64 {
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
	slices.Sort(took)
	return [2]float64{took[len(took)/2], took[len(took)*99/100]}
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
