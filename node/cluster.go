package node

import (
	"cmp"
	"context"
	"slices"

	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/membership"
	"github.com/postdate/postdate/node/machine"
)

// cluster carries word between the nodes that share a store. It decides nothing.
type cluster struct {
	me     string
	gossip *membership.Membership
	loop   *loop
}

// The words between nodes, of one byte each.
const (
	wordReleased = 'r' // buckets were given back; an earlier version says it to all nodes
	wordSettings = 's' // what is set of channels has changed
)

// run tells the machine who else is there, until ctx ends.
func (c *cluster) run(ctx context.Context) {
	for {
		var others []machine.Member
		for _, m := range c.gossip.Members() {
			if m.Name != c.me {
				others = append(others, machine.Member{Name: m.Name, Lease: m.Lease})
			}
		}
		c.loop.tell(machine.Members{Members: others})
		select {
		case <-ctx.Done():
			return
		case <-c.gossip.Changed():
			c.loop.tell(fence.Hint{})
		}
	}
}

// tell sends a word to all other nodes. It may be lost.
func (c *cluster) tell(word byte) { _ = c.gossip.Broadcast([]byte{word}) }

// released tells nodes that buckets are free which they are to own. It may be lost.
func (c *cluster) released(to []string) {
	for _, node := range to {
		_ = c.gossip.Tell(node, []byte{wordReleased})
	}
}

// members are the nodes that GET /v1/cluster shows.
func (c *cluster) members() (all []api.Member) {
	alive := c.loop.Status().Alive
	for _, m := range append(c.gossip.Members(), c.gossip.Gone()...) {
		state := string(m.State)
		if m.State == membership.StateAlive && m.Name != c.me && !(slices.Contains(alive, m.Lease) && machine.LeaseOf(m.Name, m.Lease)) {
			state = "unfenced" // it is heard of, and its lease does not move: it gets no buckets
		}
		all = append(all, api.Member{Node: m.Name, Address: m.HTTP, State: state})
	}
	slices.SortFunc(all, func(a, b api.Member) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
