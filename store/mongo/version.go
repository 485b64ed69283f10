package mongo

import "math/rand/v2"

// A version is a random number, drawn when the message is created, and in the bits below it how
// often the message was rescheduled. A statement that settles many messages filters by all of
// their versions together, not each message by its own. Therefore it holds only versions with
// the same number of reschedules, and the random part is as large as an int64 allows. A
// settlement that comes after its message expired could still find a new message with the id,
// whose version is that of another message in the same call: the chance is 1 in 2^48 for each
// message of the call.
const (
	rescheduleBits = 14
	randomBits     = 48
)

// firstVersion draws the version of a new message.
func firstVersion() uint64 { return (1 + rand.Uint64N(1<<randomBits-1)) << rescheduleBits }

// reschedules is how often the message of a version was rescheduled. Messages that were stored
// before versions were drawn began at 1.
func reschedules(version uint64) uint64 { return version & (1<<rescheduleBits - 1) }
