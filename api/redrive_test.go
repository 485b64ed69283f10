package api

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// fail lets a message fail after an attempt, as a node does.
func (r *rig) fail(tenant, id string, doubtful bool) {
	r.t.Helper()
	key := bucket.KeyOf(tenant, id, testBuckets)
	rec, err := r.store.Mem.Get(r.t.Context(), key)
	if err != nil {
		r.t.Fatal(err)
	}
	seen := r.store.Records[key.Bucket].Token
	got, _ := r.store.Acquire(r.t.Context(), []store.Acquisition{{Bucket: key.Bucket, SeenToken: seen, Owner: "n", Lease: "n"}})
	r.store.Settle(r.t.Context(), []store.Settlement{{Key: key, ExecutionTime: rec.ExecutionTime, Version: rec.Version,
		Token: got[0].Partition.Token, How: store.SettleFailed, At: testNow, Attempts: 1, Reason: "no route",
		Outcome: postdate.AttemptRefused, Node: "node-a", PossibleDuplicate: doubtful}})
}

// What failed shows its attempts, and is tried again, with its mark, or deleted.
func TestRedriveAndPurge(t *testing.T) {
	r := newRig(t)
	for _, id := range []string{"a", "b", "c", "waits"} {
		r.send("POST", "/v1/messages", order(id)).is(201)
	}
	for _, id := range []string{"a", "b", "c"} {
		r.fail(postdate.DefaultTenant, id, id == "b")
	}
	log := `"attemptLog":[{"outcome":"refused","time":"` + testNow.String() + `","node":"node-a","reason":"no route"}]`
	if got := r.send("GET", "/v1/messages/a", ""); !strings.Contains(got.body, log) {
		t.Errorf("no %s in %s", log, got.body)
	}
	if got := r.send("GET", "/v1/messages", ""); strings.Contains(got.body, "attemptLog") {
		t.Errorf("a list shows logs: %s", got.body)
	}
	for range 2 {
		got := r.send("POST", "/v1/messages/redrive", `{"scheduleIds":["a","none","b","waits","x y"]}`).is(200)
		for _, part := range []string{`{"results":[{"scheduleId":"a","status":"PENDING"},{"scheduleId":"none","error":`,
			`{"scheduleId":"b","status":"PENDING"},{"scheduleId":"waits","status":"PENDING"},`, `"status":404`, `"status":400`} {
			if !strings.Contains(got.body, part) {
				t.Errorf("no %s in %s", part, got.body)
			}
		}
	}
	for id, marked := range map[string]bool{"a": false, "b": true} {
		got := r.send("GET", "/v1/messages/"+id, "").body
		if !strings.Contains(got, `"status":"PENDING","attempts":0`) || strings.Contains(got, "possibleDuplicate") != marked ||
			!strings.Contains(got, log) {
			t.Errorf("redriven, %s is %s", id, got)
		}
	}
	r.send("PATCH", "/v1/messages/a", `{"delay":"PT1H"}`).is(200)
	if got := r.send("GET", "/v1/messages/a", ""); !strings.Contains(got.body, log) {
		t.Errorf("moved, it has no %s: %s", log, got.body)
	}
	r.send("DELETE", "/v1/messages/a", "").is(200)
	got := r.send("POST", "/v1/messages/redrive", `{"scheduleIds":["a"]}`).is(200)
	if !strings.Contains(got.body, `"status":409`) || !strings.Contains(got.body, `"messageStatus":"CANCELLED"`) ||
		!strings.Contains(got.body, `message \"a\" is CANCELLED: only messages that are DELIVERY_FAILED can be redriven"`) {
		t.Errorf("redriving what is cancelled: %s", got.body)
	}
	got = r.send("POST", "/v1/messages/purge", `{"scheduleIds":["c","waits"]}`).is(200)
	if !strings.Contains(got.body, `[{"scheduleId":"c","status":"DELIVERY_FAILED"},{"scheduleId":"waits","error":`) ||
		!strings.Contains(got.body, "is PENDING: only messages that are DELIVERY_FAILED can be purged") {
		t.Errorf("purging: %s", got.body)
	}
	if !strings.Contains(got.body, `message \"waits\" is PENDING: only messages that are DELIVERY_FAILED can be purged; one that is PENDING can be cancelled`) {
		t.Errorf("purging what has not failed: %s", got.body)
	}
	r.send("GET", "/v1/messages/c", "").problem(404, NotFound)
	r.fail(postdate.DefaultTenant, "waits", false)
	r.send("PATCH", "/v1/messages/waits", `{"delay":"PT1H"}`).problem(409, TooLate, "redrive tries it again, and purge deletes it")
	r.send("GET", "/v1/messages/waits", "").is(200)
}

// A key that is for some channels redrives only what goes to these.
func TestRedriveIsForChannels(t *testing.T) {
	r := newRig(t, withKeys)
	all := bearer(r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages}}))
	some := bearer(r.keyFor(auth.Wish{Tenant: "acme", Scopes: []auth.Scope{auth.WriteMessages}, Channels: []string{"inbox:mine"}}))
	r.send("POST", "/v1/messages", order("other"), all).is(201)
	r.send("POST", "/v1/messages", strings.Replace(order("own"), "inbox:test", "inbox:mine", 1), all).is(201)
	toMine := strings.Replace(order("leaves"), "inbox:test", "inbox:mine", 1)
	r.send("POST", "/v1/messages", strings.Replace(toMine, "{", `{"failureChannel":"inbox:theirs",`, 1), all).is(201)
	for _, id := range []string{"other", "own", "leaves"} {
		r.fail("acme", id, false)
	}
	got := r.send("POST", "/v1/messages/redrive", `{"scheduleIds":["leaves"]}`, some).is(200)
	if !strings.Contains(got.body, `"status":403`) || !strings.Contains(got.body, "inbox:theirs") {
		t.Errorf("it goes to another failure channel: %s", got.body)
	}
	got = r.send("POST", "/v1/messages/redrive", `{"scheduleIds":["other","own","none"]}`, some).is(200)
	if !strings.Contains(got.body, `"status":403`) || !strings.Contains(got.body, `{"scheduleId":"own","status":"PENDING"}`) ||
		!strings.Contains(got.body, `"status":404`) {
		t.Errorf("%s", got.body)
	}
}

// failed calls what is for messages that failed.
func (c *contract) failed() {
	c.call(200, "POST", "/v1/messages/redrive", `{"scheduleIds":["b","none","x y"]}`)
	c.call(200, "POST", "/v1/messages/purge", `{"scheduleIds":["b","none","x y"]}`)
}

// What is redriven through a node whose clock is ahead is due now, not when that clock says.
func TestRedriveByAClockThatIsAhead(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Passed = func() postdate.Time { return testNow.Add(-time.Hour) } })
	r.send("POST", "/v1/messages", strings.Replace(order("a"), "2027-01-31T12:00:00Z", "2026-01-01T00:00:00Z", 1)).is(201)
	r.fail(postdate.DefaultTenant, "a", false)
	r.send("POST", "/v1/messages/redrive", `{"scheduleIds":["a"]}`).is(200)
	rec, err := r.store.Mem.Get(t.Context(), keyOf("a"))
	if err != nil || rec.AttemptTime != testNow.Add(-time.Hour) {
		t.Errorf("it is due at %s, %v", rec.AttemptTime, err)
	}
}
