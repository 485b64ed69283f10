package store

import (
	"context"
	"time"

	"github.com/postdate/postdate"
)

// Inbox keeps messages that were delivered to inbox channels.
type Inbox interface {
	// AppendInbox makes the messages durable and visible to readers, in the order given: for
	// each inbox all of them or none.
	AppendInbox(ctx context.Context, messages []InboxMessage) error

	// ReadInbox returns up to limit messages after a cursor ("": from the first that is kept),
	// in the order in which they were appended, and the cursor after the last one returned; fewer
	// where they reach [PageBytesMax]. A reader that goes on from cursor to cursor sees
	// every message. An invalid cursor is KindInvalid.
	ReadInbox(ctx context.Context, tenant, name, after string, limit int) (messages []InboxMessage, next string,
		err error)

	// ReadPlaces returns the messages at these places of an inbox, in any order, without those that expired. It
	// looks at the first place at least, and at the others in any order until what it found reaches
	// [PageBytesMax]. Where it did not look is left.
	ReadPlaces(ctx context.Context, tenant, name string, places []InboxPlace) (messages []InboxMessage,
		left []InboxPlace, err error)
}

// Deliverer is a Store that has inboxes and messages in one place, so that a message gets into its inbox in the
// same step in which it becomes DELIVERED.
type Deliverer interface {
	// Deliver appends messages to their inboxes, in the order given, and writes their settlements: both durably
	// and in one atomic step for each, if the settlement changes something ([Due.Settle]); else neither. The
	// errors are one per delivery; after one the call may be repeated, and appends nothing twice.
	Deliver(ctx context.Context, deliveries []InboxDelivery) []error
}

// InboxDelivery is a message for an inbox, and the SettleDelivered of the message that is delivered with it.
type InboxDelivery struct {
	Message    InboxMessage
	Settlement Settlement
}

// InboxPlace is where a message lies in its inbox, for as long as it is kept. Those that were appended later have
// higher numbers.
type InboxPlace struct{ Segment, Number int64 }

// InboxRead asks for what lies in an inbox after a cursor, for a reader that can wait.
type InboxRead struct {
	Tenant string
	Inbox  string
	After  string        // a cursor; "": from the first that is kept
	Limit  int           // messages
	Wait   time.Duration // for the first message, if there is none yet
}

// InboxMessage is a message as it lies in an inbox.
type InboxMessage struct {
	Tenant            string
	Inbox             string
	ScheduleID        string
	ExecutionTime     postdate.Time
	DeliveredAt       postdate.Time
	Attempt           int
	PossibleDuplicate bool
	ContentType       string
	Encoding          postdate.Encoding
	Payload           []byte
	Headers           []postdate.Header
	Place             InboxPlace // only of messages that were read
}

// Bytes is what counts of the message where memory is bounded: its payload and its headers.
func (m *InboxMessage) Bytes() int { return len(m.Payload) + postdate.HeadersBytes(m.Headers) }
