package postdate

import "slices"

// Priority is a message's part of what goes out while more is overdue than its channel takes. Otherwise
// it delays nothing.
type Priority uint8

// The priorities. The zero value is what a message has if its client says nothing.
const (
	PriorityMedium Priority = iota
	PriorityHigh
	PriorityLow
)

var priorityNames = [...]string{PriorityMedium: "medium", PriorityHigh: "high", PriorityLow: "low"}

// Priorities lists all of them, the highest first.
func Priorities() []Priority { return []Priority{PriorityHigh, PriorityMedium, PriorityLow} }

func (p Priority) String() string { return priorityNames[p] }

// Weight is how much of that a priority gets, in relation to others. It is also the AMQP priority.
func (p Priority) Weight() int {
	return [...]int{PriorityMedium: 4, PriorityHigh: 8, PriorityLow: 1}[p]
}

// ParsePriority parses a priority by its name on the wire.
func ParsePriority(name string) (Priority, error) {
	i := slices.Index(priorityNames[:], name)
	if i < 0 {
		return 0, E(KindInvalid, "priority %q is not one of high, medium, low", name)
	}
	return Priority(i), nil
}
