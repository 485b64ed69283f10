package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/client"
)

// examples is a server that answers each call with the document's own example of a success.
type examples struct {
	http.ServeMux
	made map[string]bool // by operationId: whether it was called
}

func newExamples(t *testing.T) *examples {
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	e := &examples{made: map[string]bool{}}
	for path, methods := range doc.Paths {
		for method, raw := range methods {
			if method != "parameters" {
				e.add(t, strings.ToUpper(method)+" "+path, raw)
			}
		}
	}
	return e
}

func (e *examples) add(t *testing.T, pattern string, raw []byte) {
	var operation struct {
		OperationID string
		Responses   map[string]struct {
			Content map[string]struct{ Example json.RawMessage }
		}
	}
	if err := json.Unmarshal(raw, &operation); err != nil {
		t.Fatal(err)
	}
	status := slices.Min(slices.Collect(maps.Keys(operation.Responses)))
	code, err := strconv.Atoi(status)
	if err != nil {
		t.Fatal(err)
	}
	e.made[operation.OperationID] = false
	e.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
		e.made[operation.OperationID] = true
		w.WriteHeader(code)
		example := operation.Responses[status].Content["application/json"].Example
		if example == nil {
			example = []byte(`{"openapi":"3.1.0"}`)
		}
		w.Write(bytes.Replace(example, []byte(`"nextCursor": "AQKd1w"`), []byte(`"x": 1`), 1)) // the list ends
	})
}

// checkCluster looks at the cluster and its figures.
func checkCluster(ctx context.Context, c *client.Client, at time.Time, check func(what string, ok bool, got any, err error)) {
	cluster, err := c.Cluster(ctx)
	check("cluster", err == nil && cluster.Node == "a" && cluster.Members[0].State == "alive" && cluster.Buckets[0].LagMs == 12 && cluster.Buckets[0].Claimed.Equal(at), cluster, err)
	check("members", *cluster.Members[0].ClockOffsetMs == 3 && cluster.Members[0].Lease.LeftMs == 4712, cluster, err)
	stats, err := c.Stats(ctx)
	check("stats", err == nil && stats.Missing[0] == "c" && stats.OwnSeries && stats.InHand == 12 && stats.Down[0] == client.DownChannel{Tenant: "acme", Channel: "rabbitmq:orders", Reason: "connection refused"} && stats.Pending.Bytes == 256_000_000 && stats.Total.Failed == 12 && stats.PerSecond.Cancelled == 0.047, stats, err)
	slots := stats.Slots
	check("slots", len(slots) == 2 && slots[0].Scheduled == 90 && slots[0].LatenessMs.P50 == 2.2 && slots[1].LatenessMs == nil && stats.LastMinute.Seconds == 64, slots, err)
}

// checkCancels cancels a message, starts a job that cancels, and looks at one.
func checkCancels(ctx context.Context, c *client.Client, at time.Time, check func(what string, ok bool, got any, err error)) {
	check("cancel", true, nil, c.Cancel(ctx, "order-1"))
	_, err := c.CancelWhere(ctx, client.JobFilter{Label: "run-7"}) // the example is that of a cancel by ids
	check("cancel where", true, nil, err)
	j, err := c.WaitJob(ctx, "01977b3e-6d40-7c7a-9c1e-0d7a4bb1d2aa", nil)
	check("job", !j.Running() && j.Done == 99998 && j.Total == 100000 && j.Failed == 2 && j.Filter.Label == "run-7" && j.Kind == "cancel" && j.CreatedAt.Equal(at), j, err)
}

// checkAhead looks at when a rule recurs, and at what failed and what is upcoming.
func checkAhead(ctx context.Context, c *client.Client, at time.Time, check func(what string, ok bool, got any, err error)) {
	occurrences, err := c.Preview(ctx, client.Recurrence{Cron: "30 2 * * *", Timezone: "Europe/Berlin"}, at, 2)
	check("preview", len(occurrences) == 2 && occurrences[0].Time.Month() == time.March && occurrences[0].Remark != "" && occurrences[1].Remark == "", occurrences, err)
	failures, err := c.Failures(ctx, client.FailureFilter{Channel: "rabbitmq:orders", From: at, To: at.Add(time.Minute)})
	check("failures", failures.Exact && len(failures.Groups) == 1 && failures.Groups[0] == client.FailureGroup{Channel: "rabbitmq:orders", Exact: true, Count: 1207,
		LastError: "the broker returned the message: NO_ROUTE (312)", FirstFailedAt: at, LastFailedAt: at.Add(5 * time.Minute), Example: "order-1"}, failures, err)
	slots, err := c.Upcoming(ctx, client.UpcomingRange{From: at, To: at.Add(10 * time.Minute), Step: 5 * time.Minute, Channel: "inbox:a"})
	check("upcoming", len(slots) == 2 && slots[0].Count == 1207 && slots[0].Exact && slots[0].Channels[1] == client.UpcomingChannel{Channel: "inbox:audit", Count: 7} && slots[1].From.Equal(at.Add(5*time.Minute)), slots, err)
}

// TestEveryCallOfTheDocument: the client has a method for each call, and decodes the
// document's example of its answer.
func TestEveryCallOfTheDocument(t *testing.T) {
	e := newExamples(t)
	front := httptest.NewServer(e)
	defer front.Close()
	c, ctx := open(t, client.Config{Servers: []string{front.URL}}), patient(t)
	at := time.Date(2027, 1, 31, 9, 30, 0, 0, time.UTC)
	m := client.Message{ScheduleID: "order-1", Channel: "rabbitmq:orders", ExecutionTime: at, Payload: []byte(`{"order": 1}`)}
	check := func(what string, ok bool, got any, err error) {
		t.Helper()
		if err != nil || !ok {
			t.Errorf("%s: %+v %v", what, got, err)
		}
	}
	want := client.Scheduled{ScheduleID: "order-1", Bucket: 17, ExecutionTime: at, Status: client.Pending}
	s, err := c.Schedule(ctx, m)
	check("schedule", s == want, s, err)
	s, err = c.Put(ctx, m)
	check("put", s == want, s, err)
	s, err = c.Patch(ctx, "order-1", client.Change{Delay: time.Hour})
	check("patch", s == want, s, err)
	s, err = c.Trigger(ctx, "report")
	check("trigger", s == client.Scheduled{ScheduleID: "report/2027-01-31T09:30:00.000Z", Bucket: 17, ExecutionTime: at, Status: client.Pending, Created: true}, s, err)
	results, err := c.ScheduleAll(ctx, []client.Message{m, m})
	check("schedule all", err == nil && results[0].Created && results[0].Bucket == 17 && results[1].Problem.Suggestion == "channel", results, err)
	results, err = c.CancelAll(ctx, []string{"order-1", "order-2"})
	check("cancel all", err == nil && results[0].Status == client.Cancelled && results[1].Problem.DeliveredAt.Equal(at.Add(2*time.Millisecond)), results, err)
	checkCancels(ctx, c, at, check)
	checkFailed(t, c)
	record := func(r client.Record) bool {
		return r.Bucket == 17 && r.Version == "7297816231" && r.Priority == client.PriorityMedium && r.CreatedAt.Day() == 30 && r.NextAttemptAt.Equal(at) && string(r.Payload) == `{"order": 1}` && r.ContentType == "application/json"
	}
	r, err := c.Get(ctx, "order-1")
	check("get", record(r) && r.MovedAt.Equal(at.Add(-15*time.Hour-30*time.Minute)) && r.MovedFrom.Equal(at.Add(-90*time.Minute)), r, err)
	count := 0
	for r, err := range c.List(ctx, client.Filter{Status: client.Pending}) {
		count++
		check("list", record(r), r, err)
	}
	check("list", count == 1, count, nil)
	checkInbox(ctx, t, c)
	checkAhead(ctx, c, at, check)
	checkTasks(ctx, t, c)
	list, err := c.Channels(ctx)
	check("channels", err == nil && list.Channels[0].Channel == "rabbitmq:orders" && list.Channels[0].State == "down" && list.Channels[0].InFlight == 1 && list.Channels[0].Parked, list, err)
	check("channels", *list.Channels[0].DeliveredPerSecond == 0.25 && *list.Channels[0].Pending == 1530 && *list.Channels[0].Due == 1207 && list.Channels[0].Exact, list, err)
	check("channels", len(list.Missing) == 1 && list.Channels[0].LastErrorNode == "b" && list.Channels[0].LastErrorAt.Month() == time.January, list, err)
	check("pause", true, nil, c.Pause(ctx, "rabbitmq:orders"))
	checkKeys(ctx, c, at, check)
	tenants, err := c.Tenants(ctx)
	check("tenants", err == nil && len(tenants) == 1 && tenants[0].Tenant == "acme" && tenants[0].PendingMax == 1_000_000 && tenants[0].Weight == 2 && tenants[0].Pending == 1207, tenants, err)
	weight := 2
	tenant, err := c.ChangeTenant(ctx, "acme", client.TenantChange{Weight: &weight})
	check("change tenant", len(tenants) == 1 && reflect.DeepEqual(tenant, tenants[0]), tenant, err)
	checkCluster(ctx, c, at, check)
	check("health", true, nil, c.Health(ctx))
	check("ready", true, nil, c.Ready(ctx))
	metrics, err := c.Metrics(ctx)
	check("metrics", len(metrics) > 0, metrics, err)
	document, err := c.OpenAPI(ctx)
	check("document", len(document) > 0, document, err)
	for operation, made := range e.made {
		if !made {
			t.Errorf("the client has no method for %s", operation)
		}
	}
}

func checkKeys(ctx context.Context, c *client.Client, at time.Time, check func(string, bool, any, error)) {
	made, err := c.CreateKey(ctx, client.KeyWish{Tenant: "acme", Scopes: []string{"sched:w"}})
	check("create key", made.ID == "k3v9x0q2m7ab" && strings.HasPrefix(made.Text, "pd_"+made.ID) && made.Tenant == "acme" && made.ExpiresAt.Month() == time.April, made, err)
	caller, err := c.WhoAmI(ctx)
	check("who am I", err == nil && caller.Asked && caller.Tenant == "acme" && caller.Scopes[1] == "sched:w" && caller.Channels[0] == "rabbitmq:acme-*" && caller.KeyID == made.ID && caller.ExpiresAt.Equal(made.ExpiresAt), caller, err)
	keys, err := c.Keys(ctx)
	check("keys", err == nil && len(keys) == 1 && keys[0].Scopes[1] == "sched:r" && keys[0].Channels[0] == "rabbitmq:acme-*" && keys[0].LastUsedAt.Equal(at), keys, err)
	check("revoke key", true, nil, c.RevokeKey(ctx, made.ID))
}

// TestWholeRule: a change of a rule replaces each field that the document has.
func TestWholeRule(t *testing.T) {
	var doc struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]json.RawMessage }
		}
	}
	if err := json.Unmarshal(api.OpenAPI, &doc); err != nil {
		t.Fatal(err)
	}
	var body struct{ Recurrence map[string]json.RawMessage }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&body)
		w.Write([]byte(`{"status":"PENDING"}`))
	}))
	defer server.Close()
	c := open(t, client.Config{Servers: []string{server.URL}})
	if _, err := c.Patch(patient(t), "a", client.Change{Recurrence: &client.Recurrence{Every: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	for field := range doc.Components.Schemas["RecurrenceChange"].Properties {
		if want := map[bool]string{true: `"1h0m0s"`, false: "null"}[field == "every"]; string(body.Recurrence[field]) != want {
			t.Errorf("%s is sent as %s, want %s", field, body.Recurrence[field], want)
		}
	}
	if fields := doc.Components.Schemas["RecurrenceChange"].Properties; len(fields) != len(body.Recurrence) || len(fields) != len(doc.Components.Schemas["Recurrence"].Properties) {
		t.Errorf("sent are %d fields, the document has %d", len(body.Recurrence), len(fields))
	}
}

// checkTasks is the part of TestEveryCallOfTheDocument about tasks.
func checkTasks(ctx context.Context, t *testing.T, c *client.Client) {
	is := func(got client.Task, action client.TaskAction, err error) {
		t.Helper()
		if err != nil || got.Name != "sweep" || *got.Frequency != (client.TaskFrequency{TimeUnit: "SECONDS", Time: 10}) ||
			got.Start != 1801384200000 || string(got.Data) != `{"shop": "7"}` || got.ScheduleID != "task:sweep" || got.Action != action {
			t.Errorf("%+v %v", got, err)
		}
	}
	updated, err := c.DefineTask(ctx, client.Task{Host: "default", Name: "sweep", Action: client.UpdateTask})
	is(updated, client.UpdateTask, err)
	count := 0
	for got, err := range c.Tasks(ctx, "sweep", "SECONDS") {
		count++
		is(got, client.InsertTask, err)
	}
	if count != 1 {
		t.Errorf("there are %d tasks", count)
	}
}

// checkInbox is the part of TestEveryCallOfTheDocument about inboxes.
func checkInbox(ctx context.Context, t *testing.T, c *client.Client) {
	page, err := c.ReadInbox(ctx, "test", client.InboxRead{})
	if err != nil || page.NextCursor != "AAAAAQ" || page.Messages[0].Attempt != 1 || len(page.Messages[0].Payload) == 0 {
		t.Errorf("inbox: %+v %v", page, err)
	}
	received, err := c.Receive(ctx, "test", "worker", client.InboxReceive{})
	if err != nil || len(received) != 1 || received[0].Deliveries != 2 || !received[0].PossibleDuplicate || string(received[0].Payload) != `{"order": 1}` {
		t.Errorf("receive: %+v %v", received, err)
	}
	acked, err := c.Ack(ctx, "test", "worker", []string{"a", "b"})
	if err != nil || acked[0].Err() != nil || acked[1].Problem.Type != client.ReceiptOutdated {
		t.Errorf("ack: %+v %v", acked, err)
	}
}

// checkFailed makes the calls for messages that failed.
func checkFailed(t *testing.T, c *client.Client) {
	for status, call := range map[client.Status]func(context.Context, ...string) ([]client.Result, error){
		client.Pending: c.Redrive, client.DeliveryFailed: c.Purge} {
		results, err := call(patient(t), "order-1", "order-2")
		if err != nil || len(results) != 2 || results[0].Status != status || results[1].Problem == nil {
			t.Errorf("the call after which a message is %s: %+v %v", status, results, err)
		}
	}
}
