package postdate

import "fmt"

// Status is the status of a message. The zero value is not a status.
type Status uint8

// The statuses. Their names on the wire are those of [Status.String].
const (
	Pending        Status = iota + 1 // waits for its execution time or its next attempt
	Delivered                        // the broker confirmed it
	DeliveryFailed                   // its retry policy is exhausted, or it expired
	Cancelled                        // cancelled before delivery could have begun
)

var statusNames = [...]string{Pending: "PENDING", Delivered: "DELIVERED", DeliveryFailed: "DELIVERY_FAILED",
	Cancelled: "CANCELLED"}

// Statuses lists all of them, in the order of a message's life.
func Statuses() []Status { return []Status{Pending, Delivered, DeliveryFailed, Cancelled} }

func (s Status) String() string {
	if s < Pending || s > Cancelled {
		return fmt.Sprintf("Status(%d)", uint8(s))
	}
	return statusNames[s]
}

// ParseStatus parses a status by its name on the wire.
func ParseStatus(name string) (Status, error) {
	for _, s := range Statuses() {
		if statusNames[s] == name {
			return s, nil
		}
	}
	return 0, E(KindInvalid, "status %q is not one of PENDING, DELIVERED, DELIVERY_FAILED, CANCELLED", name)
}

// Final says whether a message in s has ended. Only a redrive changes it then, of one that failed: to a new version.
func (s Status) Final() bool { return s == Delivered || s == DeliveryFailed || s == Cancelled }

// CanBecome is the transition table. A PENDING message may stay PENDING: a retry or
// a reschedule changes its time, not its status. A redrive makes a new version of one that failed.
func (s Status) CanBecome(next Status) bool {
	return s == Pending && next >= Pending && next <= Cancelled || s == DeliveryFailed && next == Pending
}
