package membership

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// events is what the library calls, often under its own locks: nothing here may
// call it back.
type events struct{ *Membership }

func (e events) NotifyJoin(n *memberlist.Node)   { e.heard(n, StateAlive) }
func (e events) NotifyUpdate(n *memberlist.Node) { e.heard(n, StateAlive) }

func (e events) NotifyLeave(n *memberlist.Node) {
	// Whether it left or was lost the library does not say here; who leaves has
	// said so before, in a broadcast of ours.
	e.heard(n, StateLost)
}

// news is what the log says of a node.
var news = map[State]string{StateAlive: "is here", StateLeft: "has left", StateLost: "does not answer any more"}

func (m *Membership) heard(n *memberlist.Node, state State) {
	m.mu.Lock()
	if state == StateLost && m.leaving[n.Name] {
		state = StateLeft
	}
	delete(m.leaving, n.Name)
	m.roster.note(n, state, time.Now())
	members := len(m.roster.list(StateAlive))
	m.metrics.members.Set(float64(members)) // under the lock, or an older number could come last
	if members > 1 {
		delete(m.problems, problemAlone)
	}
	m.mu.Unlock()
	if n.Name != m.config.Name {
		m.log.Info("gossip: a node "+news[state], "node", n.Name, "address", n.Address(), "members", members)
	}
	signal(m.changed)
}

// NotifyConflict comes with both nodes that use a name.
func (e events) NotifyConflict(existing, other *memberlist.Node) {
	e.clash(clash{name: other.Name, other: other.Address(), mine: existing.Address()})
}

func (e events) clash(c clash) {
	select {
	case e.clashes <- c:
	default: // those that wait say the same
	}
}

// NodeMeta is what the others learn of this node.
func (e events) NodeMeta(int) []byte { return e.meta }

// NotifyMsg is told of each packet of ours that arrives.
func (e events) NotifyMsg(b []byte) { e.receive(b) }

// GetBroadcasts, LocalState and MergeRemoteState carry nothing: our packets go to
// their receivers directly.
func (e events) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState carries nothing.
func (e events) LocalState(bool) []byte { return nil }

// MergeRemoteState finds nothing.
func (e events) MergeRemoteState([]byte, bool) {}

// signal makes a channel of capacity one ready.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
