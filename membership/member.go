package membership

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/postdate/postdate"
)

// State is the last known state of a node.
type State string

// The states. Only alive nodes are members.
const (
	StateAlive State = "alive"
	StateLeft  State = "left" // announced that it leaves
	StateLost  State = "lost" // stopped answering
)

// Member is a node as the others know it.
type Member struct {
	Name    string
	Address string // for gossip, host:port
	HTTP    string // where it serves clients
	Lease   string // the id of its current run's lease
	State   State
}

// Meta is what a node tells about itself.
type Meta struct {
	Lease string // the id of this run's lease
	HTTP  string // where it serves clients, host:port
}

// metaVersion is the first byte of an encoded Meta, so that the format can change.
const metaVersion = 1

func (m Meta) encode() ([]byte, error) {
	b := append([]byte{metaVersion}, m.Lease...)
	b = append(append(b, 0), m.HTTP...)
	if len(b) > memberlist.MetaMaxSize || bytes.Count(b, []byte{0}) != 1 {
		return nil, invalid("a node's lease id and HTTP address must have less than %d bytes together, "+
			"and no zero byte", memberlist.MetaMaxSize)
	}
	return b, nil
}

// decodeMeta returns no error: a node whose meta cannot be decoded is alive all the same.
func decodeMeta(b []byte) Meta {
	if len(b) == 0 || b[0] != metaVersion {
		return Meta{}
	}
	lease, http, _ := bytes.Cut(b[1:], []byte{0})
	return Meta{Lease: string(lease), HTTP: string(http)}
}

// known is a node as the library last reported it.
type known struct {
	node  memberlist.Node // a copy: the library keeps changing its own
	state State
	since time.Time
}

func (k known) member() Member {
	meta := decodeMeta(k.node.Meta)
	return Member{Name: k.node.Name, Address: k.node.Address(), HTTP: meta.HTTP, Lease: meta.Lease, State: k.state}
}

// roster has all known nodes, by name. It decides which addresses to try again.
type roster map[string]known

// note records what the library reports about a node.
func (r roster) note(n *memberlist.Node, state State, now time.Time) {
	copied := *n
	copied.Addr, copied.Meta = slices.Clone(n.Addr), slices.Clone(n.Meta)
	r[n.Name] = known{node: copied, state: state, since: now}
}

// list returns the nodes in the given states, sorted by name.
func (r roster) list(states ...State) (members []Member) {
	for _, k := range r {
		if slices.Contains(states, k.state) {
			members = append(members, k.member())
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// forget removes nodes that have been gone for longer than after.
func (r roster) forget(now time.Time, after time.Duration) {
	maps.DeleteFunc(r, func(_ string, k known) bool { return k.state != StateAlive && now.Sub(k.since) > after })
}

// missing returns the addresses to try: seeds and lost nodes, without those of members.
// A node that left is not tried: it comes back by itself.
func (r roster) missing(seeds []string) []string {
	want := map[string]bool{}
	for _, s := range seeds {
		want[s] = true
	}
	for _, k := range r {
		if k.state == StateLost {
			want[k.node.Address()] = true
		}
	}
	for _, k := range r {
		if k.state == StateAlive {
			delete(want, k.node.Address())
		}
	}
	return slices.Sorted(maps.Keys(want))
}

// Members lists the nodes that are believed alive, sorted by name, including this one
// until it leaves.
func (m *Membership) Members() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roster.list(StateAlive)
}

// Gone lists the nodes that left or are lost, until they are forgotten.
func (m *Membership) Gone() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roster.list(StateLeft, StateLost)
}

// Changed returns a channel that is ready after the members change. Several changes may
// give one signal. The channel is for one reader.
func (m *Membership) Changed() <-chan struct{} { return m.changed }

// nodeNamed returns the other member with this name.
func (m *Membership) nodeNamed(name string) (*memberlist.Node, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k, ok := m.roster[name]; ok && k.state == StateAlive && name != m.config.Name {
		return &k.node, nil
	}
	return nil, noMember(name)
}

func noMember(name string) error {
	return postdate.E(postdate.KindNotFound, "no other member is called %q", name)
}
