package node_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/internal/nodetest"
)

// BenchmarkTraces shows what tracing costs at 1 % sampling, with a collector in the same process: two nodes, of which
// one traces, do the same work in turn. It reports the processor time of this process per message without tracing, and
// how much more the other node takes: the median of all turns. The work is to schedule messages, one request each, and
// to deliver them to an inbox.
func BenchmarkTraces(b *testing.B) {
	b.Run("schedule", func(b *testing.B) { benchTraces(b, false) })
	b.Run("deliver", func(b *testing.B) { benchTraces(b, true) })
}

func benchTraces(b *testing.B, deliver bool) {
	collect(b, "grpc")
	b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
	b.Setenv("OTEL_TRACES_SAMPLER_ARG", "0.01")
	b.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1000")
	var works [2]func() float64
	for i, on := range []bool{false, true} {
		c := traced(b)
		c.Traces = on
		n, api := start(b, c)
		works[i] = func() float64 { return scheduleMany(b, n.Addr()) }
		if deliver {
			works[i] = func() float64 { return deliverMany(b, n.Addr(), api) }
		}
		works[i]()
	}
	var off, more []float64
	for turn := 0; b.Loop(); turn++ {
		var took [2]float64
		for i := range took {
			which := (turn + i) % 2
			took[which] = works[which]()
		}
		off, more = append(off, took[0]), append(more, 100*(took[1]/took[0]-1))
	}
	b.ReportMetric(median(off), "off-cpu-µs/msg")
	b.ReportMetric(median(more), "more-%")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// scheduleMany schedules messages, one request each, and returns the processor time of one, in microseconds.
func scheduleMany(b *testing.B, address string) float64 {
	const callers, each = 16, 250
	var all sync.WaitGroup
	used := benchtest.ProcessorTime(b)
	for range callers {
		all.Go(func() {
			for range each {
				post(b, address, "/v1/messages", `{"channel":"inbox:box","delay":"1h","payload":{"order":12345,"customer":"c-987"}}`)
			}
		})
	}
	all.Wait()
	return float64((benchtest.ProcessorTime(b) - used).Nanoseconds()) / (callers * each) / 1e3
}

// deliverMany schedules messages in a batch, and returns the processor time of one's delivery, in microseconds.
func deliverMany(b *testing.B, address string, api *nodetest.Client) float64 {
	const count = 10_000
	items := make([]string, count)
	due := time.Now().Add(1500 * time.Millisecond)
	for i := range items {
		items[i] = fmt.Sprintf(`{"channel":"inbox:box","executionTime":%q,"payload":{"order":12345,"customer":"c-987"}}`, nodetest.At(due))
	}
	post(b, address, "/v1/messages/batch", "["+strings.Join(items, ",")+"]")
	<-time.After(time.Until(due) - 100*time.Millisecond)
	used := benchtest.ProcessorTime(b)
	if err := api.AwaitNonePending(patient(b)); err != nil {
		b.Fatal(err)
	}
	return float64((benchtest.ProcessorTime(b) - used).Nanoseconds()) / count / 1e3
}

func post(b *testing.B, address, path, body string) {
	request, answer := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(answer)
	request.SetRequestURI("http://" + address + path)
	request.Header.SetMethod("POST")
	request.Header.SetContentType("application/json")
	request.SetBodyString(body)
	if err := fasthttp.Do(request, answer); err != nil || answer.StatusCode()/100 != 2 {
		b.Errorf("%d, %v", answer.StatusCode(), err)
	}
}
