// Package store is the contract of the message store. Its specification is the conformance
// suite in store/storetest, which every implementation passes: store/pebble for one machine,
// store/mongo for a cluster.
//
// # Promises
//
//   - What a call answered without an error is durable, and so is what its answer rests on: "it
//     is already there" is as durable as an insert.
//   - Every method is safe for concurrent use.
//   - Every write but AppendInbox is idempotent in its arguments: it may be repeated after an
//     unknown outcome. (If the first one went through, a repeated Replace or Trigger answers
//     KindConflict, and a repeated Forget KindNotFound, or KindConflict if the id was reused.)
//   - A call given up with an unknown outcome may still take effect later, but no Settle does
//     so after a repetition of it was answered.
//   - Errors are [postdate.Error]s. KindUnavailable and KindFull mean surely not done;
//     KindUnknown means that only repeating the call tells.
//   - Every call names its buckets. Only List, Upcoming and Pending, which are for people, scatter and
//     gather.
//   - The cost of an operation depends on what it touches, not on what is stored.
//
// # Claim against cancel
//
// Each bucket's partition record says up to where its messages are claimed. Claim moves that
// position and then reads what is due up to it; Cancel and Replace succeed only if no claim
// covers the message. An implementation makes the two exclude each other: once Cancel has
// answered nil, no read of a claim returns the message.
package store

import (
	"context"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
)

// Store is everything that a node needs. Each user declares the part that it uses.
type Store interface {
	Messages
	Due
	Partitions
	Inbox
	Channels
	Keys
	Tenants
	Requests
	Consumers
	Jobs
	Housekeeping
}

// Messages is what clients do with messages.
type Messages interface {
	// Insert makes each message durable as PENDING, at a version that no earlier message with
	// the id had: the store draws it, and each Replace adds one. Results come in the order of
	// the messages. Each message stands or falls alone, even two with the same id in one call.
	// The same id again changes nothing: if the message that is there repeats the digest
	// ([postdate.Message.Repeats]), the result is when it was scheduled for and its status; otherwise
	// KindExists.
	Insert(ctx context.Context, messages []postdate.Message) []Inserted

	// Get returns a message with its state, or KindNotFound.
	Get(ctx context.Context, key postdate.Key) (postdate.Record, error)

	// Replace puts next in place of the PENDING message with the same key, if that is the
	// [postdate.Record.Same] as was and [bucket.Partition.Withdrawable] holds. The version of next is one
	// more than that of was. The log stays as the store has it, whatever next and was say ([ReplacedLog]).
	// Otherwise the error is KindNotFound, KindConflict (another state is there) or KindTooLate (with the
	// present record).
	Replace(ctx context.Context, next, was postdate.Record) (present postdate.Record, err error)

	// Pause sets Paused of a PENDING series that is not Ending, if it is still at ifVersion, whether a claim
	// covers it or not. Claims that begin afterwards return it paused. The version stays. A paused series
	// stays so, without an error. Otherwise the error is KindNotFound, KindConflict or KindTooLate.
	Pause(ctx context.Context, series postdate.Key, ifVersion uint64) error

	// Trigger makes an extra occurrence of a PENDING series that is not Ending a message of its own, due at
	// its time, if the series is still at ifVersion, whether a claim covers it or not. In the same step it
	// notes that in the series ([postdate.Series.Triggered]), and changes nothing else of it. Otherwise the
	// error is KindNotFound, KindConflict (also if there is such a message already) or KindTooLate.
	Trigger(ctx context.Context, series postdate.Key, ifVersion uint64, occurrence postdate.Time) error

	// Cancel makes each PENDING message CANCELLED, if [bucket.Partition.Withdrawable] holds. A
	// cancelled message stays so, without an error. Otherwise the error is KindNotFound or
	// KindTooLate. at is the time to record. Cancel goes by the id: repeated after the message
	// expired and its id was reused, it cancels the new message.
	//
	// A PENDING series that is too late for that gets Ending: whatever settles its present occurrence
	// makes it CANCELLED. If that occurrence may have been published, it is not withdrawn
	// ([postdate.State.Withdrawn]), and the error stays KindTooLate. Occurrences that are messages of
	// their own are not cancelled with it.
	Cancel(ctx context.Context, keys []postdate.Key, at postdate.Time) []Cancelled

	// CancelVersions is Cancel of messages that are still at their versions. For another version the error is
	// KindConflict, and nothing changes. A series keeps its version as it goes on.
	CancelVersions(ctx context.Context, some []Versioned, at postdate.Time) []Cancelled

	// Retried returns the keys of a series' occurrences that are PENDING as messages of their own, in
	// any order.
	Retried(ctx context.Context, series postdate.Key) ([]postdate.Key, error)

	// Forget deletes a message that is in a final state, if it is still at ifVersion, as Expire does once its
	// retention is over: its id is free then. A series' occurrences that are messages of their own stay.
	// Otherwise the error is KindNotFound or KindConflict (it is PENDING, or at another version).
	Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error

	// Redrive makes messages that are DELIVERY_FAILED due again at a time ([postdate.State.Redrive]), or at their
	// NotBefore if that is later, each if it is still at its version. Each stands or falls alone. One that was
	// redriven before, as its version tells, or as it is PENDING and no version was given, stays as it is,
	// without an error. Otherwise the error is KindNotFound, KindConflict (it has not failed, or another state is
	// there) or KindTooLate (it has expired). A series counts an occurrence of its own that failed only once.
	Redrive(ctx context.Context, some []Versioned, at postdate.Time) []Redriven

	// Purge deletes messages that are DELIVERY_FAILED, each if it is still at its version, as Forget does. Each
	// stands or falls alone: with KindNotFound, or KindConflict.
	Purge(ctx context.Context, some []Versioned) []error

	// List returns messages in ascending order of execution time, then bucket, tenant and id,
	// starting after q.After. A page may hold fewer than q.Limit even if more follow: only a
	// nil Next means the end.
	List(ctx context.Context, q ListQuery) (ListPage, error)

	// Upcoming says how many of a tenant's PENDING messages have their next attempt when, in slots of time. What
	// is parked, and series that are paused, have no such time and do not count. Its cost is bounded, whatever is
	// stored: beyond that the slots are estimates, and not Exact.
	Upcoming(ctx context.Context, q UpcomingQuery) ([]UpcomingSlot, error)

	// Pending says how many of a tenant's messages are PENDING, by channel, whatever they wait for, and how many of
	// these are due at a time. Its cost is bounded as that of Upcoming is.
	Pending(ctx context.Context, tenant string, at postdate.Time) (Pending, error)
}

// Inserted is the result of one insert.
type Inserted struct {
	Created       bool // false: it was already there, with equal content
	ExecutionTime postdate.Time
	Status        postdate.Status
	Err           error
}

// Cancelled is the result of one cancel. State is the present one, also with KindTooLate.
type Cancelled struct {
	State   postdate.State
	Changed bool // it was not cancelled before this call
	Err     error
}

// ListQuery selects messages of one tenant. Zero fields filter nothing.
type ListQuery struct {
	Tenant   string
	Status   postdate.Status
	Channel  postdate.Channel
	IDPrefix string        // messages whose id begins so
	Label    string        // messages with this label; then the cost depends on how many have it
	From     postdate.Time // execution time at least this
	To       postdate.Time // execution time below this
	After    *ListPosition // continue after this message
	Limit    int           // at least 1; messages that reach PageBytesMax end a page before

	// Recurring: with OnlyRecurring the cost depends on how many messages recur. With a Status of DELIVERY_FAILED it
	// likewise depends on how many have failed; with PENDING, in the embedded store, on how many are pending, of all
	// tenants.
	Recurring Recurring

	// StatesOnly: records need hold no more of their messages than keys, execution times and channels. Such a page
	// costs less.
	StatesOnly bool
}

// Recurring selects messages by whether they recur.
type Recurring uint8

// What Recurring selects, where it is not zero.
const (
	OnlyRecurring Recurring = iota + 1 // series, also those that have ended
	NotRecurring                       // all others
)

// Selects says whether a message is selected that recurs, or does not.
func (r Recurring) Selects(recurs bool) bool { return r == 0 || recurs == (r == OnlyRecurring) }

// ListPosition is a message's place in the order of List. An empty ScheduleID is the place before all messages with
// this time in this bucket.
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
	// Claim finds where each scan ends and claims only up to there: the end of the scan
	// replaces Claim.To. It writes the claim ([bucket.Partition.Claim]) durably, and then reads
	// what the scan selects, up to that end. What comes in meanwhile may be claimed and left
	// for the next scan. One call serves many buckets, with one result per claim, in order.
	Claim(ctx context.Context, claims []Claim) []ClaimResult

	// Settle writes the outcomes of attempts durably. After an error any of them may or may not
	// be written, and the call must be repeated. A settlement changes nothing if its message is
	// no longer PENDING or is at another version, so it never touches a message that got the id
	// later. Unless it is a SettleDelivered, it also changes nothing if its token is not that
	// of the bucket's present owner; a delivery is a fact, whoever made it.
	//
	// Of a series, it also changes nothing if its Occurrence is not the present one. If it Advances,
	// then in one atomic step the state becomes [Settlement.State], what became of the occurrence is
	// noted ([Settlement.Series]), and one that is to be retried becomes a message of its own
	// ([Settlement.Alone]), unless that is there already. If such a message fails for good, its series
	// counts that in the same step, if it owns the message's version ([postdate.State.Owns]) and the message was
	// not Redriven.
	//
	// What fails for good leaves a message for its failure channel in the same step ([Settlement.Failed]), unless
	// that is there already. A store that has no room for it, or cannot read what failed, says so in the reason
	// instead.
	Settle(ctx context.Context, settlements []Settlement) error

	// Unpark makes up to u.Limit of the bucket's messages that are parked on a route due at
	// u.At, or at their NotBefore if that is later. It takes them in order of position,
	// and returns how many it found: fewer than u.Limit only if no more are parked. early is how
	// many of these have a NotBefore after u.At. The rest of their state stays. The token
	// must be that of the present owner; otherwise the error is KindFenced.
	Unpark(ctx context.Context, u Unpark) (found, early int, err error)

	// Parked lists the routes on which messages of these buckets are parked. With an error it
	// returns what it found before.
	Parked(ctx context.Context, buckets []int) ([]ParkedRoute, error)
}

// Claim is one bucket's claim and the scan that it is made for.
type Claim struct {
	Bucket int
	bucket.Claim
	Scan Scan

	// IfDue: the claim changes nothing in the record but how far it goes. If nothing is due,
	// nothing is written, and nobody checks who owns the bucket.
	IfDue bool
}

// Scan selects PENDING messages, parked or not, in order of position: those after After and up
// to Claim.To that the claim covers. It ends with the message that reaches Limit or BytesMax,
// or after it skipped many; it always makes progress.
type Scan struct {
	After    bucket.Position // the zero Position: from the first message
	Limit    int             // messages
	BytesMax int             // of payloads and headers
}

// ClaimResult is what a claim found.
type ClaimResult struct {
	Err error // KindFenced: the bucket is lost; KindUnknown: the claim may have been written
	Due []postdate.Record
	To  bucket.Position // what was written in place of Claim.To: that or less; zero if nothing was
	// Ended is the After for the next scan: no further than To if something was written, and
	// the claim's own To if the scan is Complete.
	Ended bucket.Position
	// Complete: everything up to the claim's own To was seen, and no message beyond it is due
	// before Next. That is the attempt time of the first such message, or postdate.Far if there
	// is none; it may be earlier if the store looked at many buckets together.
	Complete bool
	Next     postdate.Time
	// LeftOut is the position of the first covered message that was left out of Due because
	// somebody was changing it and could be neither stopped nor waited for. It is zero if none
	// was left out. A later scan finds the message if it is still PENDING then.
	LeftOut bucket.Position
}

// Unpark asks for parked messages to become due.
type Unpark struct {
	Bucket int
	Token  uint64
	Route  postdate.Route
	At     postdate.Time // their next attempt time
	Limit  int
}

// ParkedRoute says that a bucket has messages parked on a route.
type ParkedRoute struct {
	Bucket int
	Route  postdate.Route
}

// Partitions is what bucket locks need.
type Partitions interface {
	// Look reads the partition records of these buckets and no others, in any order, and every
	// lease. Each node calls it again and again, mostly with no bucket.
	Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error)

	// Acquire takes buckets by [bucket.Partition.Acquire]. Each result is the record
	// afterwards; OK is false if another contender was quicker.
	Acquire(ctx context.Context, wants []Acquisition) ([]Acquired, error)

	// Release gives buckets back by [bucket.Partition.Release]. It skips those that are no
	// longer held under the given token.
	Release(ctx context.Context, holds []Hold) error

	// Renew writes a lease, on which all of a node's buckets depend. Its duration may read back
	// up to a millisecond longer, never shorter. Renew returns the store's own clock at the
	// write, or 0 if the store has none but the node's.
	Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error)
}

// Acquisition asks for one bucket, as the contender saw it.
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

// Hold is a bucket held under a token.
type Hold struct {
	Bucket int
	Token  uint64
}

// Channels keeps what operators set for tenants' channels, for all nodes.
type Channels interface {
	// Channels lists the routes that have settings.
	Channels(ctx context.Context) ([]ChannelSettings, error)

	// SetChannel replaces the settings of one route. All-zero settings are as if nothing had
	// ever been set.
	SetChannel(ctx context.Context, settings ChannelSettings) error
}

// ChannelSettings are what an operator set for a tenant's messages to a channel.
type ChannelSettings struct {
	Route        postdate.Route
	Paused       bool    // nothing is published to it
	MaxPerSecond float64 // messages, per node; 0: no limit
	MaxInFlight  int     // messages at the broker, per node; 0: no limit of its own
	// FailureChannel gets those that cannot be delivered and have none of their own; "": nothing does.
	FailureChannel postdate.Channel
}

// None says whether nothing is set.
func (s ChannelSettings) None() bool { return s == ChannelSettings{Route: s.Route} }

// Keys keeps API keys, for all nodes.
type Keys interface {
	// CreateKey makes a key durable. The same key again changes nothing; another one with its
	// id is KindExists. Beyond [postdate.APIKeysMax] keys the error is KindTooLarge.
	CreateKey(ctx context.Context, key APIKey) error

	// Keys lists all keys, in any order.
	Keys(ctx context.Context) ([]APIKey, error)

	// KeysVersion is another number after each CreateKey and RevokeKey that changed something,
	// whoever called it; uses do not count. It costs much less than Keys. It compares only with
	// what this open store said before.
	KeysVersion(ctx context.Context) (uint64, error)

	// RevokeKey deletes a key. If there is none with that id, the error is KindNotFound.
	RevokeKey(ctx context.Context, id string) error

	// UseKeys notes when keys were last used. An earlier time than the one that is noted
	// changes nothing, nor does the use of a key that is not there.
	UseKeys(ctx context.Context, uses []KeyUse) error
}

// APIKey is a key as the store keeps it: without its secret.
type APIKey struct {
	ID         string
	Tenant     string
	Scopes     []string
	Channels   []string // patterns of the channels that it may use; none: all
	CreatedAt  postdate.Time
	ExpiresAt  postdate.Time // 0: never
	LastUsedAt postdate.Time // 0: not yet; up to some seconds behind

	// SecretHash is the SHA-256 of the secret. A slow hash would gain nothing: the secret has
	// 256 random bits, so nobody can try them all.
	SecretHash [32]byte
}

// KeyUse says when a key was used.
type KeyUse struct {
	ID string
	At postdate.Time
}

// Tenants keeps what operators set for tenants, for all nodes, and counts what they have
// pending.
type Tenants interface {
	// Tenants lists the tenants that have settings, in any order.
	Tenants(ctx context.Context) ([]TenantSettings, error)

	// SetTenant replaces the settings of one tenant. With no field set it is as if nothing had
	// ever been set.
	SetTenant(ctx context.Context, settings TenantSettings) error

	// Usages lists the tenants that have something pending, in any order.
	Usages(ctx context.Context) ([]TenantUsage, error)

	// UsageOf is what a tenant has pending, and whether the channel is among its channels. It
	// reads memory only. What this node's calls changed is in it once they are answered, so a
	// node that is alone is told exactly. In a cluster it lacks what other nodes changed in the
	// last two seconds. A change whose outcome is unknown, or that a node which died had not
	// shared, is missing until the store counts anew, which is at most some minutes.
	//
	// Channels may be counted by hashes: then two of a tenant's channels can count as one.
	UsageOf(tenant string, channel postdate.Channel) (usage Usage, uses bool)
}

// TenantSettings are what an operator set for a tenant. A nil field is the default.
type TenantSettings struct {
	Tenant                               string
	RequestsPerSecond, MessagesPerSecond *float64 // 0: no limit
	PendingMax, BytesMax, ChannelsMax    *int64   // messages, payload bytes, channels; 0: no limit
	Weight                               *int     // its share of what nodes can do, in relation to others
}

// None says whether nothing is set.
func (s TenantSettings) None() bool { return s == TenantSettings{Tenant: s.Tenant} }

// Usage is what is pending: messages, the bytes of their payloads, and their channels.
type Usage struct{ Messages, Bytes, Channels int64 }

// TenantUsage is what a tenant has pending.
type TenantUsage struct {
	Tenant string
	Usage
}

// Requests keeps which request of a client each of its idempotency keys stands for, for all nodes.
type Requests interface {
	// NoteRequest notes that a key stands for a request from now on, and when that was, unless the key stands for
	// one already. It returns the one that the key stands for. Key.ScheduleID is the client's key; a message with
	// that id is something else.
	NoteRequest(ctx context.Context, key postdate.Key, request postdate.Digest,
		now postdate.Time) (postdate.Digest, error)
}

// Housekeeping is the rest.
type Housekeeping interface {
	// Name is given to the store at its birth. Nodes that share the store know each other by
	// it, and what they leave elsewhere, as in Kafka or at a webhook, carries it.
	Name() string

	// Buckets is N, fixed at the store's birth.
	Buckets() int

	// Exclusive says that no other process can have this store open: a lock's owner that is not
	// this process is certainly gone.
	Exclusive() bool

	// Expire deletes what e selects and returns how many messages and requests that was. The id of an
	// expired message is free again; its next message has other versions. If much lies in other
	// buckets, a call may delete less than there is.
	//
	// The buckets divide the work, so that nodes do not get in each other's way. They protect
	// nothing: whoever calls, only what ended before e's times is deleted. A caller that has
	// lost a bucket does no harm.
	Expire(ctx context.Context, e Expiry) (int, error)

	// Close flushes and closes. No other call may run during or after it.
	Close() error
}

// Expiry selects what to delete. An inbox belongs to the bucket that [bucket.Of] gives for its
// tenant and name.
type Expiry struct {
	Buckets       []int
	SettledBefore postdate.Time // messages that became final, requests that were noted, and jobs that ended, before
	// DeliveredBefore: messages in inboxes, read or not, that were delivered before; and consumers that were last
	// used before, but only once these messages are gone, or a consumer could receive them anew.
	DeliveredBefore postdate.Time
	Limit           int // messages, as many again in inboxes, and as many requests, consumers and jobs
}
