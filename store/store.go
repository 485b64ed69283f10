// Package store is the contract of the place where messages live. Its
// specification is the conformance suite in store/storetest, which every
// implementation passes: store/pebble for one machine, store/mongo for a cluster.
//
// # Promises
//
//   - What was answered without an error is durable, and so is what an answer
//     was derived from: an "it is there already" is as durable as an insert.
//   - Every method is safe for concurrent use.
//   - Every write but AppendInbox is idempotent by its own arguments: it may be
//     repeated after an unknown outcome. (A repeated Replace answers KindConflict
//     where the first one went through.)
//   - What was given up with an unknown outcome may still take effect later, but no
//     Settle does so after a repetition of it was answered.
//   - Errors are [postdate.Error]s. KindUnavailable and KindFull mean surely not
//     done, KindUnknown means that only a repetition tells.
//   - Every call names its buckets. There is no scatter-gather but in List,
//     which shows messages to people.
//   - An operation costs what it touches, not what is stored.
//
// # Claim against cancel
//
// Each bucket's partition record says up to where messages are claimed. Claim moves that
// and then reads what is due up to there; Cancel and Replace succeed only where no
// claim covers the message. An implementation makes the two exclude each other: where
// Cancel answered nil, no read of a claim returns the message from then on.
package store

import (
	"context"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// Store is the union of what a node needs. Users declare the part that they use.
type Store interface {
	Messages
	Due
	Partitions
	Inbox
	Channels
	Housekeeping
}

// Messages is what clients do with messages.
type Messages interface {
	// Insert makes each message durable as PENDING, at a version that no earlier
	// message of the id had: the store draws it, and a Replace adds one. Results come
	// in the order of the messages; each stands or falls alone, also two of the same id
	// in one call. The same id again with an equal digest changes nothing and
	// answers what is there; with another digest it is refused as KindExists.
	Insert(ctx context.Context, messages []postdate.Message) []Inserted

	// Get returns a message with its state. KindNotFound where there is none.
	Get(ctx context.Context, key postdate.Key) (postdate.Record, error)

	// Replace puts m in the place of the PENDING message with the same key,
	// provided that it is still at ifVersion and that [bucket.Partition.Withdrawable]
	// holds. The new version starts without attempts. KindNotFound, KindConflict
	// (another version is there) or KindTooLate (with the present record)
	// otherwise.
	Replace(ctx context.Context, m postdate.Message, ifVersion uint64) (postdate.Record, error)

	// Cancel makes each PENDING message CANCELLED, provided that
	// [bucket.Partition.Withdrawable] holds; a cancelled one stays so, without an
	// error. KindNotFound or KindTooLate otherwise. at is the time to note. It goes
	// by the id: repeated after the message expired and its id was given anew, it
	// takes back the new one.
	Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []Cancelled

	// List returns messages in ascending order of execution time, then bucket,
	// tenant and id, beginning after q.After. A page may hold fewer than
	// q.Limit though more follow: only an absent Next means the end.
	List(ctx context.Context, q ListQuery) (ListPage, error)
}

// Inserted is what became of one insert.
type Inserted struct {
	Created       bool // false: it was there already, with equal content
	ExecutionTime postdate.Time
	Status        postdate.Status
	Err           error
}

// Cancelled is what became of one cancel. State is the present one, also with
// KindTooLate.
type Cancelled struct {
	State   postdate.State
	Changed bool // it was not cancelled before this call
	Err     error
}

// ListQuery selects messages of one tenant. Zero fields do not select.
type ListQuery struct {
	Tenant  string
	Status  postdate.Status
	Channel postdate.Channel
	From    postdate.Time // execution time at least this
	To      postdate.Time // execution time below this
	After   *ListPosition // goes on after this message
	Limit   int           // at least 1
}

// ListPosition is a message's place in the order of List.
type ListPosition struct {
	ExecutionTime postdate.Time
	Bucket        int
	ScheduleID    string
}

// ListPage is one page of a list.
type ListPage struct {
	Records []postdate.Record
	Next    *ListPosition // nil: that was all
}

// Due is what a bucket's owner does: the cycle of claim, read and settle.
type Due interface {
	// Claim looks how far each scan goes, and claims no more than that: the end of the
	// scan takes the place of Claim.To. It writes the claim ([bucket.Partition.Claim])
	// durably, and then reads what the scan selects, up to there. What comes in
	// meanwhile may be claimed and left for the next scan. One result per claim, in
	// order; many buckets travel together.
	Claim(ctx context.Context, claims []Claim) []ClaimResult

	// Settle writes what became of attempts, durably. After an error any of them
	// may be written or not, and the call is to be repeated. A settlement whose
	// message is not PENDING any more, or at another version, changes nothing; so it
	// never touches a message that was given the id later.
	// Neither does one other than SettleDelivered whose token is not that of the
	// bucket's present owner; a delivery is a fact, whoever made it.
	Settle(ctx context.Context, settlements []Settlement) error

	// Unpark makes up to u.Limit of the bucket's messages that are parked for a channel due
	// at u.At, or at their execution time if that is later. It takes them in the order of their
	// positions, and says how many it found: fewer than u.Limit only where no more are parked.
	// The rest of their states stays. The token must be that of the present owner: KindFenced
	// otherwise.
	Unpark(ctx context.Context, u Unpark) (int, error)

	// Parked lists the channels for which messages of these buckets are parked. With an error
	// it lists what it found before.
	Parked(ctx context.Context, buckets []int) ([]ParkedChannel, error)
}

// Claim is one bucket's claim and the scan that it is made for.
type Claim struct {
	Bucket int
	bucket.Claim
	Scan Scan

	// IfDue: the claim says nothing that the record does not say, but how far it goes. So
	// where nothing is due, nothing is written, and nobody checks whose the bucket is.
	IfDue bool
}

// Scan selects, in the order of positions, PENDING messages, parked or not: those beyond
// After and up to Claim.To that the claim covers. It ends with the message that reaches
// Limit or BytesMax of payload, or after passing over many; never without progress.
type Scan struct {
	After    bucket.Position // the zero Position: from the very first
	Limit    int             // messages
	BytesMax int             // payload bytes
}

// ClaimResult is what a claim found.
type ClaimResult struct {
	Err error // KindFenced: the bucket is lost; KindUnknown: the claim may have been written
	Due []postdate.Record
	To  bucket.Position // what was written in the place of Claim.To: that, or less; zero where nothing was
	// Ended is the After with which the next scan goes on: no further than To, if something
	// was written, and the claim's own To where the scan is Complete.
	Ended bucket.Position
	// Complete: everything up to the claim's own To was seen, and no message beyond is due
	// before Next. That is the attempt time of the first one, or postdate.Far where there is
	// none; it may be less where the store looked at many buckets together.
	Complete bool
	Next     postdate.Time
	// LeftOut is the place of the first message that is covered and was left out of Due, because
	// somebody was changing it and could be neither stopped nor waited for. It is zero where
	// none was left out. A later scan finds the message, if it is still PENDING then.
	LeftOut bucket.Position
}

// Settling says what became of an attempt.
type Settling uint8

// The ways to settle.
const (
	SettleDelivered Settling = iota + 1 // the broker confirmed it
	SettleRetry                         // try again at AttemptTime
	SettleFailed                        // its policy is spent, or it expired
	SettlePark                          // wait until the channel is back, or until AttemptTime
)

// Settlement is what became of one attempt. It replaces the message's state.
type Settlement struct {
	Key           postdate.Key
	ExecutionTime postdate.Time // of the message that was published
	Version       uint64        // likewise
	Token         uint64
	How           Settling
	At            postdate.Time // the time to note for a final state
	AttemptTime   postdate.Time // for SettleRetry and SettlePark
	DownSince     postdate.Time // for SettlePark
	Attempts      int
	Reason        string // the broker's words, where it refused or is unknown

	// PossibleDuplicate: this or an earlier publish may have arrived.
	PossibleDuplicate bool
}

// Again is when the message is due again, after SettleRetry and SettlePark: never before its
// execution time, even if a clock was set back in between.
func (s *Settlement) Again() postdate.Time { return max(s.AttemptTime, s.ExecutionTime) }

// State is the state that the settlement leaves behind.
func (s *Settlement) State(old postdate.State) postdate.State {
	next := postdate.State{
		Version: old.Version, Attempts: s.Attempts, AttemptTime: old.AttemptTime,
		PossibleDuplicate: s.PossibleDuplicate, LastError: s.Reason,
	}
	switch s.How {
	case SettleDelivered:
		next.Status, next.SettledAt = postdate.Delivered, s.At
	case SettleFailed:
		next.Status, next.SettledAt = postdate.DeliveryFailed, s.At
	case SettleRetry:
		next.Status, next.AttemptTime = postdate.Pending, s.Again()
	case SettlePark:
		next.Status, next.Parked, next.AttemptTime, next.DownSince = postdate.Pending, true, s.Again(), s.DownSince
	}
	return next
}

// Unpark asks for parked messages to become due.
type Unpark struct {
	Bucket  int
	Token   uint64
	Channel postdate.Channel
	At      postdate.Time // their next attempt time
	Limit   int
}

// ParkedChannel says that a bucket has messages parked for a channel.
type ParkedChannel struct {
	Bucket  int
	Channel postdate.Channel
}

// Partitions is what the locks of buckets need.
type Partitions interface {
	// Look reads the partition records of these buckets and no others, in any order, and every
	// lease. Each node looks again and again, and mostly at no bucket.
	Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error)

	// Acquire takes buckets by [bucket.Partition.Acquire]. Each result is the
	// record as it is afterwards; ok is false where somebody was quicker.
	Acquire(ctx context.Context, wants []Acquisition) ([]Acquired, error)

	// Release gives buckets back by [bucket.Partition.Release]; one that is not
	// held under this token any more is passed over.
	Release(ctx context.Context, holds []Hold) error

	// Renew writes a lease. All of a node's buckets hang on it. For how long it lasts
	// may come back up to a millisecond longer, and never shorter. It answers the
	// store's own clock as it was at the write, or 0 where the store has none but
	// the node's.
	Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error)
}

// Acquisition asks for one bucket, as it was seen.
type Acquisition struct {
	Bucket    int
	SeenToken uint64
	Owner     string
	Lease     string
}

// Acquired is the record after an acquisition.
type Acquired struct {
	Partition bucket.Partition
	OK        bool
}

// Hold is a bucket under a token.
type Hold struct {
	Bucket int
	Token  uint64
}

// Inbox keeps messages that were delivered to inbox channels.
type Inbox interface {
	// AppendInbox makes the messages durable and visible to readers, in the
	// order given; of each inbox all of them or none.
	AppendInbox(ctx context.Context, messages []InboxMessage) error

	// ReadInbox returns up to limit messages after a cursor ("": from the first
	// that is kept), in the order in which they were appended, and the cursor
	// behind the last one returned. A reader that goes on from cursor to cursor
	// sees every message. KindInvalid for a cursor that is none.
	ReadInbox(ctx context.Context, tenant, name, after string, limit int) (messages []InboxMessage, next string, err error)
}

// InboxRead asks for what lies in an inbox behind a cursor, as a reader that can
// wait does.
type InboxRead struct {
	Tenant string
	Inbox  string
	After  string        // a cursor; "": from the first that is kept
	Limit  int           // messages
	Wait   time.Duration // for the first one, where there is none yet
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
}

// Channels keeps what operators set of channels, for all nodes.
type Channels interface {
	// Channels lists the channels of which something is set.
	Channels(ctx context.Context) ([]ChannelSettings, error)

	// SetChannel puts the settings of one channel in the place of what was set
	// before. Settings that are all zero are as if nothing had ever been set.
	SetChannel(ctx context.Context, settings ChannelSettings) error
}

// ChannelSettings are what an operator set of a channel.
type ChannelSettings struct {
	Channel      postdate.Channel
	Paused       bool    // nothing is published to it
	MaxPerSecond float64 // messages, per node; 0: no limit
	MaxInFlight  int     // messages at the broker, per node; 0: no limit of its own
}

// None says whether nothing is set.
func (s ChannelSettings) None() bool { return s == ChannelSettings{Channel: s.Channel} }

// Housekeeping is the rest.
type Housekeeping interface {
	// Name is the store's own, given at its birth: nodes that share it know each other by
	// it, and what they leave elsewhere, as at Kafka, carries it.
	Name() string

	// Buckets is N, as it was fixed at the store's birth.
	Buckets() int

	// Exclusive says that no other process can have this store open: an
	// owner of a lock that is not this process is certainly gone.
	Exclusive() bool

	// Expire deletes what e selects, and says how much it was. An id whose message
	// expired is free again; its next message has other versions. Where much lies in
	// other buckets, a call may delete less than there is.
	//
	// The buckets divide the work, so that nodes do not stop each other. They
	// protect nothing: whoever calls, only what ended before e's times goes. A
	// caller that lost a bucket meanwhile does no harm.
	Expire(ctx context.Context, e Expiry) (int, error)

	// Close flushes and closes. Nothing may be called during or after it.
	Close() error
}

// Expiry selects what is to be deleted. An inbox belongs to the bucket that
// [bucket.Of] gives for its tenant and its name.
type Expiry struct {
	Buckets         []int
	SettledBefore   postdate.Time // messages that became final before
	DeliveredBefore postdate.Time // messages in inboxes, read or not, that were delivered before
	Limit           int           // messages, and as many again in inboxes
}
