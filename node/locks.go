package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/membership"
	"github.com/postdate/postdate/store"
)

// openLocks makes the keeper of the locks, and what finds the other nodes.
func (n *Node) openLocks(ctx context.Context) error {
	run, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("naming this run: %w", err)
	}
	locks := fence.DefaultConfig(n.c.NodeID, n.c.NodeID+"/"+run.String())
	locks.Exclusive, locks.SkewMax = n.store.Exclusive(), n.c.ClockSkewMax
	if n.c.Lease > 0 {
		locks.LeaseTime, locks.RenewEvery = n.c.Lease, n.c.Lease/5
		locks.LookEvery = min(locks.LookEvery, n.c.Lease/5) // a long lease is no reason to hear late of what is free
	}
	if err := locks.Validate(); err != nil {
		return err
	}
	if !locks.Exclusive {
		n.cluster = &cluster{me: n.c.NodeID, buckets: n.store.Buckets(), changed: make(chan struct{}, 1)}
	}
	l := &listener{
		loop: n.loop, cluster: n.cluster, fencer: n.channels.fencer, log: n.c.Log, end: n.life, held: map[int]uint64{},
		hint: func() { n.keeper.Tell(fence.Hint{}) },
	}
	n.keeper = fence.NewKeeper(locks, n.store, n.clock.now, l, n.c.Log)
	n.channels.fencedAt(l.Fenced)
	n.loop.Fenced = func(h store.Hold) { go n.keeper.Tell(fence.Fenced{Hold: h}) }
	n.loop.Drained = func(h store.Hold) { go n.keeper.Tell(fence.Drained{Hold: h}) }
	n.loop.ClockSet = func(by time.Duration) { go n.keeper.Tell(fence.ClockSet{By: by}) }
	if n.cluster == nil {
		return nil
	}
	return n.openGossip(ctx, locks.Lease)
}

// named is a store that can tell which one it is: the nodes of one cluster share it.
type named interface{ Name() string }

// openGossip joins the cluster.
func (n *Node) openGossip(ctx context.Context, lease string) error {
	gossip, err := membership.Start(ctx, membership.Config{
		Name: n.c.NodeID, Bind: n.c.Gossip, Advertise: n.c.GossipAdvertise, Seeds: n.c.Join,
		Key: []byte(n.c.GossipKey), Label: n.inner.(named).Name(),
		Meta:     membership.Meta{Lease: lease, HTTP: n.advertisedHTTP()},
		OnNudges: n.nudged, OnBroadcast: n.heard, OnConflict: n.conflict,
		Log: n.c.Log, Metrics: n.metrics,
	})
	if err != nil {
		return err
	}
	n.cluster.gossip, n.cluster.keeper = gossip, n.keeper
	if n.c.CutGossip != nil {
		gossip.Cut(n.c.CutGossip)
	}
	return nil
}

// nudged takes in nudges of other nodes.
func (n *Node) nudged(all []membership.Nudge) {
	for _, nudge := range all {
		if nudge.Bucket >= 0 && nudge.Bucket < n.store.Buckets() {
			n.loop.Nudge(nudge.Bucket, nudge.At)
		}
	}
}

// heard takes in a word from another node. It must not block.
func (n *Node) heard(payload []byte) {
	if len(payload) != 1 {
		return
	}
	switch payload[0] {
	case wordReleased:
		go n.keeper.Tell(fence.Hint{})
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
	n.loop.Nudge(bucket, at)
	if n.cluster != nil && at <= n.clock.wall().Add(nudgeWithin) {
		n.cluster.nudge(bucket, at)
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
