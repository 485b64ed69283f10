package node

import (
	"cmp"
	"context"
	"net"
	"os"
	"slices"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/membership"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
)

// cluster passes notices between the nodes that share a store. It decides nothing.
type cluster struct {
	me     string
	gossip *membership.Membership
	loop   *loop
}

// The notices between nodes, of one byte each.
const (
	wordReleased = 'r' // buckets were released; earlier versions send it to all nodes
	wordSettings = 's' // the settings of channels have changed
)

// openGossip joins the cluster.
func (n *Node) openGossip(ctx context.Context) error {
	c := n.c.gossip()
	c.Label, c.Meta = n.store.Name(), membership.Meta{Lease: n.loop.leaseID, HTTP: n.advertisedHTTP()}
	c.OnNudges, c.OnBroadcast, c.OnConflict, c.OnQuestion = n.nudged, n.heard, n.conflict, n.asked
	c.Log, c.Metrics = n.c.Log, n.metrics
	gossip, err := membership.Start(ctx, c)
	if err != nil {
		return err
	}
	n.cluster = &cluster{me: n.c.NodeID, gossip: gossip, loop: n.loop}
	n.loop.cluster = n.cluster
	if n.parts.CutGossip != nil {
		gossip.Cut(n.parts.CutGossip)
	}
	return nil
}

// run tells the machine which other nodes are alive, until ctx ends.
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

// tell sends a notice to all other nodes. It may be lost.
func (c *cluster) tell(word byte) { _ = c.gossip.Broadcast([]byte{word}) }

// released tells nodes that buckets which they should own are free. It may be lost.
func (c *cluster) released(to []string) {
	for _, node := range to {
		_ = c.gossip.Tell(node, []byte{wordReleased})
	}
}

// members returns the nodes of the cluster.
func (c *cluster) members() (all []api.Member) {
	alive := c.loop.Status().Alive
	for _, m := range append(c.gossip.Members(), c.gossip.Gone()...) {
		state := string(m.State)
		if m.State == membership.StateAlive && m.Name != c.me &&
			!(slices.Contains(alive, m.Lease) && machine.LeaseOf(m.Name, m.Lease)) {
			state = "unfenced" // gossip hears it, but its lease does not move: it gets no buckets
		}
		all = append(all, api.Member{Node: m.Name, Address: m.HTTP, State: state})
	}
	slices.SortFunc(all, func(a, b api.Member) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// nudged handles nudges from other nodes.
func (n *Node) nudged(all []membership.Nudge) {
	for _, nudge := range all {
		n.loop.nudge(poller.Nudge(nudge))
	}
}

// heard handles a notice from another node. It must not block.
func (n *Node) heard(payload []byte) {
	if len(payload) != 1 {
		return
	}
	switch payload[0] {
	case wordReleased:
		go n.loop.tell(fence.Freed{})
	case wordSettings:
		select {
		case n.control.stale <- struct{}{}:
		default:
		}
	}
}

// conflict stops this node if it has the same name as another and must yield.
func (n *Node) conflict(x membership.Conflict) {
	if x.Yield {
		n.fail(postdate.E(postdate.KindUnavailable, "another node of this cluster, at %s, is called %s too: "+
			"give each node a --node-id of its own", x.Other, x.Name))
	}
}

// nodes is how many nodes are alive, this one included.
func (n *Node) nodes() int {
	if n.cluster == nil {
		return 1
	}
	alive := 0
	for _, m := range n.cluster.members() {
		if m.State == "alive" {
			alive++
		}
	}
	return alive
}

// tellOthers tells the other nodes that the settings of channels or tenants have changed.
func (n *Node) tellOthers() {
	if n.cluster != nil {
		n.cluster.tell(wordSettings)
	}
}

// scheduled is called for each message that was made durable.
func (n *Node) scheduled(bucket int, at postdate.Time) {
	nudge := poller.Nudge{Bucket: bucket, At: at}
	n.loop.nudge(nudge)
	if n.cluster == nil {
		return
	}
	if owner := n.loop.board.Owner(nudge, n.clock.wall(), n.c.NodeID); owner != "" {
		_ = n.cluster.gossip.Nudge(owner, membership.Nudge(nudge)) // if it is lost, the owner's sweep finds the message
	}
}

// advertisedHTTP is the address at which other nodes reach this node's API.
func (n *Node) advertisedHTTP() string {
	host, port, err := net.SplitHostPort(n.Addr())
	if err != nil {
		return n.Addr()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if advertised, _, err := net.SplitHostPort(n.c.GossipAdvertise); err == nil {
			host = advertised
		} else if name, err := os.Hostname(); err == nil {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}
