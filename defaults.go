package postdate

import "time"

// Every default that an operator can change, on one screen, in the order of the flags of
// postdate serve. What is not here is empty by default. Sizes are in bytes.
const (
	HTTPDefault           = "127.0.0.1:8080"        // --http: only this machine reaches it
	StoreDefault          = "pebble:./data"         // --store: embedded, in the folder where the node was started
	StoreCacheShare       = 20                      // --store-cache: one part in so many of the memory,
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

// RetryDefault is the policy of a message that names none (--retry-max-attempts and what
// follows it): five attempts over about a quarter of a minute, for what a broker refuses. A
// channel that is down is not an attempt: its messages wait until it is back, for up to a
// day.
var RetryDefault = RetryPolicy{MaxAttempts: 5, MinBackoff: time.Second, MaxBackoff: time.Minute, MaxParked: 24 * time.Hour}
