package api

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

const consumerPath = "/v1/inbox/test/consumers/worker"

func receiptOf(tenant, inbox, consumer string, number int64) string {
	return receiptText(store.ConsumerName{Tenant: tenant, Inbox: inbox, Consumer: consumer},
		store.Receipt{Place: store.InboxPlace{Number: number}, ID: 7})
}

// receive receives for a consumer, and returns the ids, in order, and the receipts.
func receive(r *rig, path, body string) (ids, receipts []string) {
	r.t.Helper()
	a := r.send("POST", path+"/receive", body)
	var page struct {
		Messages []struct {
			Receipt, ScheduleID string
			Deliveries          int
			PossibleDuplicate   bool
		}
	}
	if err := json.Unmarshal([]byte(a.body), &page); err != nil || a.status != 200 {
		r.t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	for _, m := range page.Messages {
		ids, receipts = append(ids, m.ScheduleID), append(receipts, m.Receipt)
		if m.PossibleDuplicate != (m.Deliveries > 1) {
			r.t.Errorf("%s came %d times, and is marked: %v", m.ScheduleID, m.Deliveries, m.PossibleDuplicate)
		}
	}
	return ids, receipts
}

// Workers share the messages of a consumer, and another consumer gets all of them.
func TestConsumersOverHTTP(t *testing.T) {
	now := testNow
	r := newRig(t, func(c *Config) { c.Now = func() postdate.Time { return now } }, withInboxes)
	for _, id := range []string{"a", "b", "c"} {
		m := store.InboxMessage{Tenant: "default", Inbox: "test", ScheduleID: id, ExecutionTime: testNow, DeliveredAt: testNow, Attempt: 1, ContentType: "application/json", Payload: []byte("1")}
		if err := r.store.AppendInbox(t.Context(), []store.InboxMessage{m}); err != nil {
			t.Fatal(err)
		}
	}
	want := func(path, body string, want ...string) []string {
		t.Helper()
		ids, receipts := receive(r, path, body)
		if !slices.Equal(ids, want) {
			t.Errorf("%s %s brings %v, want %v", path, body, ids, want)
		}
		return receipts
	}
	old := want(consumerPath, `{"limit":2,"visibility":"PT1S"}`, "a", "b")
	want(consumerPath, "{}", "c")
	want(consumerPath, "{}")
	want("/v1/inbox/test/consumers/other", "{}", "a", "b", "c")
	r.send("POST", consumerPath+"/ack", `{"receipts":["`+old[0]+`"]}`).want(200, `{"results":[{"receipt":"`+old[0]+`","acked":true}]}`)
	now = now.Add(time.Second)
	next := want(consumerPath, "{}", "b")
	a := r.send("POST", consumerPath+"/ack", `{"receipts":["`+old[0]+`","`+old[1]+`","`+next[0]+`"]}`)
	if a.status != 200 || strings.Count(a.body, `"acked":true`) != 2 || !strings.Contains(a.body, `{"receipt":"`+old[1]+`","error":{"type":"urn:postdate:problem:receipt-outdated"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	now = now.Add(30 * time.Second)
	want(consumerPath, "{}", "c")
}

func TestReceiveIsChecked(t *testing.T) {
	r := newRig(t)
	for _, c := range []struct{ body, pointer, detail string }{
		{`{"limit":0}`, "/limit", "between 1 and 1000"},
		{`{"limit":1001}`, "/limit", "between 1 and 1000"},
		{`{"limit":1.5}`, "/limit", "whole number"},
		{`{"wait":"31s"}`, "/wait", "between 0s and 30s"},
		{`{"wait":"-1s"}`, "/wait", "between 0s and 30s"},
		{`{"wait":5}`, "/wait", "15m"},
		{`{"visibility":"999ms"}`, "/visibility", "between 1s and 12h"},
		{`{"visibility":"PT12H1S"}`, "/visibility", "between 1s and 12h"},
		{`{"visibility":"soon"}`, "/visibility", "not a duration"},
		{`{"visibility":30}`, "/visibility", "15m"},
	} {
		r.send("POST", consumerPath+"/receive", c.body).problem(400, InvalidField, `"pointer":"`+c.pointer+`"`, c.detail)
	}
	r.send("POST", consumerPath+"/receive", "").problem(400, MalformedJSON, "the body is empty: send a JSON object")
	r.send("POST", consumerPath+"/receive", `{"visibilty":"1s"}`).problem(400, UnknownField, `"suggestion":"visibility"`)
	r.send("POST", consumerPath+"/receive?limit=1", "").problem(400, InvalidParameter)
	r.send("POST", consumerPath+"/receive", "", "Idempotency-Key: a").problem(400, NotSupported)
	r.send("POST", "/v1/inbox/test/consumers/a%20b/receive", "").problem(400, InvalidParameter, `"parameter":"consumer"`)
	r.send("POST", "/v1/inbox/a%20b/consumers/a/receive", "").problem(400, InvalidParameter, `"parameter":"name"`)
	if len(r.inbox.received) != 0 {
		t.Errorf("it received %+v", r.inbox.received)
	}
	r.send("POST", consumerPath+"/receive", "{}").want(200, `{"messages":[]}`)
	r.send("POST", consumerPath+"/receive", `{"limit":7,"wait":"1ms","visibility":"PT12H"}`).want(200, `{"messages":[]}`)
	name := store.ConsumerName{Tenant: "default", Inbox: "test", Consumer: "worker"}
	if want := []store.InboxReceive{
		{ConsumerName: name, Limit: 100, Visibility: 30 * time.Second},
		{ConsumerName: name, Limit: 7, Wait: time.Millisecond, Visibility: 12 * time.Hour},
	}; !slices.Equal(r.inbox.received, want) {
		t.Errorf("it asks for %+v, want %+v", r.inbox.received, want)
	}
}

func TestAckIsChecked(t *testing.T) {
	r := newRig(t)
	r.send("POST", consumerPath+"/ack", `{}`).problem(400, InvalidField, "receipts is missing")
	r.send("POST", consumerPath+"/ack", `{"receipts":[1]}`).problem(400, InvalidField, `"/receipts/0"`)
	r.send("POST", consumerPath+"/ack", `{"reciepts":[]}`).problem(400, UnknownField, `"suggestion":"receipts"`)
	r.send("POST", consumerPath+"/ack", `{"receipts":[]}`).want(200, `{"results":[]}`)
	good := receiptOf("default", "test", "worker", 1)
	for _, bad := range []string{"", "x", good + "A", good[1:], strings.ToLower(good), good[:len(good)-1] + "_", good + "=",
		receiptOf("other", "test", "worker", 1), receiptOf("default", "other", "worker", 1), receiptOf("default", "test", "other", 1)} {
		body, _ := json.Marshal(map[string][]string{"receipts": {bad, good}})
		a := r.send("POST", consumerPath+"/ack", string(body))
		if a.status != 200 || strings.Count(a.body, "invalid-field") != 1 || strings.Count(a.body, `"acked":true`) != 1 {
			t.Errorf("%q: %d %s", bad, a.status, a.body)
		}
	}
	if got := r.inbox.acknowledged[0]; got != (store.Receipt{Place: store.InboxPlace{Number: 1}, ID: 7}) {
		t.Errorf("it acknowledges %+v", got)
	}
}

// What is unknown says what a consumer may rely on.
func TestUnknownOfConsumers(t *testing.T) {
	r := newRig(t)
	r.inbox.err = postdate.E(postdate.KindUnknown, "no answer")
	r.send("POST", consumerPath+"/receive", "{}").problem(504, UnknownOutcome, "comes again when its visibility ends")
	r.send("POST", consumerPath+"/ack", `{"receipts":["`+receiptOf("default", "test", "worker", 1)+`"]}`).problem(504, UnknownOutcome, "repeating the request is safe")
}

// Whatever a receipt stands for, its text reads back, and no other text is taken for it.
func FuzzReceipt(f *testing.F) {
	f.Add(int64(0), int64(1), uint64(7), "worker", "x")
	f.Add(int64(-1), int64(1)<<62, ^uint64(0), "", receiptOf("t", "i", "", 1))
	f.Fuzz(func(t *testing.T, segment, number int64, id uint64, consumer, text string) {
		name := store.ConsumerName{Tenant: "t", Inbox: "i", Consumer: consumer}
		r := store.Receipt{Place: store.InboxPlace{Segment: segment, Number: number}, ID: id}
		if got, err := readReceipt(name, receiptText(name, r)); err != nil || got != r {
			t.Errorf("%+v reads back as %+v, %v", r, got, err)
		}
		if got, err := readReceipt(name, text); err == nil && receiptText(name, got) != text {
			t.Errorf("%q is taken for %q", text, receiptText(name, got))
		}
	})
}
