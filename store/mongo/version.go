package mongo

import "math/rand/v2"

// A version is a random number, drawn where the message is created, and below it how
// often the message was rescheduled. Statements that settle many messages filter by
// all of their versions at once, and not each message by its own: so no version of
// another number of reschedules goes into a statement, and the random part is as
// large as an int64 allows. That a settlement which comes after its message expired
// finds a new one with the id, and another version of the same call fits it, has a
// chance of 1 in 2^48 for each message of the call.
const (
	rescheduleBits = 14
	randomBits     = 48
)

// firstVersion draws the version of a new message.
func firstVersion() uint64 { return (1 + rand.Uint64N(1<<randomBits-1)) << rescheduleBits }

// reschedules is how often the message of a version was rescheduled. Messages that
// were stored before versions were drawn began at 1.
func reschedules(version uint64) uint64 { return version & (1<<rescheduleBits - 1) }
