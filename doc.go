// Package postdate is the vocabulary of Postdate, a delayed-message queue. A client says
// what to send, when, and to which channel; at that time the message is in RabbitMQ, in
// Kafka, at a webhook or in an inbox. A node runs alone on an embedded store, or in a
// cluster of nodes that share MongoDB.
//
// Every other package imports this one. It imports only the standard library, starts no
// goroutine and does no I/O.
//
// # The words
//
// A [Message] is what a client schedules: a payload, headers, an execution time and a
// [Channel]. Its schedule id is unique within a tenant and makes the request safe to
// repeat. The client chooses it, or the node makes one.
//
// The hash of tenant and schedule id puts each message into one of N buckets (package
// bucket). One node at a time owns a bucket, under a token that grows by one with every
// change of owner. The token fences former owners: the store refuses their claims.
//
// # One message's way
//
// Package api takes the message, package store makes it durable, and only then is it
// acknowledged. The owner of its bucket (package fence) repeats a cycle (package poller):
//
//	claim    one conditional write on the bucket's partition record says "up to this
//	         message I may publish". It is checkpoint, intent and fence at once
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
//	          |  | attempts spent, or expired
//	          |  +---------------------> DELIVERY_FAILED
//	          +------------------------> DELIVERED
//
// [Status] holds that table. The three final states never change. A message in one of them
// leaves the store after its retention.
//
// # Time
//
// A [Time] is a wall-clock time in whole milliseconds. What decides when to act gets a
// [Now], a reading of both clocks: the wall clock for "is it due", the monotonic clock for
// leases, deadlines and back-offs. No package that decides reads a clock itself, so a
// simulator can run it.
//
// # Three outcomes
//
// A write to a store or a broker has three outcomes: done, surely not done, and unknown.
// Unknown is never taken for failed. An [Error] of KindUnknown says that the effect may be
// there. A message that may have been published carries PossibleDuplicate from then on.
package postdate
