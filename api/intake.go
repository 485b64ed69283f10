package api

import (
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/tracing"
)

// Intake turns input that arrives other than by HTTP into messages, by the same rules
// as this API's requests. It is pure. Its errors are sentences for the sender.
type Intake struct {
	Buckets         int
	Tenant          string
	PayloadBytesMax int
	CheckChannel    func(postdate.Channel) error
}

// Offer holds the values for fields that a body leaves out.
type Offer struct {
	ScheduleID string // must be valid
	Channel    string
	// Pinned: Channel counts even if the body names another one; its failureChannel does not count, either.
	Pinned      bool
	Traceparent string        // of W3C, as it came
	Tracestate  string        // likewise
	Now         postdate.Time // what a delay counts from
}

// trace returns what can be kept of the trace context.
func (o *Offer) trace() (traceparent, tracestate string) {
	return tracing.Checked([]byte(o.Traceparent), []byte(o.Tracestate))
}

// Parcel is a message whose payload is arbitrary bytes and whose other fields came
// separately.
type Parcel struct {
	Offer
	ExecutionTime postdate.Time
	When          string // the time in the sender's own words, for the digest
	Payload       []byte
	ContentType   string // "": the sender gave none, and the delivery has none either
	Headers       []postdate.Header
	PartitionKey  string
}

// Reading is what FromJSON returns in addition to the message.
type Reading struct {
	// Named: the body has a schedule id.
	Named bool
	// Expired: the message is complete, but expires before its execution time. It is
	// refused, unless the store already has it and this is a late repetition.
	Expired bool
}

// FromJSON reads a body in the form that POST /v1/messages takes.
func (in *Intake) FromJSON(body []byte, o Offer) (m postdate.Message, r Reading, err error) {
	var b messageBody
	if p := decodeBody(body, &b); p != nil {
		return m, r, p
	}
	r.Named = b.ScheduleID != nil
	if !r.Named {
		b.ScheduleID = &o.ScheduleID
	}
	if b.Channel == "" || o.Pinned {
		b.Channel = o.Channel
	}
	if o.Pinned {
		b.FailureChannel = channelName{}
	}
	m.Traceparent, m.Tracestate = o.trace()
	c := checker{now: o.Now, payloadBytesMax: in.PayloadBytesMax, checkChannel: in.CheckChannel}
	p, expired := c.named(&b, in.Tenant, in.Buckets, &m)
	if p != nil {
		r.Expired = expired
		return m, r, p
	}
	return m, r, nil
}

// FromParcel turns a parcel into a message.
func (in *Intake) FromParcel(p *Parcel) (m postdate.Message, err error) {
	channel, err := postdate.ParseChannel(p.Channel)
	if err == nil {
		err = in.CheckChannel(channel)
	}
	if err != nil {
		return m, err
	}
	if err := checkParcel(p, in.PayloadBytesMax); err != nil {
		return m, err
	}
	m = postdate.Message{
		Key: in.Key(p.ScheduleID), Channel: channel,
		ExecutionTime: p.ExecutionTime, CreatedAt: p.Now, Payload: p.Payload, Encoding: encodingOf(p),
		ContentType: p.ContentType, Headers: p.Headers, PartitionKey: p.PartitionKey,
	}
	m.Traceparent, m.Tracestate = p.trace()
	postdate.SortHeaders(m.Headers)
	m.Digest = postdate.DigestOf(&m, p.When)
	return m, nil
}

// Key returns the key of a schedule id.
func (in *Intake) Key(scheduleID string) postdate.Key {
	return bucket.KeyOf(in.Tenant, scheduleID, in.Buckets)
}

func checkParcel(p *Parcel, payloadBytesMax int) error {
	switch {
	case len(p.Payload) > payloadBytesMax:
		return postdate.E(postdate.KindTooLarge, "the body is %d bytes long: at most %d are allowed; "+
			"put it elsewhere and send a reference", len(p.Payload), payloadBytesMax)
	case len(p.ContentType) > postdate.ContentTypeBytesMax || strings.ContainsFunc(p.ContentType,
		func(r rune) bool { return r < ' ' || r > '~' }):
		return invalid("the content type %q is not printable ASCII of at most %d bytes",
			clip(p.ContentType), postdate.ContentTypeBytesMax)
	case len(p.PartitionKey) > postdate.KeyBytesMax:
		return invalid("the key is %d bytes long: at most %d are allowed", len(p.PartitionKey), postdate.KeyBytesMax)
	case !utf8.ValidString(p.PartitionKey):
		return invalid("the key is not UTF-8")
	}
	if problem := checkHeaders(p.Headers); problem != nil {
		return problem
	}
	seen := make(map[string]bool, len(p.Headers))
	for _, h := range p.Headers {
		if seen[h.Name] {
			return invalid("header %s stands twice: leave one", h.Name)
		}
		seen[h.Name] = true
		if !utf8.ValidString(h.Value) {
			return invalid("header %s is not UTF-8", h.Name)
		}
	}
	return nil
}

// encodingOf returns the form in which answers will show the payload.
func encodingOf(p *Parcel) postdate.Encoding {
	switch {
	case postdate.IsJSON(p.ContentType) && jsontext.Value(p.Payload).IsValid() && !nestsTooDeep(p.Payload):
		return postdate.EncodingJSON
	case utf8.Valid(p.Payload):
		return postdate.EncodingText
	}
	return postdate.EncodingBase64
}
