// Package postdate is the vocabulary of Postdate, a delayed-message queue that is
// sharded into buckets: a client says what to send, when, and to which channel,
// and at that time the message is in RabbitMQ, in Kafka, at a webhook or in an inbox.
// It runs alone on an embedded store, or as a cluster of nodes that share MongoDB.
//
// Every other package imports this one, and this one imports only the standard
// library. It starts no goroutine and does no I/O.
//
// # The words
//
// A [Message] is what a client schedules: a payload, headers, an
// execution time and a [Channel]. Its name is its schedule id, unique within a
// tenant, and the idempotency key: chosen by the client or made by the node.
//
// The hash of tenant and schedule id puts each message into one of N buckets
// (package bucket). A bucket is the unit of ownership: one node at a time holds
// its lock, under a token that grows by one at every change of owner and fences
// everybody who held it before.
//
// # One message's way
//
// The api takes it, package store makes it durable, and only then is it
// acknowledged. The bucket's owner (package fence keeps the lock) runs a cycle
// (package poller) over and over:
//
//	claim    one conditional write on the bucket's partition record says "up to
//	         this message I may publish". It is checkpoint, intent and fence at once
//	read     what is PENDING and due up to the claim
//	publish  at its time, never before, many in flight (package publisher)
//	settle   DELIVERED, or a later attempt, or DELIVERY_FAILED
//
// # Its states
//
//	          schedule
//	             |
//	             v      reschedule, retry
//	         PENDING ----------------------+
//	          |  |  ^----------------------+
//	confirmed |  |  | cancel, before it is claimed
//	          |  |  +------------------> CANCELLED
//	          |  | policy spent, or expired
//	          |  +---------------------> DELIVERY_FAILED
//	          +------------------------> DELIVERED
//
// [Status] holds that table. The three final states never change, and a final
// message leaves the store after its retention.
//
// # Time
//
// A [Time] is a wall-clock time in whole milliseconds. What decides when to act
// gets a [Now], a reading of both clocks: the wall clock for "is it due", the
// monotonic clock for leases, deadlines and back-offs. No package that decides
// reads a clock itself, which lets a simulator run it.
//
// # Three outcomes
//
// A write to a store or a broker has three outcomes: done, surely not done, and
// unknown. Unknown is never taken for failed: an [Error] whose [Kind] is
// KindUnknown says that the effect may be there, and a message with such a past
// carries PossibleDuplicate for the rest of its life.
package postdate
