package ingest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/internal/amqp"
)

// Action is what a command asks for.
type Action uint8

// The actions.
const (
	Schedule Action = iota + 1 // create a message; its id may be taken
	Upsert                     // create it, or replace it while it is PENDING
	Cancel                     // cancel it
	Define                     // do what a task definition says
	Refuse                     // do nothing: the command is bad, and Reason says why
	Pass                       // do nothing: a later command takes its place
)

// Identity says how far a message's id can be trusted to name one message only.
type Identity uint8

// The identities.
const (
	Given    Identity = iota + 1 // the sender chose the id: the same id means the same message
	Borrowed                     // it is the broker's message id, which some senders reuse
	Placed                       // it is the message's place in its broker
	Fresh                        // it was made here, because the message has no name
)

// Decision is what a command means.
type Decision struct {
	Action   Action
	Message  postdate.Message // for Cancel, only its Key is set
	Identity Identity
	Expired  bool   // refused as too late, unless the store already has it
	Reason   string // for Refuse, and with Expired

	task *api.Task // for Define

	// compacted: the message's id has no other content than its last record. A finished message makes way for
	// the next one, a bad record withdraws the one before it, and cancels may have nothing to do.
	compacted bool
	receipt   []postdate.Header // of a Cancel: only a message that has these is meant
}

// Decide reads a command. It is pure: now is the node's clock, and fresh is an id for
// a message without a name.
func Decide(in *api.Intake, c *Command, now postdate.Time, fresh string) Decision {
	if c.Fault != "" {
		return Decision{Action: Refuse, Reason: c.Fault}
	}
	s, err := sort(c)
	if err != nil {
		return refuse(err)
	}
	if c.Records && c.Body == nil {
		return s.cancel(in, c)
	}
	base := now
	if c.Sent > 0 && c.Sent < now {
		base = c.Sent
	}
	name, err := s.name(c, fresh)
	if err != nil {
		return refuse(err)
	}
	offer := api.Offer{ScheduleID: name.id, Channel: c.Channel, Pinned: c.Pinned,
		Traceparent: s.trace.parent, Tracestate: s.trace.state, Now: base}
	if c.Pinned && c.Channel == "" {
		return refuse(invalid("it does not say where to: give it a key, which is a part of its channel"))
	}
	if s.channel != nil && !c.Pinned {
		offer.Channel = *s.channel
	}
	var d Decision
	switch {
	case s.delay != nil || s.at != nil:
		d, err = s.parcel(in, c, offer)
	case len(bytes.TrimLeft(c.Body, " \t\r\n")) > 0 && bytes.TrimLeft(c.Body, " \t\r\n")[0] == '{':
		d, err = fromJSON(in, c, offer, &name)
	default:
		return refuse(invalid("it does not say when: give it a header x-delay (milliseconds) or " +
			"postdate-execution-time (like 2027-01-31T09:30:00Z), or send the JSON that POST /v1/messages takes"))
	}
	d.Identity = name.identity
	if err != nil {
		d.Action, d.Reason = Refuse, words(err)
		return d
	}
	d.Message.MayRepeat = name.identity == Fresh && c.Redelivered
	if c.Records {
		d.Message.Headers = withSource(d.Message.Headers, c.Place)
	}
	return d
}

func invalid(format string, args ...any) error {
	return postdate.E(postdate.KindInvalid, format, args...)
}

func refuse(err error) Decision { return Decision{Action: Refuse, Reason: words(err)} }

// words returns an error's text, with the place of the fault if it is in a JSON body.
func words(err error) string {
	if p, ok := err.(*api.Problem); ok && p.Pointer != "" {
		return fmt.Sprintf("%s (at %s)", p.Detail, p.Pointer)
	}
	return err.Error()
}

// sorted holds a command's headers: those that this package reads, and the rest.
type sorted struct {
	delay, at, channel, id *string
	attempt                *string // not nil: this is a delivery of Postdate's that came back
	trace                  traceContext
	rest                   []postdate.Header
}

func sort(c *Command) (s sorted, err error) {
	own := map[string]**string{
		HeaderDelay: &s.delay, HeaderExecutionTime: &s.at, HeaderChannel: &s.channel, HeaderScheduleID: &s.id,
		headerAttempt: &s.attempt,
	}
	property := map[string]bool{}
	for _, p := range c.Properties {
		property[p.Name] = true
	}
	for i := range c.Headers {
		h := &c.Headers[i]
		name := strings.ToLower(h.Name)
		to, ours := own[name]
		switch {
		case ours && *to != nil:
			return s, invalid("header %s stands twice: leave one", name)
		case ours:
			*to = &h.Value
		case s.trace.take(name, h.Value):
		// a property of AMQP alone
		case name == headerDuplicate, name == HeaderSource, IsRejection(name), property[h.Name], name == amqp.MessageID:
		default:
			s.rest = append(s.rest, *h)
		}
	}
	s.rest = append(s.rest, c.Properties...)
	if s.attempt != nil {
		return s, s.returned()
	}
	if s.delay != nil && s.at != nil {
		return s, invalid("the headers x-delay and postdate-execution-time exclude each other: give one of them")
	}
	return s, nil
}

// returned handles a delivery that its consumer sent back, as many do to retry later.
// Its headers describe the old delivery; only x-delay is new.
func (s *sorted) returned() error {
	s.at, s.channel = nil, nil
	if s.delay == nil {
		return nil // the body may be JSON
	}
	if ms, err := parseDelay(*s.delay); err == nil && ms <= 0 {
		return invalid("this is a delivery of Postdate's own with no new delay: " +
			"if nobody sent it back, its channel leads into the queue from which schedules are taken")
	}
	return nil
}

// name is a message's id and where it comes from.
type name struct {
	id       string
	identity Identity
}

// name chooses the id for a message whose body gives none.
func (s *sorted) name(c *Command, fresh string) (name, error) {
	switch {
	case s.attempt != nil && c.Position != "":
		return name{c.Position, Placed}, nil
	case s.attempt != nil && s.id != nil:
		// The delivery's own id is taken by the message that was delivered. A hash of
		// both names differs each time the message goes round.
		return name{hashed("r", c.MessageID, *s.id), Borrowed}, nil
	case s.id != nil:
		return name{*s.id, Given}, postdate.CheckScheduleID(*s.id)
	case c.MessageID != "" && postdate.CheckScheduleID(c.MessageID) == nil:
		return name{c.MessageID, Borrowed}, nil
	case c.MessageID != "":
		return name{hashed("m", c.MessageID), Borrowed}, nil
	case c.Position != "":
		return name{c.Position, Placed}, nil
	}
	return name{fresh, Fresh}, nil
}

// hashed makes a valid id from names that cannot serve as one.
func hashed(prefix string, names ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(names, "\x00")))
	return fmt.Sprintf("%s-%x", prefix, sum[:16])
}

// cancel reads a record without a value. Its key is the id to cancel.
func (s *sorted) cancel(in *api.Intake, c *Command) Decision {
	if s.delay != nil || s.at != nil {
		return refuse(invalid("a record without a value cancels, and one that says when schedules: it cannot do both"))
	}
	if err := postdate.CheckMessageID(c.Key); err != nil {
		return refuse(invalid("a record without a value cancels the schedule whose id is its key, "+
			"and this key is none: %w", err))
	}
	return Decision{Action: Cancel, Identity: Given, Message: postdate.Message{Key: in.Key(c.Key)}}
}

// parcel reads a message whose body is the payload.
func (s *sorted) parcel(in *api.Intake, c *Command, offer api.Offer) (d Decision, err error) {
	if offer.Channel == "" {
		return d, invalid("it does not say where to: give it a header postdate-channel, " +
			"or name a channel after = in --ingest; one with {key} in it serves only records with a key")
	}
	p := api.Parcel{Offer: offer, Payload: c.Body, ContentType: c.ContentType, Headers: s.rest, PartitionKey: c.Key}
	if s.delay != nil {
		ms, err := parseDelay(*s.delay)
		if err != nil {
			return d, err
		}
		p.ExecutionTime, p.When = offer.Now+postdate.Time(max(ms, 0)), fmt.Sprintf("x-delay %d", ms)
		// As the plugin does, the delay is delivered negated: the consumer sees that there
		// was one, and the message is not delayed again if it is forwarded.
		p.Headers = append(p.Headers, postdate.Header{Name: HeaderDelay, Value: strconv.FormatInt(-ms, 10)})
	} else {
		if p.ExecutionTime, err = postdate.ParseTime(*s.at); err != nil {
			return d, invalid("header %s: %w", HeaderExecutionTime, err)
		}
		p.When = p.ExecutionTime.String()
	}
	d.Action = Schedule
	d.Message, err = in.FromParcel(&p)
	return d, err
}

// parseDelay reads milliseconds. Like the plugin, it also takes a number with a
// fraction, and drops the fraction.
func parseDelay(text string) (int64, error) {
	text = strings.TrimSpace(text)
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(f) {
			return 0, invalid("x-delay %.40q is no number: give milliseconds", text)
		}
		ms = int64(min(max(f, -1e15), 1e15))
	}
	if ms > postdate.DelayMax.Milliseconds() {
		return 0, invalid("x-delay %d is too long: at most %d milliseconds are allowed",
			ms, postdate.DelayMax.Milliseconds())
	}
	return max(ms, -postdate.DelayMax.Milliseconds()), nil
}

// fromJSON reads a command in the API's JSON.
func fromJSON(in *api.Intake, c *Command, offer api.Offer, n *name) (d Decision, err error) {
	given := n.identity == Given
	m, r, err := in.FromJSON(c.Body, offer)
	if r.Named {
		if given && err == nil && m.ScheduleID != n.id {
			return d, invalid("the header postdate-schedule-id is %q and the body's scheduleId another: leave one out",
				n.id)
		}
		n.identity = Given
	}
	d = Decision{Action: Schedule, Message: m, Expired: r.Expired}
	if c.Records && n.identity == Given {
		d.Action = Upsert
	}
	return d, err
}

// withSource adds a header that says where a message came from. The digest does not
// cover it: the same content from another place is the same message.
func withSource(headers []postdate.Header, p Place) []postdate.Header {
	headers = append(headers, postdate.Header{Name: HeaderSource,
		Value: fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset)})
	postdate.SortHeaders(headers)
	return headers
}

// isFrom says whether a message came from p.
func isFrom(m *postdate.Message, p Place) bool {
	return slices.ContainsFunc(withSource(nil, p),
		func(h postdate.Header) bool { return slices.Contains(m.Headers, h) })
}

// supersedes says whether a stored message came from p or from a later place in the same
// partition. If so, the command at p is obsolete.
func supersedes(m *postdate.Message, p Place) bool {
	for _, h := range m.Headers {
		if h.Name != HeaderSource {
			continue
		}
		offset, ok := strings.CutPrefix(h.Value, fmt.Sprintf("%s/%d/", p.Topic, p.Partition))
		n, err := strconv.ParseInt(offset, 10, 64)
		return ok && err == nil && n >= p.Offset
	}
	return false
}
