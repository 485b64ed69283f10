package node

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/membership"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/poller"
)

// openLoop makes the node's machine and what runs it.
func (n *Node) openLoop() error {
	run, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("naming this run: %w", err)
	}
	c := machine.Config{
		Fence: fence.DefaultConfig(n.c.NodeID, machine.LeaseID(n.c.NodeID, run.String())), Poller: poller.DefaultConfig(),
		Buckets: n.store.Buckets(), Broker: n.c.Kafka.Fenced, Retention: n.c.Retention, InboxRetention: n.c.InboxRetention,
	}
	c.Fence.Exclusive, c.Fence.SkewMax = n.store.Exclusive(), n.c.ClockSkewMax
	if n.c.Lease > 0 {
		c = c.WithLease(n.c.Lease)
	}
	c.Poller.Retry, c.Poller.PayloadBytesMax = n.c.Retry, n.c.PayloadBytesMax
	c.Poller.HandBytesMax = max(c.Poller.HandBytesMax, 8*n.c.PayloadBytesMax)
	if !n.store.Exclusive() {
		// A claim takes two round trips to a majority, not one sync of the own disk.
		c.Poller.Ahead, c.Poller.Gather, c.Poller.SettleGather = 80*time.Millisecond, 40*time.Millisecond, 20*time.Millisecond
	}
	if err := cmp.Or(c.Fence.Validate(), c.Poller.Validate()); err != nil {
		return err
	}
	n.loop = newLoop(c, n.store, n.clock, poller.NewMetrics(n.metrics), n.c.Log)
	return nil
}

// openGossip joins the cluster.
func (n *Node) openGossip(ctx context.Context) error {
	c := n.c.gossip()
	c.Label, c.Meta = n.store.Name(), membership.Meta{Lease: n.loop.leaseID, HTTP: n.advertisedHTTP()}
	c.OnNudges, c.OnBroadcast, c.OnConflict = n.nudged, n.heard, n.conflict
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

// nudged takes in nudges of other nodes.
func (n *Node) nudged(all []membership.Nudge) {
	for _, nudge := range all {
		n.loop.nudge(poller.Nudge(nudge))
	}
}

// heard takes in a word from another node. It must not block.
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

// conflict ends the one of two nodes of the same name that is to yield.
func (n *Node) conflict(x membership.Conflict) {
	if x.Yield {
		n.fail(postdate.E(postdate.KindUnavailable, "another node of this cluster, at %s, is called %s too: give each node a --node-id of its own", x.Other, x.Name))
	}
}

// tellOthers tells the other nodes that what is set of channels has changed.
func (n *Node) tellOthers() {
	if n.cluster != nil {
		n.cluster.tell(wordSettings)
	}
}

// scheduled is told of each message that was made durable.
func (n *Node) scheduled(bucket int, at postdate.Time) {
	nudge := poller.Nudge{Bucket: bucket, At: at}
	n.loop.nudge(nudge)
	if n.cluster == nil {
		return
	}
	if owner := n.loop.board.Owner(nudge, n.clock.wall(), n.c.NodeID); owner != "" {
		_ = n.cluster.gossip.Nudge(owner, membership.Nudge(nudge)) // the owner's sweep finds it too
	}
}

// advertisedHTTP is the address under which others reach this node's API.
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
