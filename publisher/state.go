package publisher

import "time"

// Phase is the state of a publisher's connection to its broker.
type Phase uint8

// The phases.
const (
	Connecting Phase = iota + 1 // for the first time; RabbitMQ's publisher waits for it
	Connected
	Blocked // connected, but the broker accepts nothing
	Lost    // the broker does not answer
	Closed
)

var phaseNames = [...]string{Connecting: "connecting", Connected: "connected", Blocked: "blocked", Lost: "down",
	Closed: "closed"}

func (p Phase) String() string {
	if int(p) >= len(phaseNames) || p == 0 {
		return "invalid"
	}
	return phaseNames[p]
}

// State is a publisher's phase, for health and metrics.
type State struct {
	Phase  Phase
	Reason string // for all but Connected: a sentence in the broker's words, without secrets
	Since  time.Time
}

// NewState is the state of a publisher that has not connected yet.
func NewState() State {
	return State{Phase: Connecting, Reason: "not connected yet", Since: time.Now()}
}
