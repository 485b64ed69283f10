package postdate

import "time"

// All defaults that an operator can change, on one screen, in the order of the flags of
// postdate serve. Any other flag is empty by default. Sizes are in bytes.
const (
	HTTPDefault           = "127.0.0.1:8080"        // --http: reachable from this machine only
	StoreDefault          = "pebble:./data"         // --store: embedded, in the folder where the node is started
	StoreCacheShare       = 20                      // --store-cache: the memory divided by this,
	StoreCacheDefaultMin  = 64 << 20                // but at least this
	StoreCacheDefaultMax  = 512 << 20               // and at most this
	BucketsDefault        = 64                      // --buckets
	GossipDefault         = "127.0.0.1:7946"        // --gossip
	LeaseDefault          = 2500 * time.Millisecond // --lease: how long a silent node keeps its buckets
	ClockSkewMaxDefault   = time.Second             // --clock-skew-max: between a node's clock and the store's
	RetentionDefault      = 24 * time.Hour          // --retention: of finished messages
	InboxRetentionDefault = 24 * time.Hour          // --inbox-retention: of messages in inboxes
	PayloadBytesMax       = 256 << 10               // --payload-max
)

// RetryDefault is the policy of a message that has none (--retry-max-attempts and the flags
// after it): five attempts within about 15 s if the broker refuses the message. A channel
// that is down costs no attempt: its messages wait until it is up again, for up to a day.
var RetryDefault = RetryPolicy{MaxAttempts: 5, MinBackoff: time.Second, MaxBackoff: time.Minute,
	MaxParked: 24 * time.Hour}
