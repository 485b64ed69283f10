package api

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// The POST that made a message is answered as before, whatever became of the message since.
func TestPostAgainAfterAChange(t *testing.T) {
	for _, body := range []string{
		`{"scheduleId":"a","channel":"inbox:test","delay":"1h","payload":1}`, order("a"),
		`{"scheduleId":"a","channel":"inbox:test","delay":"1h","payload":1,"expiresAt":"2027-01-30T14:00:00Z"}`,
		recurring("a", everyHour), recurring("a", `{"every":"PT1H","jitter":"PT10S"}`),
		recurring("a", `{"every":"PT1H","end":"2027-01-30T13:30:00Z"}`),
	} {
		for _, change := range []string{`{"delay":"30m"}`, `{"payload":2}`, `{"recurrence":{"every":"PT7M"}}`} {
			r := newRig(t)
			first := r.send("POST", "/v1/messages", body).is(201)
			if r.send("PATCH", "/v1/messages/a", change).status != 200 {
				continue // it is not for such a message
			}
			r.send("PATCH", "/v1/messages/a", `{"payload":3}`).is(200)
			now := r.send("GET", "/v1/messages/a", "").body
			for _, later := range []time.Duration{0, time.Minute, 5 * time.Hour} { // at last it can only be a repetition
				r.pass(later)
				a := r.send("POST", "/v1/messages", body).want(200, first.body)
				if tag := a.header.Get("ETag"); tag != "" {
					t.Errorf("%s: the version %s was never shown", body, tag)
				}
				r.send("POST", "/v1/messages/batch", "["+body+"]").want(200, `{"results":[`+
					strings.TrimSuffix(first.body, "}")+`,"created":false}]}`)
			}
			if after := r.send("GET", "/v1/messages/a", "").body; after != now {
				t.Errorf("it became %s, was %s", after, now)
			}
			r.send("POST", "/v1/messages", order("a")+" ").is(map[bool]int{true: 200, false: 409}[body == order("a")])
		}
	}
}

// A PUT makes another message of it, and the POST is answered as before.
func TestPostAgainAfterAPut(t *testing.T) {
	r := newRig(t)
	first := r.send("POST", "/v1/messages", order("a"))
	r.send("PUT", "/v1/messages/a", recurring("a", everyHour)).is(200)
	r.send("POST", "/v1/messages", order("a")).want(200, first.body)
	r.send("PUT", "/v1/messages/a", order("a")).is(200) // back again
	r.send("POST", "/v1/messages", recurring("a", everyHour)).problem(409, Exists)
	r.send("DELETE", "/v1/messages/a", "").is(200)
	r.send("POST", "/v1/messages", order("a")).want(200, strings.Replace(first.body, "PENDING", "CANCELLED", 1))
}

// Each PUT with a delay moves the time, which is how a burst of events becomes one message.
func TestPutWithADelayDebounces(t *testing.T) {
	r := newRig(t)
	const body = `{"channel":"inbox:test","delay":"1h","payload":1,"expiresAt":"2027-01-30T15:00:00Z"}`
	put := func(status int, hour string) {
		t.Helper()
		if a := r.send("PUT", "/v1/messages/a", body).is(status); !strings.Contains(a.body, `"executionTime":"2027-01-30T`+hour) {
			t.Errorf("%s", a.body)
		}
	}
	put(201, "13:00:00.000Z")
	put(200, "13:00:00.000Z")
	r.pass(10 * time.Minute)
	put(200, "13:10:00.000Z")
	if rec := must(r.store.Mem.Get(t.Context(), keyOf("a"))); rec.CreatedAt != testNow || rec.Original.ExecutionTime != testNow.Add(time.Hour) {
		t.Errorf("%+v", rec)
	}
	r.send("POST", "/v1/messages", strings.Replace(body, "{", `{"scheduleId":"a",`, 1)).is(200)
	r.pass(3 * time.Hour)
	r.send("PUT", "/v1/messages/a", body).problem(400, InvalidField, "/expiresAt") // it cannot be moved there
	r.settle("a", postdate.Delivered)
	other := strings.Replace(body, "15:00", "22:00", 1)
	r.send("PUT", "/v1/messages/b", other).is(201)
	r.settle("b", postdate.Delivered)
	r.send("PUT", "/v1/messages/b", other).problem(409, TooLate, "DELIVERED") // a burst later than that needs another id
}

const keyed = `{"channel":"inbox:test","delay":"1h","payload":1}`

// A request with an Idempotency-Key is carried out once.
func TestIdempotencyKey(t *testing.T) {
	r := newRig(t)
	const header = "Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324"
	first := r.send("POST", "/v1/messages", keyed, header).is(201)
	r.pass(time.Minute)
	r.send("POST", "/v1/messages", keyed, header).want(200, first.body)
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: other").is(201)
	r.send("POST", "/v1/messages", keyed).is(201)
	for _, other := range []string{`{"channel":"inbox:test","delay":"1h","payload":2}`, order("b"), keyed + " "} {
		r.send("POST", "/v1/messages", other, header).problem(422, KeyReused, "8e03978e")
	}
	r.send("POST", "/v1/messages/batch", "["+keyed+"]", header).problem(422, KeyReused)
	if len(r.store.Rows) != 3 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
}

// A message that names its id is held to the key, too.
func TestIdempotencyKeyWithAnID(t *testing.T) {
	r := newRig(t)
	first := r.send("POST", "/v1/messages", order("a"), "Idempotency-Key: k").is(201)
	r.send("POST", "/v1/messages", order("b"), "Idempotency-Key: k").problem(422, KeyReused)
	r.send("POST", "/v1/messages", order("a"), "Idempotency-Key: k").want(200, first.body)
	r.send("POST", "/v1/messages", order("a"), "Idempotency-Key: l").want(200, first.body)
	r.send("POST", "/v1/messages", strings.Replace(order("a"), "1}", "2}", 1), "Idempotency-Key: m").problem(409, Exists)
}

// A request that was refused for what it says leaves its key free for a better one.
func TestIdempotencyKeyOfABadRequest(t *testing.T) {
	r := newRig(t)
	for _, bad := range []string{`{`, `{"channel":"inbox:test"}`, `{"channel":"nowhere:test","delay":"1h","payload":1}`} {
		r.send("POST", "/v1/messages", bad, "Idempotency-Key: k").is(400)
	}
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: k").is(201)
	for _, key := range []string{"", "a b", "ä", strings.Repeat("k", 256)} {
		r.send("POST", "/v1/messages", keyed, "Idempotency-Key: "+key).problem(400, InvalidParameter, "Idempotency-Key")
	}
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: a", "Idempotency-Key: a").problem(400, InvalidParameter)
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: "+strings.Repeat("k", 255)).is(201)
	if len(r.store.Rows) != 2 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
}

// A batch has one key for all of its messages.
func TestIdempotencyKeyOfABatch(t *testing.T) {
	r := newRig(t)
	body := "[" + keyed + "," + keyed + `,{"channel":"inbox:test"},` + order("a") + "]"
	first := r.send("POST", "/v1/messages/batch", body, "Idempotency-Key: k").is(200)
	again := r.send("POST", "/v1/messages/batch", body, "Idempotency-Key: k").is(200)
	if want := strings.ReplaceAll(first.body, `"created":true`, `"created":false`); again.body != want || len(r.store.Rows) != 3 {
		t.Errorf("%d messages: %s, first %s", len(r.store.Rows), again.body, first.body)
	}
	r.send("POST", "/v1/messages/batch", "["+keyed+"]", "Idempotency-Key: k").problem(422, KeyReused)
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: k").problem(422, KeyReused)
}

// Calls that are safe to repeat do not look at a key.
func TestIdempotencyKeyOfOtherCalls(t *testing.T) {
	r := newRig(t)
	const unfit = "Idempotency-Key: a b"
	r.send("PUT", "/v1/messages/a", order("a"), unfit).is(201)
	r.send("PATCH", "/v1/messages/a", `{"payload":2}`, unfit).is(200)
	r.send("POST", "/v1/messages/cancel", `{"scheduleIds":["a"]}`, unfit).is(200)
	r.send("DELETE", "/v1/messages/a", "", unfit).is(200)
	r.send("POST", "/v1/inbox/test/consumers/a/ack", `{"receipts":[]}`, unfit).is(200)
}

// A trigger cannot tell a repetition, and says so before it begins another occurrence.
func TestIdempotencyKeyOfATrigger(t *testing.T) {
	r := withSeries(t)
	r.send("POST", triggerPath, "", "Idempotency-Key: k").problem(400, NotSupported)
	if len(r.store.Rows) != 1 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
}

// As long as it is not known what a key stands for, nothing is done.
func TestIdempotencyKeyWithoutAStore(t *testing.T) {
	r := newRig(t)
	r.store.noteErr = postdate.E(postdate.KindUnknown, "no answer")
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: k").problem(504, UnknownOutcome)
	if len(r.store.Rows) != 0 {
		t.Errorf("%d messages", len(r.store.Rows))
	}
	r.store.noteErr = nil
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: k").is(201)
	if _, err := r.store.Expire(t.Context(), store.Expiry{Buckets: []int{0, 1, 2, 3, 4, 5, 6, 7}, SettledBefore: testNow + 1, Limit: 9}); err != nil {
		t.Fatal(err)
	}
	r.send("POST", "/v1/messages", keyed, "Idempotency-Key: k").is(200) // the message outlives its key
}

// What was made has an address.
func TestLocation(t *testing.T) {
	r := newRig(t)
	for _, a := range []*answer{
		r.send("POST", "/v1/messages", order("a:b~@+=,")), r.send("PUT", "/v1/messages/b", order("b")),
		r.send("POST", "/v1/messages", recurring("a", everyHour)), r.send("POST", triggerPath, ""),
	} {
		at := a.is(201).header.Get("Location")
		if got := r.send("GET", at, "").is(200).body; !strings.HasPrefix(got, strings.SplitAfter(a.body, ",")[0]) {
			t.Errorf("%s at %s, want that of %s", got, at, a.body)
		}
	}
	if at := r.send("POST", "/v1/messages", recurring("a", everyHour)).is(200).header.Get("Location"); at != "" {
		t.Errorf("nothing was made at %s", at)
	}
}
