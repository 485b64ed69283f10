package pebble

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// A stored value begins with the number of its layout. A reader refuses a layout that it does
// not know; Pebble's own checksums guard against flipped bits.
const layout = 1

// layoutLean is the layout of a state without the message's digest and the history of a series,
// used in the due space: whoever reads a state there reads the message too. What it lacks is read
// from the state space alone; the parked space has it because unparking writes its states back to
// the state space.
const layoutLean = 2

// layoutSized is the layout of a state with the size of the message's payload, which is counted
// for its tenant.
const layoutSized = 3

// layoutMoved is the layout of a message that was moved. Others have layout 1.
const layoutMoved = 2

// unsized is the payload's size in a state that does not tell it.
const unsized = -1

// errLayout says that a stored value cannot be read.
var errLayout = errors.New("a stored value is damaged or from a newer version")

// state is what the state, due and parked spaces hold: the message's state, and
// what is needed of the message to find and judge it.
type state struct {
	postdate.State
	ExecutionTime postdate.Time
	Digest        postdate.Digest // absent in layoutLean
	Channel       postdate.Channel
	Priority      postdate.Priority
	PayloadBytes  int             // unsized, but in layoutSized
	Series        postdate.Series // absent in layoutLean, as are the next two
	Log           []postdate.Attempt
	Labels        []string // of the message, to find their places in the space of labels
}

// record is the message with this state.
func (s *state) record(m postdate.Message) postdate.Record {
	return postdate.Record{Message: m, State: s.State, Series: s.Series, Log: s.Log}
}

// notBefore is the time before which the message must not be sent.
func (s *state) notBefore() postdate.Time { return max(s.ExecutionTime, s.Occurrence) }

// deferred says whether a list of what is PENDING finds the message by an entry, as its place in the due space is not
// at its execution time. What is parked always has one: of what an early version parked, the due space has nothing.
func (s *state) deferred() bool {
	return s.Status == postdate.Pending && (s.AttemptTime != s.ExecutionTime || s.Parked)
}

func stateOf(m *postdate.Message, s postdate.State) state {
	return state{State: s, ExecutionTime: m.ExecutionTime, Digest: m.Digest, Channel: m.Channel,
		Priority: m.Priority, PayloadBytes: len(m.Payload), Labels: m.Labels}
}

// route is the route of the message, which is the tenant's.
func (s *state) route(tenant string) postdate.Route {
	return postdate.RouteAt(tenant, s.Channel, s.Priority)
}

// form is the layout in which a state is written, where it has a digest.
func (s *state) form() byte {
	if s.PayloadBytes == unsized {
		return layout
	}
	return layoutSized
}

const (
	flagParked = 1 << iota
	flagPossibleDuplicate
	flagsPriority = 2      // where the flags of a state have its priority, in two bits
	flagEnding    = 1 << 4 // of a series
	flagPaused    = 1 << 5 // likewise
	flagMore      = 1 << 6 // it has labels or a log of attempts
	flagRedriven  = 1 << 7 // it failed before
)

// The byte of a message's encoding also holds whether it has a tracestate, whether it has labels or a failure channel,
// whether it has an Original, its priority, in two bits, and whether it may repeat.
const (
	formEncoding  = 3 // the bits of the encoding
	formState     = 1 << 2
	formMore      = 1 << 3
	formOriginal  = 1 << 4
	formPriority  = 5
	formMayRepeat = 1 << 7
)

// appendState writes a state in one of its layouts.
func appendState(b []byte, s *state, form byte) []byte {
	flags := byte(s.Priority) << flagsPriority
	if s.Parked {
		flags |= flagParked
	}
	if s.PossibleDuplicate {
		flags |= flagPossibleDuplicate
	}
	if s.Ending {
		flags |= flagEnding
	}
	if s.Paused {
		flags |= flagPaused
	}
	if s.Redriven {
		flags |= flagRedriven
	}
	more := form != layoutLean && (len(s.Labels) > 0 || len(s.Log) > 0)
	if more {
		flags |= flagMore
	}
	b = append(b, form, byte(s.Status), flags)
	b = binary.AppendUvarint(b, s.Version)
	b = binary.AppendUvarint(b, uint64(s.Attempts))
	b = appendTimes(b, s.AttemptTime, s.SettledAt, s.ExecutionTime)
	if form != layoutLean {
		b = append(b, s.Digest[:]...)
	}
	b = appendText(b, string(s.Channel))
	if form == layoutSized {
		b = binary.AppendUvarint(b, uint64(s.PayloadBytes))
	}
	b = appendText(b, s.LastError)
	if more {
		b = appendLog(appendTexts(b, s.Labels), s.Log)
	}
	if s.DownSince != 0 || s.Occurrence != 0 { // states of earlier versions end here
		b = appendTimes(b, s.DownSince)
	}
	if s.Occurrence != 0 {
		b = appendOccurrence(b, s, form)
	}
	return b
}

func readState(v []byte) (s state, err error) {
	r := reader{rest: v}
	form, digestBytes := r.stateLayout()
	s.Status = postdate.Status(r.byte())
	flags := r.byte()
	s.Parked, s.PossibleDuplicate = flags&flagParked != 0, flags&flagPossibleDuplicate != 0
	s.Ending, s.Paused, s.Redriven = flags&flagEnding != 0, flags&flagPaused != 0, flags&flagRedriven != 0
	s.Priority = postdate.Priority(flags >> flagsPriority & 3)
	s.Version = r.uvarint()
	s.Attempts = int(r.uvarint())
	s.AttemptTime, s.SettledAt, s.ExecutionTime = r.time(), r.time(), r.time()
	copy(s.Digest[:], r.take(digestBytes))
	s.Channel = postdate.Channel(r.text())
	s.PayloadBytes = unsized
	if form == layoutSized {
		s.PayloadBytes = int(r.uvarint() & math.MaxInt)
	}
	s.LastError = r.text()
	if flags&flagMore != 0 {
		r.failed = r.failed || form == layoutLean
		s.Labels, s.Log = r.texts(), r.log()
	}
	if len(r.rest) > 0 {
		s.DownSince = r.time()
	}
	if len(r.rest) > 0 {
		r.occurrence(&s, form)
	}
	r.failed = r.failed || s.Priority > postdate.PriorityLow || (s.Ending || s.Paused) && s.Occurrence == 0
	return s, r.end()
}

// targetOf reads only the channel and the priority from a state.
func targetOf(v []byte) (channel []byte, priority postdate.Priority, err error) {
	r := reader{rest: v}
	_, digestBytes := r.stateLayout()
	r.byte() // status
	priority = postdate.Priority(r.byte() >> flagsPriority & 3)
	for range 5 { // version, attempts and times
		r.uvarint()
	}
	r.take(digestBytes)
	channel = r.take(int(r.uvarint()))
	if r.failed || priority > postdate.PriorityLow {
		return nil, 0, errLayout
	}
	return channel, priority, nil
}

// appendMessage writes what the message's key does not hold.
func appendMessage(b []byte, m *postdate.Message) []byte {
	form := byte(m.Encoding) | byte(m.Priority)<<formPriority
	if m.MayRepeat {
		form |= formMayRepeat
	}
	if m.Original != (postdate.Original{}) {
		form |= formOriginal
	}
	if len(m.Labels) > 0 || m.FailureChannel != "" {
		form |= formMore
	}
	if m.Tracestate != "" {
		form |= formState
	}
	if m.Moved != (postdate.Move{}) {
		b = appendTimes(append(b, layoutMoved, form), m.Moved.At, m.Moved.From)
	} else {
		b = append(b, layout, form)
	}
	b = appendTimes(b, m.ExpiresAt, m.CreatedAt)
	b = appendText(b, string(m.Channel))
	b = appendText(b, m.ContentType)
	b = appendText(b, m.PartitionKey)
	b = appendText(b, m.Traceparent)
	if form&formState != 0 {
		b = appendText(b, m.Tracestate)
	}
	b = binary.AppendUvarint(b, uint64(m.Retry.MaxAttempts))
	b = binary.AppendUvarint(b, uint64(m.Retry.MinBackoff))
	b = binary.AppendUvarint(b, uint64(m.Retry.MaxBackoff))
	b = append(b, m.Digest[:]...)
	if form&formOriginal != 0 {
		b = appendTimes(append(b, m.Original.Digest[:]...), m.Original.ExecutionTime)
	}
	if form&formMore != 0 {
		b = appendText(appendTexts(b, m.Labels), string(m.FailureChannel))
	}
	b = appendHeaders(b, m.Headers)
	b = binary.AppendUvarint(b, uint64(len(m.Payload)))
	b = append(b, m.Payload...)
	if m.Retry.MaxParked != 0 || m.Recurrence != nil { // messages of earlier versions end here
		b = binary.AppendUvarint(b, uint64(m.Retry.MaxParked))
	}
	if m.Recurrence != nil {
		b = appendRecurrence(b, m)
	}
	return b
}

func readMessage(v []byte, key postdate.Key, execution postdate.Time) (m postdate.Message, err error) {
	r := reader{rest: v}
	m.Key, m.ExecutionTime = key, execution
	written, form := r.byte(), r.byte()
	r.failed = r.failed || written != layout && written != layoutMoved
	if written == layoutMoved {
		m.Moved.At, m.Moved.From = r.time(), r.time()
	}
	m.Encoding, m.MayRepeat = postdate.Encoding(form&formEncoding), form&formMayRepeat != 0
	m.Priority = postdate.Priority(form >> formPriority & 3)
	m.ExpiresAt, m.CreatedAt = r.time(), r.time()
	m.Channel = postdate.Channel(r.text())
	m.ContentType = r.text()
	m.PartitionKey = r.text()
	m.Traceparent = r.text()
	if form&formState != 0 {
		m.Tracestate = r.text()
	}
	m.Retry.MaxAttempts = int(r.uvarint())
	m.Retry.MinBackoff = time.Duration(r.uvarint())
	m.Retry.MaxBackoff = time.Duration(r.uvarint())
	copy(m.Digest[:], r.take(len(m.Digest)))
	if form&formOriginal != 0 {
		copy(m.Original.Digest[:], r.take(len(m.Digest)))
		m.Original.ExecutionTime = r.time()
	}
	if form&formMore != 0 {
		m.Labels, m.FailureChannel = r.texts(), postdate.Channel(r.text())
	}
	m.Headers = r.headers()
	m.Payload = append([]byte{}, r.take(int(r.uvarint()))...)
	if len(r.rest) > 0 {
		m.Retry.MaxParked = time.Duration(r.uvarint())
	}
	if len(r.rest) > 0 {
		r.recurrence(&m)
	}
	r.failed = r.failed || m.Priority > postdate.PriorityLow
	return m, r.end()
}

func appendInboxMessage(b []byte, m *store.InboxMessage) []byte {
	var flags byte
	if m.PossibleDuplicate {
		flags |= flagPossibleDuplicate
	}
	b = append(b, layout, flags, byte(m.Encoding))
	b = appendTimes(b, m.DeliveredAt, m.ExecutionTime)
	b = binary.AppendUvarint(b, uint64(m.Attempt))
	b = appendText(b, m.ScheduleID)
	b = appendText(b, m.ContentType)
	b = appendHeaders(b, m.Headers)
	b = binary.AppendUvarint(b, uint64(len(m.Payload)))
	return append(b, m.Payload...)
}

func readInboxMessage(v []byte, tenant, inbox string) (m store.InboxMessage, err error) {
	r := reader{rest: v}
	m.Tenant, m.Inbox = tenant, inbox
	r.layout()
	m.PossibleDuplicate = r.byte()&flagPossibleDuplicate != 0
	m.Encoding = postdate.Encoding(r.byte())
	m.DeliveredAt, m.ExecutionTime = r.time(), r.time()
	m.Attempt = int(r.uvarint())
	m.ScheduleID = r.text()
	m.ContentType = r.text()
	m.Headers = r.headers()
	m.Payload = append([]byte{}, r.take(int(r.uvarint()))...)
	return m, r.end()
}

// deliveredAt reads only the delivery time of an inbox message; 0 if it cannot be read.
func deliveredAt(v []byte) postdate.Time {
	r := reader{rest: v}
	r.layout()
	r.take(2) // flags and encoding
	t := r.time()
	if r.failed {
		return 0
	}
	return t
}

// layoutPositions is the layout of partition records whose claims end at a position. In layout
// 1 they end with a whole millisecond.
const layoutPositions = 2

func appendPartition(b []byte, p bucket.Partition) []byte {
	b = append(b, layoutPositions)
	b = binary.AppendUvarint(b, p.Token)
	b = binary.AppendUvarint(b, p.Claims)
	b = appendTimes(b, p.Checkpoint)
	b = appendText(appendText(b, p.Owner), p.Lease)
	b = appendPosition(b, p.Claimed)
	b = binary.AppendUvarint(b, uint64(len(p.Behind)))
	for route, to := range p.Behind {
		b = appendPosition(appendText(b, string(route)), to)
	}
	return b
}

func readPartition(v []byte, number int) (p bucket.Partition, err error) {
	if len(v) > 0 && v[0] == layout {
		return readOldPartition(v, number)
	}
	r := reader{rest: v}
	p.Bucket = number
	r.failed = r.byte() != layoutPositions
	p.Token, p.Claims = r.uvarint(), r.uvarint()
	p.Checkpoint = r.time()
	p.Owner, p.Lease = r.text(), r.text()
	p.Claimed = r.position()
	for n := r.uvarint(); n > 0 && !r.failed; n-- {
		if p.Behind == nil {
			p.Behind = map[postdate.Route]bucket.Position{}
		}
		route := postdate.Route(r.text())
		p.Behind[route] = r.position()
	}
	return p, r.end()
}

// readOldPartition reads what earlier versions wrote.
func readOldPartition(v []byte, number int) (p bucket.Partition, err error) {
	r := reader{rest: v}
	p.Bucket = number
	r.layout()
	p.Token = r.uvarint()
	p.Checkpoint, p.Claimed = r.time(), bucket.UpTo(r.time())
	p.Owner, p.Lease = r.text(), r.text()
	if len(r.rest) > 0 { // a record from before claims had numbers ends here
		p.Claims = r.uvarint()
	}
	return p, r.end()
}

func appendPosition(b []byte, p bucket.Position) []byte {
	return appendText(appendText(appendTimes(b, p.Time), p.Tenant), p.ScheduleID)
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendTimes(b []byte, ts ...postdate.Time) []byte {
	for _, t := range ts {
		b = binary.AppendUvarint(b, uint64(t))
	}
	return b
}

func appendHeaders(b []byte, hs []postdate.Header) []byte {
	b = binary.AppendUvarint(b, uint64(len(hs)))
	for _, h := range hs {
		b = appendText(appendText(b, h.Name), h.Value)
	}
	return b
}

// reader takes a value apart. After the first failure it returns only zeros, and end reports
// the failure.
type reader struct {
	rest   []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || n < 0 || n > len(r.rest) {
		r.failed = true
		return nil
	}
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) layout() {
	if r.byte() != layout {
		r.failed = true
	}
}

// stateLayout reads the layout of a state, and returns it with the length of its digest.
func (r *reader) stateLayout() (form byte, digestBytes int) {
	switch form = r.byte(); form {
	case layout, layoutSized:
		return form, len(postdate.Digest{})
	case layoutLean:
		return form, 0
	}
	r.failed = true
	return form, 0
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.failed = true
		return 0
	}
	r.take(size)
	return n
}

func (r *reader) varint() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 {
		r.failed = true
		return 0
	}
	r.take(size)
	return n
}

func (r *reader) time() postdate.Time { return postdate.Time(r.uvarint()) }

func (r *reader) position() bucket.Position {
	return bucket.Position{Time: r.time(), Tenant: r.text(), ScheduleID: r.text()}
}

func (r *reader) text() string { return string(r.take(int(r.uvarint()))) }

func (r *reader) headers() []postdate.Header {
	n := r.uvarint()
	if n == 0 || n > uint64(len(r.rest)) {
		r.failed = r.failed || n != 0
		return nil
	}
	hs := make([]postdate.Header, n)
	for i := range hs {
		hs[i] = postdate.Header{Name: r.text(), Value: r.text()}
	}
	return hs
}

// end fails if something could not be read, or was left over.
func (r *reader) end() error {
	if r.failed || len(r.rest) > 0 {
		return errLayout
	}
	return nil
}
