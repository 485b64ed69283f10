package postdate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postdate/postdate"
)

// Only PENDING can become another status, and what failed PENDING again. Another final status never changes.
func TestStatusTable(t *testing.T) {
	names := []string{"PENDING", "DELIVERED", "DELIVERY_FAILED", "CANCELLED"}
	for i, s := range postdate.Statuses() {
		if s.String() != names[i] {
			t.Errorf("status %d is called %s, want %s", i, s, names[i])
		}
		if back, err := postdate.ParseStatus(names[i]); err != nil || back != s {
			t.Errorf("%s reads as %v, %v", names[i], back, err)
		}
		if final := s != postdate.Pending; s.Final() != final {
			t.Errorf("%s: final is %v", s, s.Final())
		}
		for _, next := range postdate.Statuses() {
			want := s == postdate.Pending || s == postdate.DeliveryFailed && next == postdate.Pending
			if s.CanBecome(next) != want {
				t.Errorf("%s to %s: %v, want %v", s, next, s.CanBecome(next), want)
			}
		}
	}
	if none := postdate.Status(0); none.Final() || none.CanBecome(postdate.Pending) || postdate.Pending.CanBecome(none) {
		t.Error("the zero value is a status")
	}
	for _, name := range []string{"", "pending", "Status(1)", "SENT"} {
		if _, err := postdate.ParseStatus(name); postdate.KindOf(err) != postdate.KindInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Backoff doubles from the smallest to the largest, and jitter shortens it by up to
// a half, never by more.
func TestBackoff(t *testing.T) {
	p := postdate.RetryPolicy{MaxAttempts: 9, MinBackoff: time.Second, MaxBackoff: 10 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		want *= time.Second
		if got := p.Backoff(i+1, 0); got != want {
			t.Errorf("after %d attempts: %v, want %v", i+1, got, want)
		}
		if got := p.Backoff(i+1, 0.999999); got < want/2 || got > want/2+want/100 {
			t.Errorf("after %d attempts with the most jitter: %v, want about %v", i+1, got, want/2)
		}
	}
	longest := postdate.RetryPolicy{MinBackoff: time.Millisecond, MaxBackoff: postdate.RetryBackoffMax}
	if got := longest.Backoff(postdate.RetryAttemptMax, 0); got != postdate.RetryBackoffMax {
		t.Errorf("after the most attempts: %v", got)
	}
}

func TestRetryPolicyOr(t *testing.T) {
	d := postdate.RetryPolicy{MaxAttempts: 5, MinBackoff: time.Second, MaxBackoff: time.Minute, MaxParked: time.Hour}
	for _, test := range []struct{ given, want postdate.RetryPolicy }{
		{postdate.RetryPolicy{}, d},
		{postdate.RetryPolicy{MaxAttempts: 1}, postdate.RetryPolicy{MaxAttempts: 1, MinBackoff: time.Second, MaxBackoff: time.Minute, MaxParked: time.Hour}},
		{postdate.RetryPolicy{MinBackoff: time.Hour}, postdate.RetryPolicy{MaxAttempts: 5, MinBackoff: time.Hour, MaxBackoff: time.Hour, MaxParked: time.Hour}},
		{postdate.RetryPolicy{MaxAttempts: 2, MinBackoff: 3, MaxBackoff: 4, MaxParked: 5}, postdate.RetryPolicy{MaxAttempts: 2, MinBackoff: 3, MaxBackoff: 4, MaxParked: 5}},
	} {
		if got := test.given.Or(d); got != test.want {
			t.Errorf("%+v becomes %+v, want %+v", test.given, got, test.want)
		}
	}
}

// The same request has the same digest, and a request with different content has a
// different one.
func TestDigest(t *testing.T) {
	base := func() *postdate.Message {
		return &postdate.Message{
			Channel: "inbox:a", ExecutionTime: 1000, ExpiresAt: 2000, Payload: []byte("ab"), ContentType: "c",
			Headers: []postdate.Header{{Name: "h", Value: "v"}}, PartitionKey: "k", Retry: postdate.RetryPolicy{MaxAttempts: 1},
		}
	}
	const when = "PT1S"
	first := postdate.DigestOf(base(), when)
	for name, same := range map[string]func(*postdate.Message){
		"nothing":                              func(*postdate.Message) {},
		"the time that a delay resolves to":    func(m *postdate.Message) { m.ExecutionTime = 5000 },
		"when it was sent":                     func(m *postdate.Message) { m.CreatedAt = 7 },
		"the trace of the request":             func(m *postdate.Message) { m.Traceparent, m.Tracestate = "00-1", "a=1" },
		"the name, which it is compared under": func(m *postdate.Message) { m.ScheduleID = "other" },
	} {
		m := base()
		same(m)
		if postdate.DigestOf(m, when) != first {
			t.Errorf("%s changes the digest", name)
		}
	}
	seen := map[postdate.Digest]string{first: "nothing"}
	for name, change := range map[string]func(*postdate.Message){
		"channel":      func(m *postdate.Message) { m.Channel = "inbox:b" },
		"expiry":       func(m *postdate.Message) { m.ExpiresAt = 2001 },
		"payload":      func(m *postdate.Message) { m.Payload = []byte("ac") },
		"encoding":     func(m *postdate.Message) { m.Encoding = postdate.EncodingBase64 },
		"content type": func(m *postdate.Message) { m.ContentType = "d" },
		"key":          func(m *postdate.Message) { m.PartitionKey = "" },
		"a border":     func(m *postdate.Message) { m.ContentType, m.PartitionKey = "ck", "" },
		"attempts":     func(m *postdate.Message) { m.Retry.MaxAttempts = 2 },
		"back-off":     func(m *postdate.Message) { m.Retry.MinBackoff = 1 },
		"most":         func(m *postdate.Message) { m.Retry.MaxBackoff = 1 },
		"wait":         func(m *postdate.Message) { m.Retry.MaxParked = 1 },
		"header value": func(m *postdate.Message) { m.Headers[0].Value = "w" },
		"header name":  func(m *postdate.Message) { m.Headers[0].Name = "i" },
		"no header":    func(m *postdate.Message) { m.Headers = nil },
		"header moved": func(m *postdate.Message) { m.Headers, m.Payload = nil, []byte("\x01h\x01vab") },
	} {
		m := base()
		change(m)
		d := postdate.DigestOf(m, when)
		if same, taken := seen[d]; taken {
			t.Errorf("%s gives the digest of %s", name, same)
		}
		seen[d] = name
	}
	if postdate.DigestOf(base(), "PT2S") == first {
		t.Error("another time gives the same digest")
	}
}

func TestCheckNames(t *testing.T) {
	for _, good := range []string{"a", "order-1", "A_b.c:d~e@f+g=h,i", strings.Repeat("x", postdate.ScheduleIDBytesMax)} {
		if err := postdate.CheckScheduleID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, words := range map[string]string{
		"":      "empty",
		"a b":   "byte 1",
		"a/b":   "forbidden character",
		"ü":     "byte 0",
		"a\x00": "byte 1",
		".":     "URL path",
		"..":    "URL path",
		"100%":  "byte 3",
		"x" + strings.Repeat("x", postdate.ScheduleIDBytesMax): "129 bytes",
	} {
		err := postdate.CheckScheduleID(bad)
		if postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %s", bad, err, words)
		}
	}
}

// Whatever an id begins with is a prefix of ids, and nothing else.
func TestCheckIDPrefix(t *testing.T) {
	for _, id := range []string{"a~b", ".a", "..a", strings.Repeat("x", postdate.ScheduleIDBytesMax) + "/2027-01-31T09:30:00.000Z", "bad-1!12"} {
		for i := range id {
			if err := postdate.CheckIDPrefix(id[:i+1]); err != nil {
				t.Errorf("%q: %v", id[:i+1], err)
			}
		}
	}
	for bad, words := range map[string]string{
		"a!b": "byte 1", "a b!1": "byte 1", "": "leave it out", "a b": "byte 1", "/": "empty", "./2": "URL path", "a/b": "the time of an occurrence", "a/2027-01-31T09:30:00.000Z0": "the time of an occurrence",
		"a/2/": "the time of an occurrence", strings.Repeat("x", postdate.ScheduleIDBytesMax+1): "129 bytes",
	} {
		if err := postdate.CheckIDPrefix(bad); postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %s", bad, err, words)
		}
	}
}

// A message has the id that its client gave, or that of an occurrence of a series.
func TestCheckMessageID(t *testing.T) {
	for _, good := range []string{"a", strings.Repeat("x", postdate.ScheduleIDBytesMax) + "/2027-01-31T09:30:00.000Z"} {
		if err := postdate.CheckMessageID(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "/2027-01-31T09:30:00.000Z", "a/", "a/b", "a b/2027-01-31T09:30:00.000Z", "a/2027-01-31T09:30:00Z", "a/2027-01-31T10:30:00.000+01:00",
		"a/2027-01-31T09:30:00.000Z/", "../2027-01-31T09:30:00.000Z", strings.Repeat("x", postdate.ScheduleIDBytesMax+1) + "/2027-01-31T09:30:00.000Z",
	} {
		if err := postdate.CheckMessageID(bad); postdate.KindOf(err) != postdate.KindInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	err := postdate.CheckScheduleID("a/2027-01-31T09:30:00.000Z")
	if postdate.KindOf(err) != postdate.KindInvalid || !strings.Contains(err.Error(), "is an occurrence of a series") {
		t.Error(err)
	}
}

// The parts of a recurrence have the names by which they are parsed; defaults have none.
func TestRecurrenceNames(t *testing.T) {
	for _, m := range []postdate.Misfire{postdate.MisfireOnce, postdate.MisfireAll, postdate.MisfireSkip} {
		if got, err := postdate.ParseMisfire(m.String()); err != nil || got != m {
			t.Error(m, got, err)
		}
	}
	for _, g := range []postdate.Gap{postdate.GapAfter, postdate.GapSkip} {
		if got, err := postdate.ParseGap(g.String()); err != nil || got != g {
			t.Error(g, got, err)
		}
	}
	for _, o := range []postdate.Overlap{postdate.OverlapFirst, postdate.OverlapSecond, postdate.OverlapBoth} {
		if got, err := postdate.ParseOverlap(o.String()); err != nil || got != o {
			t.Error(o, got, err)
		}
	}
	if postdate.GapDefault.String() != "" || postdate.OverlapDefault.String() != "" {
		t.Error("a default has a name")
	}
}

func TestErrorKinds(t *testing.T) {
	cause := postdate.E(postdate.KindFull, "no room")
	err := postdate.E(postdate.KindUnknown, "writing %s: %w", "m", cause)
	if postdate.KindOf(err) != postdate.KindUnknown || err.Error() != "writing m: no room" || err.Unwrap() != error(cause) {
		t.Errorf("got %v of %v", postdate.KindOf(err), err)
	}
	if postdate.KindOf(nil) != postdate.KindInternal {
		t.Error("no error has a kind")
	}
}

func TestRoutes(t *testing.T) {
	for _, tenant := range []string{postdate.DefaultTenant, "acme"} {
		for _, channel := range []postdate.Channel{"rabbitmq:orders", "kafka:a b!low c", ""} {
			for _, p := range postdate.Priorities() {
				r := postdate.RouteOf(tenant, channel).At(p)
				whose, to := r.Split()
				if whose != tenant || to != channel || r.Priority() != p || r.Tenant() != tenant || r.Channel() != channel {
					t.Errorf("%q is of %q to %q at %s", r, whose, to, r.Priority())
				}
				if back := r.At(postdate.PriorityMedium); back != postdate.RouteOf(tenant, channel) {
					t.Errorf("%q at medium priority is %q", r, back)
				}
				m := postdate.Message{Key: postdate.Key{Tenant: tenant}, Channel: channel, Priority: p}
				if m.Route() != r {
					t.Errorf("the message's route is %q, want %q", m.Route(), r)
				}
			}
		}
	}
	if r := postdate.Route("@acme!low kafka:a"); r.IsAll() || r.IsAllOf("acme") || !postdate.AllOf("acme").IsAllOf("acme") {
		t.Errorf("%q stands for all of a tenant", r)
	}
}

func TestParsePriority(t *testing.T) {
	for _, p := range postdate.Priorities() {
		if got, err := postdate.ParsePriority(p.String()); got != p || err != nil {
			t.Errorf("%s is parsed as %s, %v", p, got, err)
		}
	}
	for _, name := range []string{"", "High", "urgent"} {
		if _, err := postdate.ParsePriority(name); postdate.KindOf(err) != postdate.KindInvalid {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// The same request with another priority is another request.
func TestPriorityTellsRequestsApart(t *testing.T) {
	m := postdate.Message{Channel: "inbox:a", Payload: []byte("x")}
	seen := map[postdate.Digest]bool{}
	for _, p := range postdate.Priorities() {
		m.Priority = p
		seen[postdate.DigestOf(&m, "")] = true
	}
	if len(seen) != 3 {
		t.Errorf("requests of three priorities have %d digests", len(seen))
	}
}

// A move is a change of the time. What has none stays as it was moved, and a series is never moved.
func TestMovedBy(t *testing.T) {
	once, earlier := postdate.Message{ExecutionTime: 5}, postdate.Move{At: 1, From: 4}
	moved, later, series := once, once, once
	moved.Moved, later.ExecutionTime, series.Recurrence = earlier, 9, &postdate.Recurrence{}
	for _, test := range []struct {
		m, next postdate.Message
		want    postdate.Move
	}{
		{once, once, postdate.Move{}},
		{moved, once, earlier},
		{once, later, postdate.Move{At: 7, From: 5}},
		{moved, later, postdate.Move{At: 7, From: 5}},
		{later, moved, postdate.Move{At: 7, From: 9}},
		{series, later, postdate.Move{}},
		{moved, series, postdate.Move{}},
	} {
		if got := test.m.MovedBy(&test.next, 7); got != test.want {
			t.Errorf("of %d and %v by %d: %v, want %v", test.m.ExecutionTime, test.m.Moved, test.next.ExecutionTime, got, test.want)
		}
	}
}
