// Package postdate is the vocabulary of Postdate, a delayed-message queue. A client says
// what to send, when, and to which channel; at that time the message is in RabbitMQ, in
// Kafka, at a webhook or in an inbox. A node runs alone on an embedded store, or in a
// cluster of nodes that share MongoDB.
//
// Every other package imports this one. It imports only the standard library, starts no
// goroutine and does no I/O.
//
// # Terms
//
// A [Message] is what a client schedules: a payload, headers, an execution time and a
// [Channel]. Its schedule id is unique within a tenant and makes the request safe to
// repeat. The client chooses it, or the node makes one.
//
// The hash of tenant and schedule id puts each message into one of N buckets (package
// bucket). One node at a time owns a bucket, under a token that grows by one with every
// change of owner. The token fences former owners: the store refuses their claims.
//
// # The path of a message
//
// Package api takes the message, package store makes it durable, and only then is it
// acknowledged. The owner of its bucket (package fence) repeats a cycle (package poller):
//
//	claim    one conditional write on the bucket's partition record says "I may publish
//	         up to this message". It is checkpoint, intent and fence in one
//	read     the messages that are PENDING and due up to the claim
//	publish  each at its time, never before, many in flight (package publisher)
//	settle   DELIVERED, or a later attempt, or DELIVERY_FAILED
//
// # The states of a message
//
//	          schedule
//	             |
//	             v      reschedule, retry
//	         PENDING ----------------------+
//	          |  |  ^----------------------+
//	confirmed |  |  | cancel, before it is claimed
//	          |  |  +------------------> CANCELLED
//	          |  | attempts spent, parked too long, or expired
//	          |  +---------------------> DELIVERY_FAILED
//	          +------------------------> DELIVERED
//
// [Status.CanBecome] is that table. The three final states never change. A message in one
// of them leaves the store after its retention.
//
// # Time
//
// A [Time] is a wall-clock time in whole milliseconds. Code that decides when to act gets a
// [Now], a reading of both clocks: the wall clock for "is it due", the monotonic clock for
// leases, deadlines and back-offs. It never reads a clock itself, so a simulator can run it.
//
// # Three outcomes
//
// A write to a store or a broker has three outcomes: done, certainly not done, and unknown.
// Unknown is never treated as failed. An [Error] of KindUnknown says that the write may have
// taken effect. A message that may have been published carries PossibleDuplicate from then on.
package postdate
