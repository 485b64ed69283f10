package api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/recurrence"
	"github.com/postdate/postdate/store"
)

// tasks is a rig whose node also serves Kafka.
func tasks(t *testing.T, changes ...func(*Config)) *rig {
	t.Helper()
	return newRig(t, append(changes, func(c *Config) { c.CheckChannel = nil })...)
}

// definition is the body of a task definition of the task sweep, with more members.
func definition(action, members string) string {
	return `{"host":"default","name":"sweep","action":"` + action + `"` + members + `}`
}

// everyTen are the members of a task that recurs every ten seconds.
const everyTen = `,"frequency":{"timeUnit":"SECONDS","time":10},"topic":"jobs","start":1801396800000,"data":{"a":[1, 2]}`

// sweep is the task sweep as answers show it.
func sweep(action string) string {
	return `{"host":"default","name":"sweep","action":"` + action + `","scheduleId":"task:sweep","frequency":{"time":10,"timeUnit":"SECONDS"},` +
		`"start":1801396800000,"topic":"jobs","data":{"a":[1, 2]}}`
}

// deleted is the answer to a DELETE.
const deleted = `{"host":"default","name":"sweep","action":"DELETE","scheduleId":"task:sweep"}`

func (r *rig) define(action, members string) *answer {
	r.t.Helper()
	return r.send("POST", "/schedulers", definition(action, members))
}

func (r *rig) task() postdate.Record {
	r.t.Helper()
	row := r.store.Rows[keyOf("task:sweep")]
	if row == nil {
		r.t.Fatal("there is no task")
	}
	return row.Record
}

// A task is inserted, shown, updated and deleted, and inserted again at once.
func TestTask(t *testing.T) {
	r := tasks(t)
	r.send("GET", "/schedulers", "").want(200, "[]")
	for range 2 {
		r.define("UPDATE", everyTen).problem(404, NotFound, `no task \"sweep\"`)
		r.define("DELETE", "").problem(404, NotFound, `no task \"sweep\"`)
		r.define("INSERT", everyTen).want(201, sweep("INSERT"))
		r.define("INSERT", everyTen).problem(409, Exists, "UPDATE it")
		r.send("GET", "/schedulers?host=default&name=sweep&unit=SECONDS", "").want(200, "["+sweep("INSERT")+"]")
		r.send("GET", "/schedulers?unit=SECONDS", "").want(200, "["+sweep("INSERT")+"]")
		for _, other := range []string{"unit=MINUTES", "name=other", "name=sweep&unit=MINUTES"} {
			r.send("GET", "/schedulers?"+other, "").want(200, "[]")
		}
		m := r.task()
		if m.Channel != "kafka:jobs" || string(m.Payload) != `{"a":[1, 2]}` || m.ContentType != "application/json" || m.PartitionKey != "sweep" ||
			fmt.Sprint(m.Headers) != "[{task-host default} {task-name sweep} {task-unit SECONDS}]" ||
			*m.Recurrence != (postdate.Recurrence{Every: 10 * time.Second, Anchor: testNow.Add(24 * time.Hour)}) || m.First != testNow.Add(24*time.Hour) {
			t.Fatalf("the message is %+v", m)
		}
		if last := r.nudges[len(r.nudges)-1]; last != (nudge{m.Bucket, m.First}) {
			t.Errorf("the owner is told %v", last)
		}
		r.define("UPDATE", strings.Replace(everyTen, "10}", "20}", 1)).want(200, strings.Replace(sweep("UPDATE"), `:10,`, `:20,`, 1))
		r.send("GET", "/schedulers?name=sweep", "").want(200, "["+strings.Replace(sweep("UPDATE"), `:10,`, `:20,`, 1)+"]")
		r.define("DELETE", everyTen).want(200, deleted)
		r.send("GET", "/schedulers?name=sweep", "").want(200, "[]")
		r.send("GET", "/schedulers", "").want(200, "[]")
		if got := r.task(); got.Status != postdate.Cancelled {
			t.Errorf("a deleted task is %s", got.Status)
		}
	}
}

// Where it is not said when a task starts, that is at the next whole unit, in UTC.
func TestTaskStarts(t *testing.T) {
	now := testNow.Add(90*time.Minute + 30*time.Second + time.Millisecond) // 13:30:30.001
	for members, want := range map[string]string{
		`"timeUnit":"MILLISECONDS","time":100}`:                                       "2027-01-30T13:30:30.002Z",
		`"timeUnit":"SECONDS","time":7}`:                                              "2027-01-30T13:30:31.000Z",
		`"timeUnit":"MINUTES","time":7}`:                                              "2027-01-30T13:31:00.000Z",
		`"timeUnit":"HOURS","time":7}`:                                                "2027-01-30T14:00:00.000Z",
		`"timeUnit":"DAYS","time":36600}`:                                             "2027-01-31T00:00:00.000Z",
		`"timeUnit":"DAYS","time":1},"start":null`:                                    "2027-01-31T00:00:00.000Z",
		`"timeUnit":"DAYS","time":1},"start":"2027-01-29T15:00:00+01:00"`:             "2027-01-30T14:00:00.000Z",
		`"timeUnit":"HOURS","time":1},"start":1801317600001`:                          "2027-01-30T14:00:00.001Z",
		`"timeUnit":"HOURS","time":1},"start":1801324800000`:                          "2027-01-30T16:00:00.000Z",
		`"timeUnit":"HOURS","time":1},"start":1801317600001,"data":null`:              "2027-01-30T14:00:00.001Z",
		`"timeUnit":"MINUTES","time":1},"start":1,"topic":"rabbitmq:orders","data":7`: "2027-01-30T13:31:00.001Z",
	} {
		r := tasks(t)
		r.now = now
		if !strings.Contains(members, "topic") {
			members += `,"topic":"x"`
		}
		if a := r.define("INSERT", `,"frequency":{`+members); a.status != 201 {
			t.Errorf("%s: %d %s", members, a.status, a.body)
		} else if got := r.task().First.String(); got != want {
			t.Errorf("%s: it begins at %s, want %s", members, got, want)
		}
	}
}

// Who sends a bad definition is told what to change, and nothing is done.
func TestBadTask(t *testing.T) {
	r := tasks(t)
	for body, want := range map[string]string{
		`{"name":"a","action":"INSERT"`:                                                                                                         `/host`,
		`{"host":"default","action":"INSERT"`:                                                                                                   `/name`,
		`{"host":"default","name":"","action":"INSERT"`:                                                                                         `/name`,
		`{"host":"default","name":"` + long(124) + `","action":"DELETE"`:                                                                        `/name`,
		`{"host":"default","name":"` + strings.Repeat("é", 21) + `","action":"DELETE"`:                                                          `/name`,
		`{"host":"default","name":"a\u0007","action":"INSERT"`:                                                                                  `/name`,
		`{"host":"","name":"a","action":"DELETE"`:                                                                                               `/host`,
		`{"host":"default","name":"a","action":"DELETE","scheduleId":"task:b"`:                                                                  `/scheduleId`,
		`{"host":"default","name":"a"`:                                                                                                          `/action`,
		`{"host":"default","name":"a","action":"insert"`:                                                                                        `/action`,
		definition("INSERT", `,"topic":"x"`):                                                                                                    `/frequency`,
		definition("INSERT", `,"topic":"x","frequency":{"time":1}`):                                                                             `/frequency`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"SECONDS"}`):                                                                 `/frequency`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"WEEKS","time":1}`):                                                          `/frequency/timeUnit`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"SECONDS","time":0}`):                                                        `/frequency/time`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"SECONDS","time":-9223372036854775808}`):                                     `/frequency/time`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"MILLISECONDS","time":99}`):                                                  `/frequency/time`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":36601}`):                                                       `/frequency/time`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":9223372036854775807}`):                                         `/frequency/time`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1.5}`):                                                         `/frequency/time`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1,"x":1}`):                                                     `/frequency/x`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"start":"soon"`):                                            `/start`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"start":1.5`):                                               `/start`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"start":-1`):                                                `/start`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"start":9223372036854775807`):                               `/start`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"start":{}`):                                                `/start`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"start":true`):                                              `/start`,
		definition("INSERT", `,"frequency":{"timeUnit":"DAYS","time":1}`):                                                                       `/topic`,
		definition("INSERT", `,"topic":"","frequency":{"timeUnit":"DAYS","time":1}`):                                                            `/topic`,
		definition("INSERT", `,"topic":"`+long(5000)+`","frequency":{"timeUnit":"DAYS","time":1}`):                                              `/topic`,
		definition("INSERT", `,"topic":"x","frequency":{"timeUnit":"DAYS","time":1},"data":`+strings.Repeat("[", 300)+strings.Repeat("]", 300)): `/data`,
		definition("INSERT", `,"topic":"x","frequncy":1`):                                                                                       `/frequncy`,
	} {
		body = strings.TrimSuffix(body, "}") + "}"
		if strings.Contains(body, `"frequency":{`) && strings.Count(body, "{") > strings.Count(body, "}") {
			body += "}"
		}
		a := r.send("POST", "/schedulers", body)
		if a.status != 400 || !strings.Contains(a.body, `"pointer":"`+want+`"`) {
			t.Errorf("%.200s: %d %s, want 400 at %s", body, a.status, a.body, want)
		}
	}
	r.define("INSERT", strings.Replace(everyTen, `{"a":[1, 2]}`, `"`+long(postdate.PayloadBytesMax)+`"`, 1)).problem(413, TooLarge, `"pointer":"/data"`)
	for query, parameter := range map[string]string{"unit=DAY": "unit", "unit=": "unit", "limit=0": "limit", "cursor=x": "cursor", "x=1": "x"} {
		r.send("GET", "/schedulers?"+query, "").problem(400, InvalidParameter, `"parameter":"`+parameter+`"`)
	}
	if n := len(r.store.Rows); n > 0 {
		t.Errorf("%d messages are there", n)
	}
}

// The host is the tenant from which the request comes.
func TestHostIsTheTenant(t *testing.T) {
	r := tasks(t, withKeys)
	key, reader, admin := bearer(r.key("acme", auth.WriteMessages)), bearer(r.key("acme", auth.ReadMessages)), bearer(adminKey)
	r.send("POST", "/schedulers", definition("INSERT", everyTen), key).problem(403, Forbidden, `"pointer":"/host"`, "the tenant acme")
	r.send("GET", "/schedulers?host=default", "", reader).problem(403, Forbidden, "the tenant acme")
	own := strings.Replace(definition("INSERT", everyTen), "default", "acme", 1)
	if a := r.send("POST", "/schedulers", own, key); a.status != 201 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	want := "[" + strings.Replace(sweep("INSERT"), "default", "acme", 1) + "]"
	r.send("GET", "/schedulers", "", reader).want(200, want)
	r.send("GET", "/schedulers?host=acme", "", admin, "Postdate-Tenant: acme").want(200, want)
	r.send("GET", "/schedulers", "", admin).want(200, "[]")
	r.send("POST", "/schedulers", definition("DELETE", ""), admin).problem(404, NotFound)

	elsewhere := bearer(r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages}, Channels: []string{"kafka:mine"}}))
	r.send("POST", "/schedulers", strings.Replace(own, `"sweep"`, `"b"`, 1), elsewhere).problem(403, Forbidden, `"pointer":"/topic"`)
	mine := strings.Replace(own, "jobs", "mine", 1)
	r.send("POST", "/schedulers", strings.Replace(mine, "INSERT", "UPDATE", 1), elsewhere).problem(403, Forbidden, "not for the channel kafka:jobs")
	r.send("POST", "/schedulers", strings.Replace(own, "INSERT", "DELETE", 1), key)
	r.send("POST", "/schedulers", mine, elsewhere).problem(403, Forbidden, "not for the channel kafka:jobs")
}

// settleTask settles the present occurrence of the task, as the next follows.
func (r *rig) settleTask(how store.Settling) {
	rec := r.task()
	rule := must(recurrence.Parse(*rec.Recurrence, rec.CreatedAt))
	b := rec.Bucket
	if r.store.Records[b].Owner == "" {
		r.store.Acquire(context.Background(), []store.Acquisition{{Bucket: b, SeenToken: r.store.Records[b].Token, Owner: "n", Lease: "l"}})
	}
	s := store.Settlement{Key: rec.Key, ExecutionTime: rec.Occurrence, Version: rec.Version, Token: r.store.Records[b].Token, How: how,
		At: rec.Occurrence + 5, AttemptTime: postdate.LatestTime, Attempts: 1, Occurrence: rec.Occurrence}
	next, _ := rule.Next(rec.Occurrence, rec.Run)
	s.Next.Occurrence, s.Next.AttemptTime = next, next
	if err := r.store.Settle(context.Background(), []store.Settlement{s}); err != nil {
		panic(err)
	}
}

// An UPDATE holds from the next occurrence on, keeps the beat unless it says when the task starts, and what a
// definition says nothing of.
func TestUpdateKeepsTheBeat(t *testing.T) {
	r := tasks(t)
	r.define("INSERT", everyTen)
	r.settleTask(store.SettleDelivered)
	r.send("PATCH", "/v1/messages/task:sweep", `{"paused":true,"recurrence":{"misfire":"skip","start":"2027-01-01T00:00:00Z"}}`)
	for _, step := range []struct{ members, want string }{
		{`,"frequency":{"timeUnit":"SECONDS","time":15},"topic":"rabbitmq:b"`, `"data":null`},
		{`,"frequency":{"timeUnit":"SECONDS","time":15},"topic":"b","start":null`, `"time":15,"timeUnit":"SECONDS"},"start":1801396800000,"topic":"b"`},
		{`,"frequency":{"timeUnit":"SECONDS","time":15},"topic":"b","start":1801396805000`, `"start":1801396805000`},
		{`,"frequency":{"timeUnit":"MILLISECONDS","time":60000},"topic":"b"`, `{"time":60000,"timeUnit":"MILLISECONDS"},"start":1801396805000`},
	} {
		if a := r.define("UPDATE", step.members); a.status != 200 || !strings.Contains(a.body, step.want) {
			t.Errorf("%s: %d %s, want %s", step.members, a.status, a.body, step.want)
		}
	}
	got := r.task()
	if *got.Recurrence != (postdate.Recurrence{Every: time.Minute, Anchor: 1801396805000, Misfire: postdate.MisfireSkip}) || !got.Paused ||
		got.Series.Fired != 1 || got.CreatedAt != testNow || got.Channel != "kafka:b" || string(got.Payload) != "null" {
		t.Errorf("it is %+v", got)
	}
	for rule, shown := range map[string]string{
		`{"every":"PT3M"}`: `"frequency":{"time":180000,"timeUnit":"MILLISECONDS"},"start":1801396805000`,
		`{"every":null,"anchor":null,"cron":"@daily","timezone":"UTC"}`: `"scheduleId":"task:sweep","topic":"b"`,
	} {
		r.send("PATCH", "/v1/messages/task:sweep", `{"recurrence":`+rule+`,"payload":"x","contentType":"text/plain"}`)
		if a := r.send("GET", "/schedulers", ""); !strings.Contains(a.body, shown) && r.task().Recurrence.Cron == "" || !strings.Contains(a.body, `"data":"x"`) {
			t.Errorf("%s: %s", rule, a.body)
		}
	}
	r.send("PATCH", "/v1/messages/task:sweep", `{"recurrence":{"every":null,"anchor":null,"cron":"@daily","timezone":"UTC","gap":"skip","overlap":"both"}}`)
	r.send("GET", "/schedulers?unit=MILLISECONDS", "").want(200, "[]")
	if a := r.define("UPDATE", `,"frequency":{"timeUnit":"HOURS","time":2},"topic":"b"`); !strings.Contains(a.body, `"start":1801314000000`) {
		t.Errorf("it does not begin with the next hour: %d %s", a.status, a.body)
	}
}

// inFlight is a rig whose task has an occurrence on its way.
func inFlight(t *testing.T) *rig {
	r := tasks(t)
	r.define("INSERT", everyTen)
	r.store.claim(r.task().Occurrence)
	return r
}

// While an occurrence is on its way, an UPDATE, a DELETE, and an INSERT after that wait for a moment.
func TestTaskInFlight(t *testing.T) {
	looks := func(r *rig, n int, then func()) {
		r.store.seen = func(_ context.Context, method string) {
			if n--; method == "Get" && n < 0 {
				r.store.seen = nil
				then()
			}
		}
	}
	unknown := inFlight(t) // the last attempt may have arrived, which a DELETE that waits for it says
	looks(unknown, 3, func() {
		unknown.store.set(unknown.task().Key, func(rec *postdate.Record) {
			rec.PossibleDuplicate, rec.Status, rec.Ending = true, postdate.Cancelled, false
		})
	})
	unknown.define("DELETE", "").problem(409, TooLate)
	unknown.define("DELETE", "").problem(404, NotFound)
	unknown.define("INSERT", everyTen).want(201, sweep("INSERT"))
	for how := range 2 {
		r := inFlight(t)
		settle := func() { r.settleTask([]store.Settling{store.SettleDelivered, store.SettleFailed}[how]) }
		looks(r, 3, settle)
		if a := r.define("UPDATE", everyTen); a.status != 200 {
			t.Errorf("UPDATE: %d %s", a.status, a.body)
		}
		r.store.claim(r.task().Occurrence)
		looks(r, 3, settle)
		if a := r.define("DELETE", ""); a.status != 200 || r.task().Status != postdate.Cancelled {
			t.Errorf("DELETE: %d %s", a.status, a.body)
		}
		r.define("INSERT", everyTen).want(201, sweep("INSERT"))
		r.store.claim(r.task().Occurrence)
		r.define("DELETE", "").problem(409, TooLate, "the series ends with it")
		r.define("UPDATE", everyTen).problem(409, TooLate)
		r.define("INSERT", everyTen).problem(409, TooLate, "it ends with its occurrence")
		looks(r, 3, settle)
		r.define("INSERT", everyTen).want(201, sweep("INSERT"))

		r.store.set(r.task().Key, func(rec *postdate.Record) { rec.Ending = true }) // its claim went with its owner
		r.define("UPDATE", everyTen).problem(409, TooLate)
		r.define("INSERT", everyTen).problem(409, TooLate)
		r.define("DELETE", everyTen).want(200, deleted)
	}
}

// An UPDATE that comes while an occurrence does not end is told to come again. One that is retried as a message of
// its own keeps a DELETE from its 200, also a repeated one, and a later task of the name is not touched by that.
func TestTaskTooLate(t *testing.T) {
	r := inFlight(t)
	if a := r.define("UPDATE", everyTen).problem(409, TooLate, "may have begun"); a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	r.settleTask(store.SettleRetry)
	alone := r.task()
	left := alone.Alone(alone.Series.Last())
	r.store.set(left.Key, func(rec *postdate.Record) { rec.AttemptTime = testNow }) // which is claimed
	for range 2 {
		r.define("DELETE", "").problem(409, TooLate)
	}
	r.store.set(left.Key, func(rec *postdate.Record) { rec.Status = postdate.Delivered })
	r.define("DELETE", "").problem(404, NotFound)
	if got := r.task(); got.Status != postdate.Cancelled {
		t.Errorf("it is %s", got.Status)
	}
}

// What a definition leads to is counted, its trace goes on, and what its clock says is not far ahead.
func TestTaskIsNoted(t *testing.T) {
	r := tasks(t, func(c *Config) { c.Passed = func() postdate.Time { return testNow.Add(-time.Hour) } })
	const first, second = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b7-01"
	r.send("POST", "/schedulers", definition("INSERT", `,"frequency":{"timeUnit":"MINUTES","time":1},"topic":"x"`), "Traceparent: "+first)
	if got := r.task(); got.Traceparent != first || got.CreatedAt != testNow {
		t.Errorf("%+v", got)
	}
	r.send("POST", "/schedulers", definition("UPDATE", `,"frequency":{"timeUnit":"MINUTES","time":1},"topic":"x","start":1`), "Traceparent: "+second)
	if got := r.task(); got.Traceparent != second || got.Occurrence != testNow.Add(-59*time.Minute-59999*time.Millisecond) {
		t.Errorf("%+v goes on at %s", got, got.Occurrence)
	}
	r.define("DELETE", "")
	metrics := r.send("GET", "/metrics", "").body
	for _, want := range []string{`postdate_scheduled_total{broker="kafka",tenant="default"} 1`, `postdate_cancelled_total{tenant="default"} 1`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s:\n%s", want, metrics)
		}
	}
	for i := range 40 {
		r.send("POST", "/schedulers", fmt.Sprintf(`{"host":"default","name":"large %d","action":"INSERT","frequency":{"timeUnit":"DAYS","time":1},"topic":"x","data":%q}`, i, long(250_000)))
	}
	r.store.list = func(q store.ListQuery) (page store.ListPage, err error) {
		for range 2 {
			for _, row := range r.store.Rows {
				page.Records = append(page.Records, row.Record)
			}
		}
		return page, nil
	}
	if a := r.send("GET", "/schedulers", ""); len(a.body) > listBytesMax+300_000 || a.header.Get("Link") == "" {
		t.Errorf("a list of %d bytes, Link %q", len(a.body), a.header.Get("Link"))
	}
}

// Others change the task at the same time.
func TestTaskRaces(t *testing.T) {
	r := tasks(t)
	r.store.between = func() { r.define("INSERT", everyTen) }
	r.define("INSERT", strings.Replace(everyTen, "jobs", "b", 1)).problem(409, Exists)
	r.store.between = func() { r.define("UPDATE", strings.Replace(everyTen, "jobs", "b", 1)) }
	r.define("UPDATE", everyTen).want(200, sweep("UPDATE"))
	r.store.between = func() { r.define("DELETE", "") }
	r.define("UPDATE", everyTen).problem(404, NotFound)
	r.store.between = func() { r.define("INSERT", strings.Replace(everyTen, "jobs", "b", 1)) }
	r.define("INSERT", everyTen).problem(409, Exists)
	if got := r.task(); got.Channel != "kafka:b" {
		t.Errorf("it goes to %s", got.Channel)
	}
	r = tasks(t)
	r.store.between = func() { r.define("INSERT", everyTen); r.define("DELETE", "") }
	r.define("INSERT", everyTen).want(201, sweep("INSERT"))
	if got := r.task(); got.Status != postdate.Pending {
		t.Errorf("after a 201 it is %s", got.Status)
	}
	r.store.between = func() { r.define("DELETE", ""); r.define("INSERT", everyTen) }
	r.define("UPDATE", strings.Replace(everyTen, "jobs", "b", 1)).want(200, strings.Replace(sweep("UPDATE"), "jobs", "b", 1))
	r.define("DELETE", "")
	r.store.between = func() { delete(r.store.Rows, keyOf("task:sweep")) } // its retention is over
	r.define("INSERT", everyTen).want(201, sweep("INSERT"))
	for method, action := range map[string]string{"Get": "INSERT", "Cancel": "DELETE", "Insert": "INSERT", "Replace": "UPDATE", "Forget": "INSERT"} {
		r.store.seen, r.store.err = nil, nil
		r.define("INSERT", everyTen)
		if method == "Forget" {
			r.define("DELETE", "")
		} else if method == "Insert" {
			delete(r.store.Rows, keyOf("task:sweep"))
		}
		r.store.seen = func(_ context.Context, m string) {
			if r.store.err = nil; m == method {
				r.store.err = postdate.E(postdate.KindUnknown, "the test says so")
			}
		}
		if a := r.define(action, everyTen); a.status != 504 {
			t.Errorf("%s fails: %d %s", method, a.status, a.body)
		}
	}
}

// Once something was done for a task, nobody is told that nothing was.
func TestTaskHalfDone(t *testing.T) {
	for _, kind := range []postdate.Kind{postdate.KindUnavailable, postdate.KindFull, postdate.KindLimited, postdate.KindTooLarge} {
		r := tasks(t)
		r.define("INSERT", everyTen)
		r.define("DELETE", "")
		r.store.seen = func(_ context.Context, method string) {
			if r.store.err = nil; method == "Insert" {
				r.store.err = postdate.E(kind, "the test says so")
			}
		}
		r.define("INSERT", everyTen).problem(504, UnknownOutcome) // what was over is deleted
	}
	r := inFlight(t)
	told := false
	r.store.seen = func(_ context.Context, method string) {
		if r.store.err = nil; told && method == "Get" {
			r.store.err = postdate.E(postdate.KindUnavailable, "the test says so")
		}
		told = told || method == "Cancel"
	}
	r.define("DELETE", "").problem(504, UnknownOutcome) // it ends
	r = tasks(t)
	r.define("INSERT", everyTen)
	r.define("DELETE", "")
	r.store.seen = func(_ context.Context, method string) {
		if method == "Insert" { // somebody is quicker, and then the store is down
			r.store.seen = nil
			r.define("INSERT", everyTen)
			r.store.seen = func(context.Context, string) { r.store.err = postdate.E(postdate.KindUnavailable, "the test says so") }
		}
	}
	r.define("INSERT", everyTen).problem(504, UnknownOutcome) // its first round deleted what was over
}

// A name of any form is the task's own.
func FuzzTaskName(f *testing.F) {
	for _, name := range []string{"sweep", "a b/c%d+é", "=", ".", "..", "a=2F", "a/2F", "task:x", "\x00"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id := taskID(name)
		if err := postdate.CheckScheduleID(id); err != nil && len(id) <= postdate.ScheduleIDBytesMax {
			t.Fatalf("%q: %q: %v", name, id, err)
		}
		if got, ok := taskNameOf(id); got != name || ok != isTaskName(name) {
			t.Fatalf("%q has the id %q, which is of %q", name, id, got)
		}
		if got, ok := taskNameOf(name); ok && taskID(got) != name {
			t.Fatalf("%q and %q are of the same task %q", name, taskID(got), got)
		}
	})
}

// A list of tasks leaves out what is none, and goes on where it ended.
func TestListOfTasks(t *testing.T) {
	r := tasks(t)
	var want []string
	for i := range 7 {
		name := fmt.Sprint("t ", i)
		want = append(want, name)
		r.send("POST", "/schedulers", fmt.Sprintf(`{"host":"default","name":%q,"action":"INSERT","frequency":{"timeUnit":"DAYS","time":1},"topic":"x","start":%d}`, name, 1801396800000+i))
		r.send("POST", "/v1/messages", recurring(fmt.Sprint("a", i), everyHour))
	}
	r.send("POST", "/v1/messages", order("task:single"))
	for _, id := range []string{"task:=zz", "task:", "task:=FF", "task:=0A"} { // no names
		r.send("POST", "/v1/messages", recurring(id, everyHour))
	}
	r.send("POST", "/schedulers", `{"host":"default","name":"single","action":"DELETE"}`).problem(404, NotFound)
	r.send("POST", "/schedulers", `{"host":"default","name":"single","action":"INSERT","frequency":{"timeUnit":"DAYS","time":1},"topic":"x"}`).problem(409, Exists, "does not recur")
	r.send("GET", "/schedulers?name=single", "").want(200, "[]")
	for _, limit := range []string{"", "limit=1&", "limit=3&unit=DAYS&", "limit=7&host=default&"} {
		var got []string
		pages := 0
		for path := "/schedulers?" + limit; path != ""; pages++ {
			a := r.send("GET", path, "")
			var all []struct{ Name string }
			if err := json.Unmarshal([]byte(a.body), &all); err != nil || a.status != 200 {
				t.Fatalf("%s: %d %s", path, a.status, a.body)
			}
			for _, task := range all {
				got = append(got, task.Name)
			}
			link := a.header.Get("Link")
			path, _ = strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %q in %d pages", limit, got, pages)
		}
	}
	if a := r.send("GET", "/schedulers?limit=1&unit=HOURS", ""); a.body != "[]" || a.header.Get("Link") != "" {
		t.Errorf("a unit that nobody has: %s, Link %q", a.body, a.header.Get("Link"))
	}
	calls := r.counts()
	r.store.list = func(q store.ListQuery) (store.ListPage, error) {
		return store.ListPage{Next: &store.ListPosition{ExecutionTime: testNow, ScheduleID: "x"}}, nil
	}
	if a := r.send("GET", "/schedulers", ""); a.body != "[]" || a.header.Get("Link") == "" || calls["List"] != taskSparseMax {
		t.Errorf("%s, Link %q after %d pages", a.body, a.header.Get("Link"), calls["List"])
	}
}
