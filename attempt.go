package postdate

const (
	AttemptLogMax         = 20  // attempts that a message's log keeps
	AttemptReasonBytesMax = 200 // of each reason in it
)

// Attempt is what came of one attempt to publish a message.
type Attempt struct {
	At      Time // when that was known
	Node    string
	Outcome AttemptOutcome
	Reason  string // in the broker's own words; "": it was confirmed
}

// AttemptOutcome says how an attempt ended.
type AttemptOutcome uint8

// The outcomes.
const (
	AttemptDelivered AttemptOutcome = iota + 1 // the broker confirmed it
	AttemptRefused                             // it surely did not arrive
	AttemptUnknown                             // it may have arrived
)

// String is the outcome's name on the wire.
func (o AttemptOutcome) String() string {
	switch o {
	case AttemptDelivered:
		return "delivered"
	case AttemptRefused:
		return "refused"
	}
	return "unknown"
}

// AddAttempt returns log with one more attempt, and only the latest AttemptLogMax. It never changes log in place.
func AddAttempt(log []Attempt, a Attempt) []Attempt {
	latest := log[max(len(log)-AttemptLogMax+1, 0):]
	return append(append(make([]Attempt, 0, len(latest)+1), latest...), a)
}
