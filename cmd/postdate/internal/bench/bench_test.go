package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate/internal/testrun"
)

func testRun(t *testing.T, server string) *run {
	t.Helper()
	c := DefaultConfig()
	c.Server, c.Callers, c.Batch, c.Messages = server, 4, 10, 25
	l, err := newLoader(c)
	if err != nil {
		t.Fatal(err)
	}
	return &run{Config: c, name: "bench-test", load: l, tracker: &tracker{}}
}

// The benchmark exists to judge: each broken promise must show.
func TestArrivalsAreJudged(t *testing.T) {
	due := time.UnixMilli(1_800_000_000_000)
	onTime := func(id string) receipt { return receipt{id: id, at: due.Add(2 * time.Millisecond)} }
	for _, test := range []struct {
		name   string
		arrive func(g *group, receive func(receipt))
		want   Arrivals
		broken bool
	}{
		{"all well", func(g *group, receive func(receipt)) {
			receive(onTime(g.id(0)))
			receive(onTime(g.id(1)))
			receive(onTime("bench-other-run-x-0"))
			receive(onTime(g.prefix + "99"))
			receive(onTime(g.prefix + "-1"))
		}, Arrivals{}, false},
		{"lost", func(g *group, receive func(receipt)) {
			receive(onTime(g.id(0)))
		}, Arrivals{Lost: 1}, true},
		{"early", func(g *group, receive func(receipt)) {
			receive(receipt{id: g.id(0), at: due.Add(-time.Microsecond)})
			receive(receipt{id: g.id(1), at: due})
		}, Arrivals{Early: 1}, true},
		{"twice without a mark", func(g *group, receive func(receipt)) {
			receive(onTime(g.id(0)))
			receive(onTime(g.id(1)))
			receive(onTime(g.id(1)))
		}, Arrivals{DuplicatesUnmarked: 1}, true},
		{"twice with a mark", func(g *group, receive func(receipt)) {
			receive(onTime(g.id(0)))
			receive(onTime(g.id(1)))
			receive(receipt{id: g.id(1), at: due, possibleDuplicate: true})
		}, Arrivals{DuplicatesMarked: 1}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &run{name: "bench-test", tracker: &tracker{}}
			g := r.group("x", 2)
			g.expect(0, due)
			g.expect(1, due)
			test.arrive(g, r.tracker.receive)
			row := Row{}
			row.judge(g)
			if *row.Arrivals != test.want {
				t.Errorf("judged %+v, want %+v", *row.Arrivals, test.want)
			}
			report := Report{Rows: []Row{{}, row}}
			if err := report.Verdict(); (err != nil) != test.broken {
				t.Errorf("verdict %v, want broken %v", err, test.broken)
			}
		})
	}
}

// A due time is sent in milliseconds, rounded up: a message that arrives at that time is not
// early.
func TestRequestBodies(t *testing.T) {
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.Method+" "+r.URL.Path+" "+string(body))
		io.WriteString(w, `{"results":[{"scheduleId":"a","status":"PENDING"}]}`)
	}))
	defer server.Close()
	r := testRun(t, server.URL)
	g := r.group("x", 2)
	g.expect(0, time.Date(2027, 1, 31, 9, 30, 0, 1, time.UTC))
	g.expect(1, time.Date(2027, 1, 31, 9, 30, 0, 0, time.UTC))
	if err := r.load.schedule(t.Context(), g, 0); err != nil {
		t.Fatal(err)
	}
	if err := r.load.scheduleBatch(t.Context(), g, 0, 2); err != nil {
		t.Fatal(err)
	}
	if err := r.load.cancelBatch(t.Context(), g, 0, 2); err != nil {
		t.Fatal(err)
	}
	type message struct{ ScheduleID, Channel, ExecutionTime, Payload string }
	var one message
	var many []message
	unmarshal(t, strings.TrimPrefix(bodies[0], "POST /v1/messages "), &one)
	unmarshal(t, strings.TrimPrefix(bodies[1], "POST /v1/messages/batch "), &many)
	want := message{"bench-test-x-0", "inbox:bench", "2027-01-31T09:30:00.001Z", one.Payload}
	if one != want || len(many) != 2 || many[0] != want || many[1].ExecutionTime != "2027-01-31T09:30:00.000Z" {
		t.Errorf("sent %+v and %+v", one, many)
	}
	if len(one.Payload)+2 != r.Payload {
		t.Errorf("the payload is %d bytes as JSON, want %d", len(one.Payload)+2, r.Payload)
	}
	if want := `POST /v1/messages/cancel {"scheduleIds":["bench-test-x-0","bench-test-x-1"]}`; bodies[2] != want {
		t.Errorf("sent %s, want %s", bodies[2], want)
	}
}

func unmarshal(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// A request to an overloaded server is repeated; a refused one is not, and ends the phase.
func TestRetriesAndRefusals(t *testing.T) {
	var calls atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch n := calls.Add(1); {
		case r.URL.Path == "/v1/messages/batch":
			io.WriteString(w, `{"results":[{"scheduleId":"a","status":"PENDING"},{"error":{"detail":"no room"}}]}`)
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusConflict)
			io.WriteString(w, `{"detail":"delivery has begun"}`)
		case n == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusCreated)
		}
	}))
	defer server.Close()
	r := testRun(t, server.URL)
	g := r.group("x", 25)
	if _, err := r.schedule(t.Context(), "schedule", g, farOff); err != nil {
		t.Errorf("schedule: %v", err)
	}
	if got := r.load.retries.Load(); got != 1 {
		t.Errorf("%d retries, want 1", got)
	}
	if row := r.report.Rows[0]; row.Messages != 25 || row.MaxMs < row.P50Ms {
		t.Errorf("the row is %+v", row)
	}
	err := r.scheduleBatches(t.Context(), "batches", g, farOff)
	if err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("a refused item of a batch: got %v", err)
	}
	r.Cancel = 1
	if err := r.cancelOneByOne(t.Context(), g); err == nil || !strings.Contains(err.Error(), "409: delivery has begun") {
		t.Errorf("a refused cancel: got %v", err)
	}
}

// The reader skips what is already in the inbox and goes on by cursor.
func TestInboxIsReadFromItsEnd(t *testing.T) {
	ids := []string{"old-0", "old-1", "new-0", "new-1", "new-2"}
	var visible atomic.Int64
	visible.Store(2)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var after int
		fmt.Sscan(r.FormValue("after"), &after)
		end := min(after+1, int(visible.Load()))
		var page []string
		for _, id := range ids[after:end] {
			page = append(page, fmt.Sprintf(`{"scheduleId":%q,"possibleDuplicate":%t,"payload":{"a":[1]}}`, id, id == "new-1"))
		}
		fmt.Fprintf(w, `{"messages":[%s],"nextCursor":"%d"}`, strings.Join(page, ","), end)
	}))
	defer server.Close()
	r := testRun(t, server.URL)
	in, err := openInbox(t.Context(), r.load, "bench")
	if err != nil {
		t.Fatal(err)
	}
	visible.Store(int64(len(ids)))
	ctx, stop := context.WithCancel(t.Context())
	var got []string
	err = in.consume(ctx, func(r receipt) {
		got = append(got, fmt.Sprintf("%s %t", r.id, r.possibleDuplicate))
		if len(got) == 3 {
			stop()
		}
	})
	if want := "[new-0 false new-1 true new-2 false]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("consumed %v, %v; want %s", got, err, want)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(*Config) {}, ""},
		{func(c *Config) { c.Callers = 0 }, "--callers is 0: it must be between 1 and 10000"},
		{func(c *Config) { c.Cancel = c.Messages + 1 }, "--cancel is 100001: it must be between 0 and 100000"},
		{func(c *Config) { c.Duration = time.Millisecond }, "--duration is 1ms: it must be between 1s and 24h"},
		{func(c *Config) { c.Channel = "kafka:x" }, `--channel is "kafka:x": it must be inbox:NAME or rabbitmq:QUEUE`},
		{func(c *Config) { c.Channel = "rabbitmq:e/k"; c.RabbitMQ = "amqp://x" }, `--channel is "rabbitmq:e/k": it must be inbox:NAME or rabbitmq:QUEUE`},
		{func(c *Config) { c.Channel = "rabbitmq:q" }, "--channel rabbitmq:q needs --rabbitmq, to consume the queue"},
		{func(c *Config) { c.Channel = "rabbitmq:q"; c.RabbitMQ = "amqp://x" }, ""},
	} {
		c := DefaultConfig()
		test.change(&c)
		got := ""
		if err := c.Validate(); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestReportIsOneTable(t *testing.T) {
	report := Report{Channel: "inbox:bench", Retries: 2, NodeMemoryMaxBytes: 64 << 20, Rows: []Row{
		{Phase: "schedule", Messages: 1000, Seconds: 0.1, PerSecond: 10000, Times: "call", P50Ms: 1.04, P99Ms: 2, P999Ms: 3, MaxMs: 4.5,
			Node: &Usage{MemoryBytes: 64 << 20, DiskBytes: 5 << 30, Processor: 1234 * time.Millisecond}},
		{Phase: "steady", Messages: 999, Times: "late", P50Ms: 0.5, P99Ms: 1, P999Ms: 1, MaxMs: 1, Note: "a note",
			Arrivals: &Arrivals{Early: 1, DuplicatesMarked: 2, DuplicatesUnmarked: 3, Lost: 4}},
	}}
	if err := report.Verdict(); err == nil || err.Error() != testrun.Broken+": 1 early, 3 duplicates without a mark, 4 lost" {
		t.Errorf("the verdict is %v", err)
	}
	var b strings.Builder
	if err := report.Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `phase      messages     per s  ms        p50      p99    p99.9      max  early  duplicates   lost    MiB disk MiB   cpu s
schedule       1000     10000  call      1.0      2.0      3.0      4.5      -           -      -     64     5120     1.2
steady          999         -  late      0.5      1.0      1.0      1.0      1         2+3      4      -        -       -
  (a note)

to inbox:bench; times in ms: call = request to answer, late = due time to receipt here;
duplicates = marked + unmarked; 2 requests were repeated
the node took at most 64 MiB of memory
`
	if b.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), want)
	}
}
