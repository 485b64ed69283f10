package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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
// messages, which are scheduled at a steady pace: from one garbage collection to the next with the consoles' requests,
// to the next one without, and so on. The longest answers wait for a collection, and chance shall not give one side more
// of these. It reports the p50 and p99 of the time that an answer takes without consoles, of all turns, and how many
// times as long it is with them; in nine of ten cases in which the turns are drawn anew (the bootstrap), that is between
// low and high.
//
//	go test ./node -run '^$' -bench BenchmarkConsoles -benchtime 40x -timeout 30m
func BenchmarkConsoles(b *testing.B) {
	ballast := node.HeapBallast() // as serve does
	defer runtime.KeepAlive(ballast)
	n, _ := start(b, config(b))
	schedulePending(b, n.Addr(), 1_000_000)
	for range 5 { // meanwhile the store merges what it took so fast
		paced(b, n.Addr(), false)
	}
	var turns []turn
	for b.Loop() {
		var took turn
		for i := range took {
			which := (len(turns) + i) % 2
			took[which] = paced(b, n.Addr(), which == 1)
		}
		turns = append(turns, took)
	}
	without, times := quantiles(turns)
	var drawn [len(percents)][]float64
	for range 200 {
		anew := make([]turn, len(turns))
		for i := range anew {
			anew[i] = turns[rand.IntN(len(turns))]
		}
		_, t := quantiles(anew)
		for i := range percents {
			drawn[i] = append(drawn[i], t[i])
		}
	}
	for i, percent := range percents {
		slices.Sort(drawn[i])
		b.ReportMetric(without[i], fmt.Sprintf("p%d-ms", percent))
		b.ReportMetric(times[i], fmt.Sprintf("p%d-times", percent))
		b.ReportMetric(drawn[i][len(drawn[i])/20], fmt.Sprintf("p%d-times-low", percent))
		b.ReportMetric(drawn[i][len(drawn[i])*19/20], fmt.Sprintf("p%d-times-high", percent))
	}
}

// turn is the times that answers took in one turn, in milliseconds: without consoles, and with.
type turn [2][]float64

// percents are the quantiles that are reported.
var percents = [...]int{50, 99}

// quantiles returns those of all turns without consoles, and how many times as long they are with them.
func quantiles(turns []turn) (without, times [len(percents)]float64) {
	var sorted turn
	for i := range sorted {
		for _, t := range turns {
			sorted[i] = append(sorted[i], t[i]...)
		}
		slices.Sort(sorted[i])
	}
	for i, percent := range percents {
		of := func(took []float64) float64 { return took[len(took)*percent/100] }
		without[i] = of(sorted[0])
		times[i] = of(sorted[1]) / without[i]
	}
	return without, times
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

// paced schedules messages at a steady pace until shortly after the next garbage collection, and returns the times that
// the answers took, in milliseconds. A late answer does not hold up the next request: its wait counts.
func paced(b *testing.B, address string, withConsoles bool) []float64 {
	const callers, every = 32, 16 * time.Millisecond // 2,000 in a second
	ctx, end := context.WithCancel(b.Context())
	// Nothing refers to these bytes, so they go with the next collection. Who waited for it has an answer 0.2 s later.
	runtime.AddCleanup(new([64]byte), func(end context.CancelFunc) { time.AfterFunc(200*time.Millisecond, end) }, end)
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
			for at := begin.Add(every * time.Duration(caller) / callers); ctx.Err() == nil; at = at.Add(every) {
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
