package postdate

import "time"

// Every limit on one screen. Sizes are in bytes, and each is the largest that
// is accepted.
const (
	ScheduleIDBytesMax  = 128
	TenantBytesMax      = 64
	ChannelBytesMax     = 2048
	ContentTypeBytesMax = 256
	KeyBytesMax         = 1024
	HeadersMax          = 64
	HeaderNameBytesMax  = 128
	HeaderValueBytesMax = 4096
	LastErrorBytesMax   = 512
	InboxNameBytesMax   = 128

	PayloadBytesMax = 256 << 10 // by default; the operator may set another
	BatchItemsMax   = 10_000
	BatchBytesMax   = 64 << 20 // of one batch request's body
	CancelItemsMax  = 10_000
	ListLimitMax    = 1_000
	InboxLimitMax   = 1_000
	InboxWaitMax    = 30 * time.Second

	DelayMax        = 100 * 366 * 24 * time.Hour // a hundred years
	RetryAttemptMax = 1_000
	RetryBackoffMax = 7 * 24 * time.Hour
	RetryParkedMax  = 10 * 366 * 24 * time.Hour // ten years

	BucketsDefault = 64
	BucketsMax     = 16_384
)

// EarliestTime and LatestTime bound every time that a client may name. The
// latest leaves room for a four-digit year in RFC 3339.
const (
	EarliestTime Time = 1                   // just after 1970-01-01T00:00:00Z
	LatestTime   Time = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

// RetryDefault is the policy of a message that names none: five attempts over
// about a quarter of a minute, for what a broker refuses. A channel that is down is
// not an attempt: its messages wait until it is back, for up to a day.
var RetryDefault = RetryPolicy{MaxAttempts: 5, MinBackoff: time.Second, MaxBackoff: time.Minute, MaxParked: 24 * time.Hour}
