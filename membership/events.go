package membership

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// events gets the library's callbacks. The library often holds locks of its own when it
// calls, so that no method may call it back.
type events struct{ *Membership }

func (e events) NotifyJoin(n *memberlist.Node)   { e.heard(n, StateAlive) }
func (e events) NotifyUpdate(n *memberlist.Node) { e.heard(n, StateAlive) }

func (e events) NotifyLeave(n *memberlist.Node) {
	// The library does not say whether the node left or was lost. A node that leaves
	// has announced it before, with a packet of this package.
	e.heard(n, StateLost)
}

// news has the log's words for a node's new state.
var news = map[State]string{StateAlive: "is here", StateLeft: "has left", StateLost: "does not answer any more"}

func (m *Membership) heard(n *memberlist.Node, state State) {
	m.mu.Lock()
	if state == StateLost && m.leaving[n.Name] {
		state = StateLeft
	}
	delete(m.leaving, n.Name)
	m.roster.note(n, state, time.Now())
	members := len(m.roster.list(StateAlive))
	m.metrics.members.Set(float64(members)) // under the lock, so that the latest number is set last
	if members > 1 {
		delete(m.problems, problemAlone)
	}
	m.mu.Unlock()
	if n.Name != m.config.Name {
		m.log.Info("gossip: a node "+news[state], "node", n.Name, "address", n.Address(), "members", members)
	}
	signal(m.changed)
}

// NotifyConflict is called with the two nodes that use the same name.
func (e events) NotifyConflict(existing, other *memberlist.Node) {
	e.clash(clash{name: other.Name, other: other.Address(), mine: existing.Address()})
}

func (e events) clash(c clash) {
	select {
	case e.clashes <- c:
	default: // the clashes that wait say the same
	}
}

// NodeMeta returns what the others learn about this node.
func (e events) NodeMeta(int) []byte { return e.meta }

// NotifyMsg is called with each packet of this package that arrives.
func (e events) NotifyMsg(b []byte) { e.receive(b) }

// GetBroadcasts returns nothing: this package sends packets directly to their receivers.
func (e events) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState returns nothing.
func (e events) LocalState(bool) []byte { return nil }

// MergeRemoteState does nothing.
func (e events) MergeRemoteState([]byte, bool) {}

// signal makes a channel of capacity one ready to receive from.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
