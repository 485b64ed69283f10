package mongo

import (
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// payloadInlineMax is the largest payload that a scan reads along with its message. A larger
// one has a field of its own, and is read once it is known to fit into the page.
const payloadInlineMax = 4 << 10

// document is a message in the collection messages.
type document struct {
	ID            string        `bson:"_id"` // tenant, zero byte, schedule id: unique, and in the order of scans
	Bucket        int           `bson:"bucket"`
	Tenant        string        `bson:"tenant"`
	ScheduleID    string        `bson:"scheduleId"`
	ExecutionTime postdate.Time `bson:"executionTime"`

	Status            int            `bson:"status"`
	Version           int64          `bson:"version"`
	AttemptTime       postdate.Time  `bson:"attemptTime"`
	Due               *postdate.Time `bson:"due,omitempty"` // the attempt time again, while PENDING, for the due index
	Parked            bool           `bson:"parked,omitempty"`
	DownSince         postdate.Time  `bson:"downSince,omitempty"`
	Attempts          int            `bson:"attempts,omitempty"`
	PossibleDuplicate bool           `bson:"possibleDuplicate,omitempty"`
	SettledAt         *postdate.Time `bson:"settledAt,omitempty"` // once final, for the index of the retention
	LastError         string         `bson:"lastError,omitempty"`
	Redriven          bool           `bson:"redriven,omitempty"`
	Occurrence        postdate.Time  `bson:"occurrence,omitempty"` // of a series, as are the next five
	Run               int            `bson:"run,omitempty"`
	Ending            bool           `bson:"ending,omitempty"`
	Paused            bool           `bson:"paused,omitempty"`
	Changes           int            `bson:"changes,omitempty"`
	Series            *series        `bson:"series,omitempty"`
	Log               []attempt      `bson:"attemptLog,omitempty"`
	Mark              *mark          `bson:"mark,omitempty"`

	Sized int `bson:"sized,omitempty"` // the payload's size; never stored: a read computes it in place of the payload

	damaged error // it cannot be decoded, or exists but was not found: see damage.go

	Route        string        `bson:"channel"` // text of its Route
	ExpiresAt    postdate.Time `bson:"expiresAt,omitempty"`
	CreatedAt    postdate.Time `bson:"createdAt,omitempty"`
	Payload      []byte        `bson:"payload,omitempty"`
	Large        []byte        `bson:"large,omitempty"`      // instead of payload
	LargeBytes   int           `bson:"largeBytes,omitempty"` // its size
	Encoding     int           `bson:"encoding,omitempty"`
	ContentType  string        `bson:"contentType,omitempty"`
	Headers      []header      `bson:"headers,omitempty"`
	PartitionKey string        `bson:"partitionKey,omitempty"`
	Traceparent  string        `bson:"traceparent,omitempty"`
	MaxAttempts  int           `bson:"maxAttempts,omitempty"`
	MinBackoff   int64         `bson:"minBackoff,omitempty"` // nanoseconds
	MaxBackoff   int64         `bson:"maxBackoff,omitempty"`
	MaxParked    int64         `bson:"maxParked,omitempty"`
	MayRepeat    bool          `bson:"mayRepeat,omitempty"`
	Recurrence   *recurrence   `bson:"recurrence,omitempty"`
	First        postdate.Time `bson:"first,omitempty"`
	Digest       []byte        `bson:"digest"`
	Original     *original     `bson:"original,omitempty"`

	// A node of an earlier version drops these with its next change of the message.
	Labels         []string `bson:"labels,omitempty"`
	Tracestate     string   `bson:"tracestate,omitempty"`
	FailureChannel string   `bson:"failureChannel,omitempty"`

	// Likewise; then it reads as never moved.
	MovedAt   postdate.Time `bson:"movedAt,omitempty"`
	MovedFrom postdate.Time `bson:"movedFrom,omitempty"`
}

// attempt is a postdate.Attempt.
type attempt struct {
	At      postdate.Time           `bson:"at"`
	Node    string                  `bson:"node"`
	Outcome postdate.AttemptOutcome `bson:"outcome"`
	Reason  string                  `bson:"reason,omitempty"`
}

// logOf is a log of attempts as it is stored.
func logOf(log []postdate.Attempt) (stored []attempt) {
	for _, a := range log {
		stored = append(stored, attempt(a))
	}
	return stored
}

// original is a message's Original. A node of an earlier version drops it with its next change.
type original struct {
	Digest        []byte        `bson:"digest"`
	ExecutionTime postdate.Time `bson:"executionTime"`
}

type header struct {
	Name  string `bson:"n"`
	Value string `bson:"v"`
}

// idOf is a message's _id.
func idOf(k postdate.Key) string { return k.Tenant + "\x00" + k.ScheduleID }

// keyOf is the key of the message with this _id.
func keyOf(bucket int, id string) postdate.Key {
	tenant, scheduleID, _ := strings.Cut(id, "\x00")
	return postdate.Key{Bucket: bucket, Tenant: tenant, ScheduleID: scheduleID}
}

// documentOf is the document of a message that has no history.
func documentOf(m *postdate.Message, st *postdate.State) *document {
	d := &document{
		ID: idOf(m.Key), Bucket: m.Bucket, Tenant: m.Tenant, ScheduleID: m.ScheduleID, ExecutionTime: m.ExecutionTime,
		Status: int(st.Status), Version: int64(st.Version), AttemptTime: st.AttemptTime, Parked: st.Parked,
		DownSince: st.DownSince,
		Attempts:  st.Attempts, PossibleDuplicate: st.PossibleDuplicate, LastError: st.LastError,
		Redriven:   st.Redriven,
		Occurrence: st.Occurrence, Run: st.Run, Ending: st.Ending, Paused: st.Paused, Changes: st.Changes,
		Route: string(m.Route()), ExpiresAt: m.ExpiresAt, CreatedAt: m.CreatedAt,
		Encoding: int(m.Encoding), ContentType: m.ContentType, PartitionKey: m.PartitionKey, Traceparent: m.Traceparent,
		Tracestate:  m.Tracestate,
		MaxAttempts: m.Retry.MaxAttempts, MinBackoff: int64(m.Retry.MinBackoff), MaxBackoff: int64(m.Retry.MaxBackoff),
		MaxParked: int64(m.Retry.MaxParked), MayRepeat: m.MayRepeat, Digest: m.Digest[:],
		Recurrence: (*recurrence)(m.Recurrence), First: m.First,
		Labels: m.Labels, FailureChannel: string(m.FailureChannel),
		MovedAt: m.Moved.At, MovedFrom: m.Moved.From,
	}
	if st.Status == postdate.Pending {
		d.Due = &d.AttemptTime
	}
	if st.Status.Final() {
		d.SettledAt = &st.SettledAt
	}
	if len(m.Payload) > payloadInlineMax {
		d.Large, d.LargeBytes = m.Payload, len(m.Payload)
	} else {
		d.Payload = m.Payload
	}
	for _, h := range m.Headers {
		d.Headers = append(d.Headers, header(h))
	}
	if o := &m.Original; *o != (postdate.Original{}) {
		d.Original = &original{o.Digest[:], o.ExecutionTime}
	}
	return d
}

func (d *document) key() postdate.Key {
	return postdate.Key{Bucket: d.Bucket, Tenant: d.Tenant, ScheduleID: d.ScheduleID}
}

func (d *document) state() postdate.State {
	st := postdate.State{
		Status: postdate.Status(d.Status), Version: uint64(d.Version), Attempts: d.Attempts,
		AttemptTime: d.AttemptTime, Parked: d.Parked, DownSince: d.DownSince, PossibleDuplicate: d.PossibleDuplicate,
		LastError: d.LastError, Occurrence: d.Occurrence, Run: d.Run, Ending: d.Ending,
		Paused: d.Paused, Changes: d.Changes, Redriven: d.Redriven,
	}
	if d.SettledAt != nil {
		st.SettledAt = *d.SettledAt
	}
	return st
}

// route is the route of a message, of which at least the keys of the due index and the channel must
// have been read. Earlier versions wrote the channel alone, whoever the tenant was.
func (d *document) route() postdate.Route {
	r := postdate.Route(d.Route)
	if tenant := keyOf(0, d.ID).Tenant; r.Tenant() != tenant {
		return postdate.RouteOf(tenant, r.Channel())
	}
	return r
}

func (d *document) sighting() sighting {
	return sighting{d.key(), d.route(), d.state(), d.Mark}
}

// place is where a placed message waits. At least the keys of the due index must have been
// read.
func (d *document) place() bucket.Position {
	return position{T: *d.Due, ID: d.ID}.place()
}

func (d *document) record() postdate.Record {
	route := d.route()
	m := postdate.Message{
		Key: d.key(), Channel: route.Channel(), Priority: route.Priority(), ExecutionTime: d.ExecutionTime,
		ExpiresAt: d.ExpiresAt, CreatedAt: d.CreatedAt,
		Payload: d.Payload, Encoding: postdate.Encoding(d.Encoding), ContentType: d.ContentType,
		PartitionKey: d.PartitionKey, Traceparent: d.Traceparent, Tracestate: d.Tracestate, MayRepeat: d.MayRepeat,
		Recurrence: (*postdate.Recurrence)(d.Recurrence), First: d.First,
		Labels: d.Labels, FailureChannel: postdate.Channel(d.FailureChannel),
		Moved: postdate.Move{At: d.MovedAt, From: d.MovedFrom},
		Retry: postdate.RetryPolicy{
			MaxAttempts: d.MaxAttempts, MinBackoff: time.Duration(d.MinBackoff),
			MaxBackoff: time.Duration(d.MaxBackoff), MaxParked: time.Duration(d.MaxParked),
		},
	}
	if d.LargeBytes > 0 {
		m.Payload = d.Large
	}
	for _, h := range d.Headers {
		m.Headers = append(m.Headers, postdate.Header(h))
	}
	m.Digest, m.Original = d.requests()
	r := postdate.Record{Message: m, State: d.state(), Series: d.Series.series()}
	for _, a := range d.Log {
		r.Log = append(r.Log, postdate.Attempt(a))
	}
	return r
}

// requests are the digest of the request that made the message what it is, and the message's Original.
func (d *document) requests() (digest postdate.Digest, o postdate.Original) {
	copy(digest[:], d.Digest)
	if d.Original != nil {
		copy(o.Digest[:], d.Original.Digest)
		o.ExecutionTime = d.Original.ExecutionTime
	}
	return digest, o
}

// payloadBytes is the payload's size, whether the payload was read or not.
func (d *document) payloadBytes() int { return max(len(d.Payload), d.LargeBytes, d.Sized) }

// bytes is [postdate.Message.Bytes] of the message, whether its payload was read or not.
func (d *document) bytes() int { return d.payloadBytes() + headersBytes(d.Headers) }

func headersBytes(headers []header) (n int) {
	for _, h := range headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// anyOf matches one of the values.
func anyOf[T any](values []T) any {
	if len(values) == 1 {
		return values[0]
	}
	return doc("$in", values)
}

// keyed gathers keys for one command.
type keyed struct {
	all     []postdate.Key
	ids     []string
	buckets []int
	has     map[int]struct{}
}

func (k *keyed) add(key postdate.Key) {
	k.all = append(k.all, key)
	k.ids = append(k.ids, idOf(key))
	if _, known := k.has[key.Bucket]; known {
		return
	}
	if k.has == nil {
		k.has = map[int]struct{}{}
	}
	k.has[key.Bucket] = struct{}{}
	k.buckets = append(k.buckets, key.Bucket)
}

// filter is the part of a filter that names the messages and their buckets.
func (k *keyed) filter() bson.D { return doc("_id", anyOf(k.ids), "bucket", anyOf(k.buckets)) }
