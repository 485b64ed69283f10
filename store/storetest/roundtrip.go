package storetest

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

func roundTrips() []check {
	return []check{
		{"a message with every field at its limit comes back as it was", func(x *trial) { x.comesBack(x.largest()) }},
		{"a series with every field at its limit comes back as it was", func(x *trial) {
			x.comesBack(x.largestSeries())
		}},
		{"a message with every field at zero that may be comes back as it was", func(x *trial) {
			key := bucket.KeyOf("t", "0", x.store.Buckets())
			x.comesBack(postdate.Message{Key: key, Channel: "a:b", ExecutionTime: postdate.EarliestTime})
		}},
		{"random messages come back as they were", func(x *trial) {
			r := rand.New(rand.NewPCG(1, 2))
			for range 150 {
				x.comesBack(x.random(r))
			}
		}},
		{"random states come back as they were settled", randomStates},
		{"a random reschedule leaves nothing of the message before", func(x *trial) {
			r := rand.New(rand.NewPCG(5, 6))
			for range 100 {
				m, next := x.random(r), x.random(r)
				x.insert(m)
				next.Key = m.Key
				x.replace(next)
			}
		}},
	}
}

// comesBack inserts m, and reads it in every way.
func (x *trial) comesBack(m postdate.Message) {
	x.Helper()
	x.insert(m)
	want := fresh(m)
	x.wantRecord(x.get(m.Key), want)
	at := m.ExecutionTime
	page, err := x.store.List(x.ctx, store.ListQuery{Tenant: m.Tenant, From: at, To: at + 1, Limit: plenty})
	if err != nil {
		x.Fatalf("List: %v", err)
	}
	token := x.own(m.Bucket)
	c := everything(m.Bucket, token, at)
	c.Scan.After = bucket.Position{Time: at}
	for way, records := range map[string][]postdate.Record{"a list": page.Records, "a scan": x.due(c)} {
		found := false
		for _, r := range records {
			if r.Key == m.Key {
				found = true
				x.wantRecord(r, want)
			}
		}
		if !found {
			x.Errorf("%s did not return %s/%s", way, m.Tenant, m.ScheduleID)
		}
	}
}

// largest is a message at all limits of package postdate.
func (x *trial) largest() postdate.Message {
	name := func(n int) string { return strings.Repeat("~", n) }
	m := postdate.Message{
		Key: bucket.KeyOf(name(postdate.TenantBytesMax), name(postdate.ScheduleIDBytesMax),
			x.store.Buckets()),
		Channel:       postdate.Channel("kafka:" + name(postdate.ChannelBytesMax-6)),
		ExecutionTime: postdate.LatestTime, ExpiresAt: postdate.LatestTime, CreatedAt: postdate.LatestTime,
		Payload: make([]byte, postdate.PayloadBytesMax), Encoding: postdate.EncodingBase64,
		ContentType: name(postdate.ContentTypeBytesMax), PartitionKey: name(postdate.KeyBytesMax),
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Tracestate:  name(postdate.TracestateBytesMax),
		Priority:    postdate.PriorityLow,
		Retry: postdate.RetryPolicy{MaxAttempts: postdate.RetryAttemptMax, MinBackoff: postdate.RetryBackoffMax,
			MaxBackoff: postdate.RetryBackoffMax, MaxParked: postdate.RetryParkedMax},
		FailureChannel: postdate.Channel("kafka:" + name(postdate.ChannelBytesMax-6)),
		Moved:          postdate.Move{At: postdate.LatestTime, From: postdate.LatestTime},
	}
	for range postdate.LabelsMax {
		m.Labels = append(m.Labels, name(postdate.LabelBytesMax-1)+string(rune('a'+len(m.Labels))))
	}
	for i := range m.Payload {
		m.Payload[i] = byte(i * 7)
	}
	for i := range postdate.HeadersMax {
		m.Headers = append(m.Headers, postdate.Header{
			Name: name(postdate.HeaderNameBytesMax-1) + string(rune('A'+i)), Value: name(postdate.HeaderValueBytesMax),
		})
	}
	m.Digest = postdate.DigestOf(&m, "")
	return m
}

// largestSeries is the largest message, recurring.
func (x *trial) largestSeries() postdate.Message {
	m := x.largest()
	m.First = m.ExecutionTime
	m.Recurrence = &postdate.Recurrence{
		Every: postdate.DelayMax, Anchor: postdate.LatestTime, Cron: strings.Repeat("*", postdate.CronBytesMax),
		Timezone: strings.Repeat("Z", postdate.TimezoneBytesMax), Start: postdate.LatestTime, End: postdate.LatestTime,
		MaxRuns: postdate.MaxRunsMax, Jitter: postdate.JitterMax, Misfire: postdate.MisfireSkip,
		MisfireAfter: postdate.DelayMax, Gap: postdate.GapSkip, Overlap: postdate.OverlapBoth,
	}
	return m
}

// random is a message whose fields are all random, and often zero or odd.
func (x *trial) random(r *rand.Rand) postdate.Message {
	x.made++
	id := strings.Repeat("a", r.IntN(4)) + randomOf(r, "-_.:~@+=,09azAZ", 1+r.IntN(20)) + string(rune('a'+x.made%26)) +
		randomOf(r, "0123456789", 12)
	tenants := []string{tenant, "t", "tenant~1"}
	m := postdate.Message{
		Key:           bucket.KeyOf(tenants[r.IntN(3)], id, x.store.Buckets()),
		Channel:       postdate.Channel("kafka:" + randomOf(r, "abc/.:😀ä", 1+r.IntN(9))),
		ExecutionTime: t0 + postdate.Time(r.IntN(1000)),
		ExpiresAt:     postdate.Time(r.IntN(2)) * t0, CreatedAt: postdate.Time(r.IntN(2)) * t0,
		Payload:      randomBytes(r, r.IntN(40)),
		Encoding:     postdate.Encoding(r.IntN(3)),
		ContentType:  randomOf(r, "text/plain; =ü", r.IntN(20)),
		MayRepeat:    r.IntN(2) == 1,
		PartitionKey: randomOf(r, "\x00kéy", r.IntN(9)),
		Traceparent:  randomOf(r, "0123456789abcdef-", r.IntN(55)),
		Tracestate:   randomOf(r, "ab=,; ", r.IntN(9)),
		Priority:     postdate.Priorities()[r.IntN(3)],
		Retry: postdate.RetryPolicy{
			MaxAttempts: r.IntN(3), MinBackoff: time.Duration(r.Int64N(3)) * time.Hour,
			MaxBackoff: time.Duration(r.Int64N(1 << 40)),
			MaxParked:  time.Duration(r.Int64N(2)) * time.Duration(r.Int64N(1<<50)),
		},
	}
	for range r.IntN(3) {
		m.Labels = append(m.Labels, string(rune('a'+len(m.Labels)))+randomOf(r, "-_.:~@+=,09azAZ", r.IntN(9)))
	}
	if r.IntN(2) == 0 {
		m.FailureChannel = postdate.Channel("inbox:" + randomOf(r, "abc-", 1+r.IntN(9)))
	}
	for range r.IntN(4) {
		m.Headers = append(m.Headers, postdate.Header{Name: randomOf(r, "abcü-", 1+r.IntN(9)),
			Value: randomOf(r, "\x00\n v😀", r.IntN(9))})
	}
	postdate.SortHeaders(m.Headers)
	if r.IntN(3) == 0 {
		m.First, m.Recurrence = m.ExecutionTime-postdate.Time(r.IntN(1000)), randomRecurrence(r)
	}
	copy(m.Digest[:], randomBytes(r, len(m.Digest)))
	if r.IntN(3) == 0 {
		copy(m.Original.Digest[:], randomBytes(r, len(m.Digest)))
		m.Original.ExecutionTime = t0 + postdate.Time(r.IntN(1000))
	}
	if r.IntN(3) == 0 {
		m.Moved = postdate.Move{At: t0 + postdate.Time(r.IntN(1000)), From: t0 + postdate.Time(r.IntN(1000))}
	}
	return m
}

func randomRecurrence(r *rand.Rand) *postdate.Recurrence {
	when := func() postdate.Time { return postdate.Time(r.IntN(2)) * (t0 + postdate.Time(r.IntN(5000))) }
	return &postdate.Recurrence{
		Every: time.Duration(r.IntN(2)) * time.Duration(r.IntN(1<<40)) * time.Millisecond, Anchor: when(),
		Cron: randomOf(r, "0123456789*/,-?LW# ", r.IntN(20)), Timezone: randomOf(r, "AZaz_/+-0", r.IntN(20)),
		Start: when(), End: when(), MaxRuns: r.IntN(2) * r.IntN(postdate.MaxRunsMax+1),
		Jitter:  time.Duration(r.IntN(2)) * time.Duration(r.IntN(5000)) * time.Millisecond,
		Misfire: postdate.Misfire(r.IntN(3)), MisfireAfter: time.Duration(r.IntN(2)) * time.Duration(r.IntN(1<<30)) *
			time.Millisecond,
		Gap: postdate.Gap(r.IntN(3)), Overlap: postdate.Overlap(r.IntN(4)),
	}
}

// randomOf is n characters of an alphabet. It is UTF-8, as all text here is.
func randomOf(r *rand.Rand, alphabet string, n int) string {
	runes := []rune(alphabet)
	var b strings.Builder
	for range n {
		b.WriteRune(runes[r.IntN(len(runes))])
	}
	return b.String()
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func randomStates(x *trial) {
	r := rand.New(rand.NewPCG(3, 4))
	token := x.own(home)
	x.claim(everything(home, token, t0))
	for range 150 {
		m := x.add(t0)
		want := x.get(m.Key)
		for range 1 + r.IntN(4) {
			s := x.settlement(m, token, ways[r.IntN(len(ways))])
			s.Attempts, s.PossibleDuplicate = r.IntN(postdate.RetryAttemptMax), r.IntN(2) == 0
			s.AttemptTime, s.At = t0+postdate.Time(r.IntN(5000)), t0+postdate.Time(r.IntN(5000))
			s.DownSince = postdate.Time(r.IntN(2)) * (t0 + postdate.Time(r.IntN(5000)))
			s.Reason = randomOf(r, "\x00 no route »ü« ", r.IntN(postdate.LastErrorBytesMax/3))
			x.settle(s)
			if want.Status == postdate.Pending {
				want.State = s.State(want.State)
			}
			x.wantRecord(x.get(m.Key), want)
		}
	}
}
