package node

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/membership"
	"github.com/postdate/postdate/ring"
)

// cluster is what makes a node one of many: it keeps the share of buckets that the
// keeper is to want at what gossip and the leases say, and carries word between
// nodes. What it believes can cost time, never a message: the fence decides.
type cluster struct {
	me      string
	buckets int
	gossip  *membership.Membership
	keeper  *fence.Keeper
	changed chan struct{} // the living leases may be others

	mu      sync.Mutex
	alive   []string // leases that move
	leaving bool
	share   []int // of the buckets, as the keeper was told
	told    bool
}

// nudgeWithin is how soon a message must be due for its bucket's owner to be told:
// what is due later, the owner's sweep finds in time.
const nudgeWithin = 3 * time.Second

// nudge tells a bucket's owner, where that is another node, that something is due.
func (c *cluster) nudge(bucket int, at postdate.Time) {
	partitions := c.keeper.Status().Partitions
	if bucket >= len(partitions) {
		return
	}
	if owner := partitions[bucket].Owner; owner != "" && owner != c.me {
		_ = c.gossip.Nudge(owner, membership.Nudge{Bucket: bucket, At: at}) // the owner's sweep finds it too
	}
}

// The broadcasts, of one byte each.
const (
	wordReleased = 'r' // buckets were given back: look at the records
	wordSettings = 's' // what is set of channels has changed
)

// ringOf names the nodes among whom the buckets are divided: those that gossip
// knows and whose leases move. Gossip alone could name nodes that are not there, and
// leases alone nodes that nobody can reach.
func ringOf(me string, members []membership.Member, alive []string) []string {
	nodes := []string{me}
	for _, m := range members {
		if m.Name != me && slices.Contains(alive, m.Lease) {
			nodes = append(nodes, m.Name)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// run keeps the share up to date until ctx ends.
func (c *cluster) run(ctx context.Context) {
	for {
		c.divide()
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		case <-c.gossip.Changed():
			c.keeper.Tell(fence.Hint{})
		}
	}
}

// divide tells the keeper what this node should own, where that has changed.
func (c *cluster) divide() {
	c.mu.Lock()
	defer c.mu.Unlock()
	var share []int
	if !c.leaving {
		share = ring.Share(ringOf(c.me, c.gossip.Members(), c.alive), c.me, c.buckets)
	}
	if c.told && slices.Equal(share, c.share) {
		return
	}
	c.share, c.told = share, true
	c.keeper.Tell(fence.Want{Buckets: share})
}

// living takes in which leases move.
func (c *cluster) living(leases []string) {
	c.mu.Lock()
	same := slices.Equal(leases, c.alive)
	c.alive = leases
	c.mu.Unlock()
	if !same {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
}

// leave tells the others that this node goes, so that they want its buckets, and
// wants none any more.
func (c *cluster) leave(ctx context.Context) error {
	c.mu.Lock()
	c.leaving = true
	c.mu.Unlock()
	err := c.gossip.Leave(ctx)
	c.divide()
	return err
}

// tell sends a word to all other nodes. It may be lost.
func (c *cluster) tell(word byte) { _ = c.gossip.Broadcast([]byte{word}) }

// members are the nodes that GET /v1/cluster shows.
func (c *cluster) members() (all []api.Member) {
	c.mu.Lock()
	alive := c.alive
	c.mu.Unlock()
	for _, m := range append(c.gossip.Members(), c.gossip.Gone()...) {
		state := string(m.State)
		if m.State == membership.StateAlive && m.Name != c.me && !slices.Contains(alive, m.Lease) {
			state = "unfenced" // it is heard of, and its lease does not move: it gets no buckets
		}
		all = append(all, api.Member{Node: m.Name, Address: m.HTTP, State: state})
	}
	slices.SortFunc(all, func(a, b api.Member) int { return cmp.Compare(a.Node, b.Node) })
	return all
}
