package machine

import (
	"slices"
	"strings"

	"github.com/postdate/postdate/ring"
	"github.com/postdate/postdate/store"
)

// Members lists all other nodes that are alive, according to gossip.
type Members struct{ Members []Member }

// Member is a node as it describes itself.
type Member struct {
	Name  string
	Lease string // of its present run
}

// Leave says that this node must give everything back and wants nothing any more.
type Leave struct{}

func (Members) Event() {}
func (Leave) Event()   {}

// share is the set of buckets that this node is to own. If it is wrong, that may delay messages
// but loses none: the fence decides.
type share struct {
	c       Config
	members []Member
	alive   []string // leases that move
	looked  bool     // the leases were read
	leaving bool
	stale   bool // one of these has changed since the share was looked at

	among  []string // the nodes of the present share
	owners []string // by bucket; nil where nobody is to own any
	told   bool     // one was told
}

// divide returns the buckets that the node is to own, if they have changed. A node that shares
// its store wants none before it knows who else has a lease.
func (s *share) divide() (buckets []int, changed bool) {
	if !s.stale || !s.looked && !s.c.Fence.Exclusive && !s.leaving {
		return nil, false
	}
	s.stale = false
	me := s.c.Fence.Node
	among := ringOf(me, s.members, s.alive)
	if s.leaving {
		among = slices.DeleteFunc(among, func(node string) bool { return node == me })
	}
	if s.told && slices.Equal(among, s.among) {
		return nil, false
	}
	s.among, s.told, s.owners = among, true, ring.Assign(among, s.c.Buckets)
	for b, owner := range s.owners {
		if owner == me {
			buckets = append(buckets, b)
		}
	}
	return buckets, true
}

// others names the other nodes that are to own any of these buckets.
func (s *share) others(holds []store.Hold) (nodes []string) {
	for _, hold := range holds {
		if hold.Bucket < len(s.owners) && s.owners[hold.Bucket] != s.c.Fence.Node {
			nodes = append(nodes, s.owners[hold.Bucket])
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// ringOf names the nodes among which the buckets are divided: those that gossip knows and whose
// own leases move. Gossip alone could name nodes that are gone, or give one node the lease of
// another; leases alone could name nodes that nobody can reach.
func ringOf(me string, members []Member, alive []string) []string {
	nodes := []string{me}
	for _, m := range members {
		if slices.Contains(alive, m.Lease) && LeaseOf(m.Name, m.Lease) {
			nodes = append(nodes, m.Name)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// LeaseID is the id of the lease of one run of a node.
func LeaseID(node, run string) string { return node + "/" + run }

// LeaseOf reports whether a lease belongs to a node.
func LeaseOf(node, lease string) bool {
	i := strings.LastIndexByte(lease, '/')
	return i >= 0 && lease[:i] == node
}
