package webhook

import "sync"

// lanes bound the requests to all hosts together. Hosts whose last request was answered quickly
// share one lane, all others another: receivers that hang, however many they are, fill their own
// lane and keep nothing from those that answer.
type lanes struct {
	quick, other chan struct{}

	mu    sync.Mutex
	hosts map[string]bool // those of the quick lane
}

const (
	// quickShare of the time that a request may take is a quick answer.
	quickShare = 10
	// quickMax bounds the hosts that are remembered. Then all are forgotten, and begin in the
	// other lane.
	quickMax = 10_000
)

// newLanes divides the connections: each lane has three eighths, and a quarter are idle.
func newLanes(connections int) lanes {
	each := connections * 3 / 8
	return lanes{quick: make(chan struct{}, each), other: make(chan struct{}, each), hosts: map[string]bool{}}
}

// of returns the lane of a host.
func (l *lanes) of(host string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hosts[host] {
		return l.quick
	}
	return l.other
}

// note notes whether a request to the host was answered quickly.
func (l *lanes) note(host string, quick bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !quick {
		delete(l.hosts, host)
		return
	}
	if len(l.hosts) >= quickMax {
		clear(l.hosts)
	}
	l.hosts[host] = true
}
