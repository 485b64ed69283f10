package postdate

import (
	"strings"
	"time"
)

// All limits on one screen, except that of payloads, which the operator sets
// ([PayloadBytesMax]). Sizes are in bytes. Each limit is the largest accepted value.
const (
	ScheduleIDBytesMax  = 128
	TenantBytesMax      = 64
	ChannelBytesMax     = 2048
	ContentTypeBytesMax = 256
	KeyBytesMax         = 1024
	PayloadLevelsMax    = 64 // of arrays and objects in a payload of JSON
	HeadersMax          = 64
	HeaderNameBytesMax  = 128
	HeaderValueBytesMax = 4096
	LastErrorBytesMax   = 512
	TracestateBytesMax  = 512
	InboxNameBytesMax   = 128
	LabelsMax           = 8
	LabelBytesMax       = 128

	BatchItemsMax  = 10_000
	BatchBytesMax  = 64 << 20 // of one batch request's body
	CancelItemsMax = 10_000
	ListLimitMax   = 1_000
	UpcomingMax    = 500 // slots of what is upcoming
	InboxLimitMax  = 1_000
	JobsMax        = 16 // of one tenant that have not ended
	InboxWaitMax   = 30 * time.Second

	FailureGroupsMax = 200 // groups of what failed, in one answer

	ConsumerOpenMax = 1_000       // messages that a consumer of an inbox received and did not acknowledge
	VisibilityMin   = time.Second // the least
	VisibilityMax   = 12 * time.Hour

	DelayMax        = 100 * 366 * 24 * time.Hour // a hundred years
	RetryAttemptMax = 1_000
	RetryBackoffMax = 7 * 24 * time.Hour
	RetryParkedMax  = 10 * 366 * 24 * time.Hour // ten years

	EveryMin         = 100 * time.Millisecond // the least, of a recurrence
	CronBytesMax     = 512
	TimezoneBytesMax = 64
	JitterMax        = 24 * time.Hour
	MaxRunsMax       = 1_000_000_000
	FireAllMax       = 1_000 // late occurrences of a recurrence that begin all the same
	PreviewMax       = 1_000 // occurrences in one answer

	BucketsMax = 16_384

	APIKeysMax            = 10_000
	ChannelSettingsMax    = 10_000 // channels of one tenant for which something is set
	APIKeyPatternsMax     = 32     // of channels, in one API key
	APIKeyPatternBytesMax = 256
	AdminKeyBytesMin      = 32 // the least
	AdminKeyBytesMax      = 256
)

// EarliestTime and LatestTime bound every time that a client may give. The
// latest is the last with a four-digit year, as RFC 3339 requires.
const (
	EarliestTime Time = 1                   // just after 1970-01-01T00:00:00Z
	LatestTime   Time = 253_402_300_799_999 // 9999-12-31T23:59:59.999Z
)

// Cut returns the beginning of s, up to so many bytes, without what is no UTF-8: the cut may split a character.
func Cut(s string, bytesMax int) string {
	return strings.ToValidUTF8(s[:min(len(s), bytesMax)], "")
}
