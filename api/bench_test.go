package api

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/benchtest"
	"github.com/postdate/postdate/internal/tracing"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// sink is a store that accepts everything and keeps nothing, so that the
// benchmarks measure the API alone.
type sink struct{ store.Messages }

func (sink) Insert(_ context.Context, messages []postdate.Message) []store.Inserted {
	results := make([]store.Inserted, len(messages))
	for i := range messages {
		results[i] = store.Inserted{Created: true, ExecutionTime: messages[i].ExecutionTime, Status: postdate.Pending}
	}
	return results
}

// load is a request body and the number of its messages.
type load struct {
	body     []byte
	messages int
}

// benchmark calls the handlers like the server, but without a socket.
func benchmark(b *testing.B, inbox Inbox, method, path string, load load) {
	benchmarkAs(b, Config{Buckets: testBuckets, Messages: sink{}, Requests: storetest.NewMem(testBuckets), Inbox: inbox}, "", method, path, load)
}

// benchmarkAs is benchmark with an Authorization header; "": none.
func benchmarkAs(b *testing.B, config Config, authorization, method, path string, load load) {
	body, perCall := load.body, load.messages
	server, err := New(config)
	if err != nil {
		b.Fatal(err)
	}
	var ctx fasthttp.RequestCtx
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	done := benchtest.Start(b)
	for b.Loop() {
		ctx.Request.Reset()
		ctx.Response.Reset()
		ctx.Request.Header.SetMethod(method)
		ctx.Request.SetRequestURI(path)
		ctx.Request.Header.SetContentType("application/json")
		if authorization != "" {
			ctx.Request.Header.Set("Authorization", authorization)
		}
		ctx.Request.SetBodyRaw(body)
		server.http.Handler(&ctx)
		if code := ctx.Response.StatusCode(); code/100 != 2 {
			b.Fatalf("%d %s", code, ctx.Response.Body())
		}
	}
	done(b.N * perCall)
}

const benchPayload = `{"order":12345,"customer":"c-987","lines":[{"sku":"a","n":1},{"sku":"b","n":2}],"note":"please ring twice"}`

func benchMessage(i int) string {
	return fmt.Sprintf(`{"scheduleId":"order-%d","channel":"inbox:bench","executionTime":"2027-01-31T12:00:00.250Z","headers":{"x-shop":"berlin"},"payload":%s}`, i, benchPayload)
}

func BenchmarkPostOne(b *testing.B) {
	benchmark(b, &fakeInbox{}, "POST", "/v1/messages", load{[]byte(benchMessage(1)), 1})
}

// BenchmarkPostOneWithKey shows what a key costs, against BenchmarkPostOne.
func BenchmarkPostOneWithKey(b *testing.B) {
	now := func() postdate.Time { return postdate.WallOf(time.Now()) }
	keys := auth.NewKeeper(auth.Config{Store: storetest.NewMem(testBuckets), AdminKey: adminKey, Now: now})
	_, text, err := keys.Create(b.Context(), auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages}, Channels: []string{"inbox:*"}})
	if err != nil {
		b.Fatal(err)
	}
	config := Config{Buckets: testBuckets, Messages: sink{}, Requests: storetest.NewMem(testBuckets), Inbox: &fakeInbox{}, Keys: keys}
	benchmarkAs(b, config, "Bearer "+text, "POST", "/v1/messages", load{[]byte(benchMessage(1)), 1})
}

func BenchmarkPostBatchOf500(b *testing.B) {
	var items []string
	for i := range 500 {
		items = append(items, benchMessage(i))
	}
	benchmark(b, &fakeInbox{}, "POST", "/v1/messages/batch", load{[]byte("[" + strings.Join(items, ",") + "]"), 500})
}

func BenchmarkGetOne(b *testing.B) {
	messages := storetest.NewMem(testBuckets)
	config := Config{Buckets: testBuckets, Messages: messages, Requests: messages, Inbox: &fakeInbox{}}
	messages.Insert(b.Context(), []postdate.Message{{
		Key: bucket.KeyOf(postdate.DefaultTenant, "order-1", testBuckets), Channel: "inbox:bench", ExecutionTime: testNow,
		ContentType: contentTypeJSON, Payload: []byte(benchPayload), Headers: []postdate.Header{{Name: "x-shop", Value: "berlin"}},
	}})
	benchmarkAs(b, config, "", "GET", "/v1/messages/order-1", load{nil, 1})
}

func BenchmarkInboxPageOf1000(b *testing.B) {
	inbox := &fakeInbox{}
	for i := range 1000 {
		inbox.messages = append(inbox.messages, store.InboxMessage{
			ScheduleID: fmt.Sprint("order-", i), ExecutionTime: testNow, DeliveredAt: testNow + 1, Attempt: 1,
			ContentType: contentTypeJSON, Payload: bytes.Clone([]byte(benchPayload)), Headers: []postdate.Header{{Name: "x-shop", Value: "berlin"}},
		})
	}
	benchmark(b, inbox, "GET", "/v1/inbox/bench?limit=1000", load{nil, 1000})
}

// BenchmarkPostOneTraced shows what tracing costs the handler alone at 1 % sampling, against BenchmarkPostOne.
func BenchmarkPostOneTraced(b *testing.B) {
	provider := sdk.NewTracerProvider(sdk.WithBatcher(tracetest.NewNoopExporter()))
	b.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	config := Config{Buckets: testBuckets, Messages: sink{}, Requests: storetest.NewMem(testBuckets), Inbox: &fakeInbox{},
		Tracer: tracing.New(provider.Tracer("t"), tracing.Sampler{ParentBased: true, Ratio: 0.01})}
	benchmarkAs(b, config, "", "POST", "/v1/messages", load{[]byte(benchMessage(1)), 1})
}
