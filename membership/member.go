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

// State says how a node was last known.
type State string

// The states. Only alive nodes are members.
const (
	StateAlive State = "alive"
	StateLeft  State = "left" // said goodbye
	StateLost  State = "lost" // stopped to answer
)

// Member is a node as the others know it.
type Member struct {
	Name    string
	Address string // of its gossip, host:port
	HTTP    string // where it answers clients
	Lease   string // of its present run
	State   State
}

// Meta is what a node tells of itself.
type Meta struct {
	Lease string // the id of this run's lease
	HTTP  string // where it answers clients, host:port
}

// metaVersion begins what is encoded, so that it may change.
const metaVersion = 1

func (m Meta) encode() ([]byte, error) {
	b := append([]byte{metaVersion}, m.Lease...)
	b = append(append(b, 0), m.HTTP...)
	if len(b) > memberlist.MetaMaxSize || bytes.Count(b, []byte{0}) != 1 {
		return nil, invalid("a node's lease id and HTTP address must have less than %d bytes together, and no zero byte", memberlist.MetaMaxSize)
	}
	return b, nil
}

// decodeMeta is lenient: a node whose meta is not understood is alive all the same.
func decodeMeta(b []byte) Meta {
	if len(b) == 0 || b[0] != metaVersion {
		return Meta{}
	}
	lease, http, _ := bytes.Cut(b[1:], []byte{0})
	return Meta{Lease: string(lease), HTTP: string(http)}
}

// known is a node that was heard of, as the library last told.
type known struct {
	node  memberlist.Node // a copy, for the library goes on changing its own
	state State
	since time.Time
}

func (k known) member() Member {
	meta := decodeMeta(k.node.Meta)
	return Member{Name: k.node.Name, Address: k.node.Address(), HTTP: meta.HTTP, Lease: meta.Lease, State: k.state}
}

// roster is everybody who was heard of, by name. It decides whom to try again.
type roster map[string]known

// note takes up what the library tells of a node.
func (r roster) note(n *memberlist.Node, state State, now time.Time) {
	copied := *n
	copied.Addr, copied.Meta = slices.Clone(n.Addr), slices.Clone(n.Meta)
	r[n.Name] = known{node: copied, state: state, since: now}
}

// list are the members in these states, by name.
func (r roster) list(states ...State) (members []Member) {
	for _, k := range r {
		if slices.Contains(states, k.state) {
			members = append(members, k.member())
		}
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Name, b.Name) })
	return members
}

// forget drops who has been gone for long.
func (r roster) forget(now time.Time, after time.Duration) {
	maps.DeleteFunc(r, func(_ string, k known) bool { return k.state != StateAlive && now.Sub(k.since) > after })
}

// missing are the addresses to try: seeds and lost nodes, less those of members.
// Who left is not called back: it comes by itself.
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

// Members lists the nodes that are believed alive, this one included until it
// leaves, by name.
func (m *Membership) Members() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roster.list(StateAlive)
}

// Gone lists the nodes that left or were lost, until they are forgotten.
func (m *Membership) Gone() []Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.roster.list(StateLeft, StateLost)
}

// Changed is ready after each change of the members; several changes may come as
// one. It is for one reader.
func (m *Membership) Changed() <-chan struct{} { return m.changed }

// nodeNamed is a member other than this one.
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
