package node

import (
	"context"
	"slices"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/bucket"
)

// viewTimeout bounds the read that GET /v1/cluster makes.
const viewTimeout = 5 * time.Second

// ready says why the node cannot do its work; nil if it can.
func (n *Node) ready() error {
	status := n.loop.Status()
	switch held, want := status.Held, n.store.Buckets(); {
	case status.Ahead != 0:
		return postdate.E(postdate.KindUnavailable,
			"this machine's clock is %s ahead of the store's, and at most %s are allowed (--clock-skew-max): "+
				"set the clock; until then the node owns no buckets", status.Ahead, n.c.ClockSkewMax)
	case n.cluster != nil && n.clock.mono() >= status.Lease:
		return postdate.E(postdate.KindUnavailable, "the node has no lease: the store does not answer")
	case n.cluster != nil && !n.loop.board.Looked():
		return postdate.E(postdate.KindUnavailable, "the leases are not read yet")
	case n.cluster == nil && held != want:
		return postdate.E(postdate.KindUnavailable, "%d of %d buckets are owned", held, want)
	}
	return nil
}

// view returns what GET /v1/cluster shows.
func (n *Node) view() api.Cluster {
	c := api.Cluster{Node: n.c.NodeID, Members: []api.Member{{Node: n.c.NodeID, Address: n.Addr(), State: "alive"}}}
	if n.cluster != nil {
		c.Members = n.cluster.members()
	}
	ctx, cancel := context.WithTimeout(context.Background(), viewTimeout)
	defer cancel()
	if n.cluster != nil {
		n.addClocksAndLeases(ctx, c.Members)
	}
	all := make([]int, n.store.Buckets())
	for b := range all {
		all[b] = b
	}
	records, _, err := n.store.Look(ctx, all)
	if err != nil {
		n.c.Log.Error("the partition records cannot be read", "error", err)
		return c
	}
	slices.SortFunc(records, func(a, b bucket.Partition) int { return a.Bucket - b.Bucket })
	view := n.loop.View()
	now := n.clock.wall()
	for _, p := range records {
		claimed := max(p.Claimed.Time-1, 0)
		b := api.Bucket{Bucket: p.Bucket, Owner: p.Owner, Token: p.Token, Checkpoint: p.Checkpoint, Claimed: claimed}
		if since, overdue := view.Overdue[p.Bucket]; overdue {
			b.Lag = max(now.Sub(since), 0)
		} else if p.Owner != n.c.NodeID && p.Checkpoint < min(claimed, now) {
			b.Lag = now.Sub(p.Checkpoint) // an upper bound: only the owner knows what is overdue
		}
		c.Buckets = append(c.Buckets, b)
	}
	return c
}
