package machine

import (
	"slices"
	"strings"

	"github.com/postdate/postdate/ring"
)

// Members says who else is there, as gossip has it: all others that are alive.
type Members struct{ Members []Member }

// Member is a node as it tells of itself.
type Member struct {
	Name  string
	Lease string // of its present run
}

// Leave says that this node is to give everything back, and wants nothing any more.
type Leave struct{}

func (Members) Event() {}
func (Leave) Event()   {}

// share is which buckets this node is to own. What it believes can cost time, never a
// message: the fence decides.
type share struct {
	c       Config
	members []Member
	alive   []string // leases that move
	looked  bool     // the leases were read
	leaving bool

	among []string // the nodes of the present share
	told  bool     // one was told
}

// divide says which buckets the node is to own, where that has changed. A node that shares
// its store wants none before it knows who else has a lease.
func (s *share) divide() (buckets []int, changed bool) {
	if s.leaving {
		changed, s.told, s.among = s.among != nil || !s.told, true, nil
		return nil, changed
	}
	if !s.looked && !s.c.Fence.Exclusive {
		return nil, false
	}
	among := ringOf(s.c.Fence.Node, s.members, s.alive)
	if s.told && slices.Equal(among, s.among) {
		return nil, false
	}
	s.among, s.told = among, true
	return ring.Share(among, s.c.Fence.Node, s.c.Buckets), true
}

// ringOf names the nodes among whom the buckets are divided: those that gossip knows
// and whose own leases move. Gossip alone could name nodes that are not there, or give
// one node's lease for another's, and leases alone nodes that nobody can reach.
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

// LeaseOf says whether a lease is one of a node's.
func LeaseOf(node, lease string) bool {
	i := strings.LastIndexByte(lease, '/')
	return i >= 0 && lease[:i] == node
}
