package postdate

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"time"
)

// DefaultTenant is the tenant of a request that names none.
const DefaultTenant = "default"

// Encoding is the form in which a client sent its payload, so that it can be
// shown in the same form again. A delivery always consists of the bytes.
type Encoding uint8

// The encodings.
const (
	EncodingJSON   Encoding = iota // a JSON value; its bytes are delivered as they were sent
	EncodingText                   // a string, delivered as it is
	EncodingBase64                 // base64 of any bytes
)

// Key names a message. Bucket follows from the other two (package bucket).
type Key struct {
	Bucket     int
	Tenant     string
	ScheduleID string
}

// RetryPolicy says how often and how soon a refused message is tried again, and how long
// it may wait for a channel that is down. Zero fields mean the node's defaults.
type RetryPolicy struct {
	MaxAttempts int           // includes the first attempt
	MinBackoff  time.Duration // before the second attempt; it doubles from there
	MaxBackoff  time.Duration // where the doubling ends
	MaxParked   time.Duration // how long it may wait for a channel that is down
}

// Or fills p's zero fields from d.
func (p RetryPolicy) Or(d RetryPolicy) RetryPolicy {
	if p.MaxAttempts == 0 {
		p.MaxAttempts = d.MaxAttempts
	}
	if p.MinBackoff == 0 {
		p.MinBackoff = d.MinBackoff
	}
	if p.MaxBackoff == 0 {
		p.MaxBackoff = max(d.MaxBackoff, p.MinBackoff)
	}
	if p.MaxParked == 0 {
		p.MaxParked = d.MaxParked
	}
	return p
}

// Backoff returns how long to wait after the given number of attempts. It doubles
// from MinBackoff up to MaxBackoff. jitter, in [0, 1), shortens it by up to a half,
// so that messages that failed together do not come back together.
func (p RetryPolicy) Backoff(attempts int, jitter float64) time.Duration {
	d := p.MinBackoff
	for i := 1; i < attempts && d < p.MaxBackoff; i++ {
		d *= 2
	}
	d = min(d, p.MaxBackoff)
	return d - time.Duration(jitter*float64(d)/2)
}

// Message is what a client schedules. It never changes: a reschedule replaces it by
// a new version.
type Message struct {
	Key
	Channel       Channel
	ExecutionTime Time
	ExpiresAt     Time // not published from then on; 0: never expires
	CreatedAt     Time
	Payload       []byte
	Encoding      Encoding
	ContentType   string
	Headers       []Header // the client's own, in ascending order of name
	PartitionKey  string   // Kafka's record key; "": the schedule id
	Traceparent   string   // W3C trace context of the request that scheduled it
	Tracestate    string   // what comes with it, at most [TracestateBytesMax] bytes; "" if Traceparent is ""
	Priority      Priority
	Recurrence    *Recurrence // nil: it is sent once. ExecutionTime is when the first occurrence begins.
	First         Time        // of a series: its first occurrence, without the jitter that ExecutionTime has
	Retry         RetryPolicy
	Digest        Digest   // of the request: tells a repeated request from a different one
	Original      Original // zero: the message is as it was made
	Moved         Move     // the latest one; zero: it was never moved
	// MayRepeat: the message may have been scheduled twice, under two ids. Each of its
	// deliveries is marked as a possible duplicate.
	MayRepeat bool
	Labels    []string // the client's own, as it gave them; nobody but clients uses them
	// FailureChannel gets the message, with the reason, if it cannot be delivered; "": the one that is set for
	// its channel, if any.
	FailureChannel Channel
}

// Route returns the route that the message takes.
func (m *Message) Route() Route { return RouteAt(m.Tenant, m.Channel, m.Priority) }

// HeaderNoKey is a header of stored messages that no consumer sees: Kafka's record has no key.
const HeaderNoKey = "postdate-no-key"

// Header is one of the client's own headers.
type Header struct{ Name, Value string }

// HeadersBytes is how many bytes headers have.
func HeadersBytes(headers []Header) (n int) {
	for _, h := range headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// Bytes is what counts of a message where memory is bounded: its payload and its headers.
func (m *Message) Bytes() int { return len(m.Payload) + HeadersBytes(m.Headers) }

// Digest identifies the content of a request.
type Digest [16]byte

// Original is what is kept of the request that made a message, if clients have changed the message since.
type Original struct {
	Digest        Digest
	ExecutionTime Time // as the answer said
}

// Origin is the Original of a message that takes m's place.
func (m *Message) Origin() Original {
	switch {
	case m.Original != Original{}:
		return m.Original
	case m.Recurrence != nil:
		return Original{m.Digest, m.First}
	}
	return Original{m.Digest, m.ExecutionTime}
}

// Move is a client's change of the execution time of a message that does not recur.
type Move struct {
	At   Time // when the client made it
	From Time // the execution time before it
}

// MovedBy is the Move of a message that takes m's place at a given time. The rule of a series says when that is due,
// so a series is never moved.
func (m *Message) MovedBy(next *Message, at Time) Move {
	switch {
	case m.Recurrence != nil || next.Recurrence != nil:
		return Move{}
	case next.ExecutionTime != m.ExecutionTime:
		return Move{At: at, From: m.ExecutionTime}
	}
	return m.Moved
}

// Repeats says whether a request with the digest d made the message, or made it what it is, and for when.
func (m *Message) Repeats(d Digest) (at Time, yes bool) {
	switch {
	case d == m.Digest:
		return m.ExecutionTime, true
	case d == m.Original.Digest && m.Original != Original{}:
		return m.Original.ExecutionTime, true
	}
	return 0, false
}

// State is the part of a message that changes.
type State struct {
	Status Status
	// Version is drawn at creation, different for each message of the same id, and grows by one
	// with every reschedule and redrive.
	Version           uint64
	Attempts          int    // publishes that the broker refused, confirmed, or left unknown
	AttemptTime       Time   // when the next publish is due; at first the execution time
	Parked            bool   // waits until its channel is up; looked at again at AttemptTime
	DownSince         Time   // since when it waits for a channel that is down; 0: it does not wait
	PossibleDuplicate bool   // an earlier publish has an unknown outcome
	SettledAt         Time   // when its status became final; for DELIVERED, the time of the confirm
	LastError         string // in the broker's own words
	Redriven          bool   // it failed before, which its series has counted

	// Of a series. The rest is then of its present occurrence.
	Occurrence Time // the one that is due next; 0: the message does not recur
	Run        int  // its number, from 1; those that were skipped count too
	Ending     bool // cancelled too late to stop this occurrence: none follows
	Paused     bool // no occurrence is begun until it is resumed
	Changes    int  // how often it was changed and stayed the same series: so many earlier versions are its own
}

// Record is a message with its state, as a store keeps it.
type Record struct {
	Message
	State
	Series Series    // may be zero in what a claim returns
	Log    []Attempt // likewise: the latest attempts, the oldest first; never changed in place
}

// NewRecord returns the record of a newly scheduled message with the given version.
func NewRecord(m Message, version uint64) Record {
	return Record{Message: m, State: NewState(&m, version)}
}

// Owns says whether an occurrence that became a message of its own at the given version belongs to the series.
func (s State) Owns(version uint64) bool {
	return s.Version-uint64(s.Changes) <= version && version <= s.Version
}

// NotBefore is the time before which a message, or a series' present occurrence, must not be sent.
func (r *Record) NotBefore() Time { return max(r.ExecutionTime, r.Occurrence) }

// Delivery is one attempt to publish a message.
type Delivery struct {
	Message           *Message
	Attempt           int  // 1, 2, …
	PossibleDuplicate bool // the consumer may already have it
}

// NewState returns the state of a newly scheduled message with the given version.
func NewState(m *Message, version uint64) State {
	s := State{Status: Pending, Version: version, AttemptTime: m.ExecutionTime}
	if m.Recurrence != nil {
		s.Occurrence, s.Run = m.First, 1
	}
	return s
}

// Cancel returns s after a cancel at the given time.
func (s State) Cancel(at Time) State {
	s.Status, s.SettledAt, s.Parked, s.DownSince = Cancelled, at, false, 0
	return s
}

// Redrive returns s, which is DELIVERY_FAILED, after a redrive: a new version without attempts, due at the given
// time. If an earlier attempt may have arrived, each attempt of the new version is marked.
func (s State) Redrive(at Time) State {
	s.Status, s.Version, s.Attempts, s.AttemptTime, s.SettledAt = Pending, s.Version+1, 0, at, 0
	s.Parked, s.DownSince, s.Redriven = false, 0, true
	return s
}

// Withdrawn says whether a message is cancelled and nothing of it can arrive any more. A series may have
// ended with an occurrence whose last attempt has an unknown outcome.
func (s State) Withdrawn() bool { return s.Status == Cancelled && !s.PossibleDuplicate }

// DigestOf returns the digest of m's content. when is the execution time or the
// delay in the client's own words: a repeated request with the same delay is the
// same request, although its delay ends later.
func DigestOf(m *Message, when string) Digest {
	b := make([]byte, 0, 512+len(m.Payload))
	text := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	number := func(n int64) { b = binary.AppendVarint(b, n) }
	text(when)
	text(string(m.Channel))
	number(int64(m.ExpiresAt))
	number(int64(m.Encoding))
	text(m.ContentType)
	text(m.PartitionKey)
	number(int64(m.Retry.MaxAttempts))
	number(int64(m.Retry.MinBackoff))
	number(int64(m.Retry.MaxBackoff))
	if m.Retry.MaxParked != 0 { // keeps the digests of requests from before this field
		number(-1) // cannot be mistaken for a number of headers
		number(int64(m.Retry.MaxParked))
	}
	if m.Priority != PriorityMedium { // likewise
		number(-2)
		number(int64(m.Priority))
	}
	if r := m.Recurrence; r != nil { // likewise
		number(-3)
		for _, n := range []int64{int64(r.Every), int64(r.Anchor), int64(r.Start), int64(r.End), int64(r.MaxRuns),
			int64(r.Jitter), int64(r.Misfire), int64(r.MisfireAfter), int64(r.Gap), int64(r.Overlap)} {
			number(n)
		}
		text(r.Cron)
		text(r.Timezone)
	}
	if len(m.Labels) > 0 { // likewise
		number(-4)
		number(int64(len(m.Labels)))
		for _, l := range m.Labels {
			text(l)
		}
	}
	if m.FailureChannel != "" { // likewise
		number(-5)
		text(string(m.FailureChannel))
	}
	number(int64(len(m.Headers)))
	for _, h := range m.Headers {
		text(h.Name)
		text(h.Value)
	}
	b = append(b, m.Payload...)
	sum := sha256.Sum256(b)
	return Digest(sum[:16])
}

// SortHeaders sorts headers into the order that a Message requires.
func SortHeaders(hs []Header) {
	slices.SortFunc(hs, func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
}

// CheckScheduleID returns an error if id is not a valid schedule id.
func CheckScheduleID(id string) error {
	switch key := (Key{ScheduleID: id}); {
	case key.OfFailure() && CheckMessageID(id) == nil:
		return errFailureID(id)
	case strings.Contains(id, occurrenceMark) && CheckMessageID(id) == nil:
		return errOccurrenceID(id)
	}
	return checkName("scheduleId", id, ScheduleIDBytesMax)
}

func errOccurrenceID(id string) error {
	return E(KindInvalid, "%q is an occurrence of a series, as a message of its own: "+
		"it can be read and cancelled, but neither made nor changed", id)
}

// CheckMessageID returns an error if id is neither a valid schedule id nor the id that an occurrence of a
// series has as a message of its own, nor that of a message that one of these left as it failed.
func CheckMessageID(id string) error {
	if failed, version, is := strings.Cut(id, failureMark); is {
		return checkFailureID(id, failed, version)
	}
	if series, occurrence, is := strings.Cut(id, occurrenceMark); is {
		return checkOccurrenceID(id, series, occurrence)
	}
	return checkName("scheduleId", id, ScheduleIDBytesMax)
}

func checkOccurrenceID(id, series, occurrence string) error {
	if err := checkName("scheduleId", series, ScheduleIDBytesMax); err != nil {
		return err
	}
	switch at, err := ParseTime(occurrence); {
	case err != nil: // then the slash is what is wrong
		return checkName("scheduleId", id, ScheduleIDBytesMax)
	case at.String() != occurrence:
		return E(KindInvalid, "scheduleId %q names an occurrence of a series: write its time as %s", id, at)
	}
	return nil
}

// CheckIDPrefix returns an error if no message's id can begin with s.
func CheckIDPrefix(s string) error {
	failed, version, is := strings.Cut(s, failureMark)
	if is && len(version) <= 20 && strings.Trim(version, "0123456789") == "" {
		return CheckMessageID(failed)
	}
	series, occurrence, _ := strings.Cut(s, occurrenceMark)
	if s == "" || s == "." || s == ".." { // which begin ids, and are none
		series += "-"
	}
	switch err := checkName("idPrefix", series, ScheduleIDBytesMax); {
	case s == "":
		return E(KindInvalid, "idPrefix is empty: leave it out to list every id")
	case err != nil:
		return err
	case strings.Trim(occurrence, "0123456789-:.TZ") != "" || len(occurrence) > len(Time(0).String()):
		return E(KindInvalid, "idPrefix %q: after the slash is the time of an occurrence, like %s", s, Time(0))
	}
	return nil
}

// CheckKeyID returns a KindInvalid error if s cannot be the id of an API key.
func CheckKeyID(s string) error { return checkName("key id", s, ScheduleIDBytesMax) }

// CheckLabel returns an error if s is not a valid label.
func CheckLabel(s string) error { return checkName("label", s, LabelBytesMax) }

// CheckTenant returns an error if name is not a valid tenant.
func CheckTenant(name string) error { return checkName("tenant", name, TenantBytesMax) }

func checkName(what, s string, bytesMax int) error {
	if s == "" {
		return E(KindInvalid, "%s is empty", what)
	}
	if len(s) > bytesMax {
		return E(KindInvalid, "%s is %d bytes long: at most %d are allowed", what, len(s), bytesMax)
	}
	for i := range len(s) {
		if !nameByte(s[i]) {
			return E(KindInvalid, "%s %q has a forbidden character at byte %d: "+
				"allowed are letters, digits and - _ . : ~ @ + = ,", what, s, i)
		}
	}
	if s == "." || s == ".." {
		return E(KindInvalid, "%s %q cannot stand in a URL path", what, s)
	}
	return nil
}

func nameByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return strings.IndexByte("-_.:~@+=,", c) >= 0
}

// IsJSON says whether a media type, such as that of a message, stands for JSON.
func IsJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	return mediaType == "application/json" || mediaType == "text/json" || strings.HasSuffix(mediaType, "+json")
}
