package node_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/storetest"
)

// jumps is a shared store whose clock can be set ahead.
type jumps struct {
	shared
	ahead *atomic.Int64 // a time.Duration
}

func (s jumps) Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error) {
	_, err := s.shared.Renew(ctx, lease) // it has no clock of its own
	return postdate.WallOf(time.Now().Add(time.Duration(s.ahead.Load()))), err
}

// awaitHeld waits until the nodes together hold that many buckets, by their metrics.
func awaitHeld(t *testing.T, want float64, nodes ...*node.Node) {
	t.Helper()
	var held float64
	err := nodetest.Poll(patient(t), func() (bool, error) {
		held = 0
		for _, n := range nodes {
			held += metric(t, n, "postdate_buckets_held")
		}
		return held == want, nil
	})
	if err != nil {
		t.Fatalf("%d nodes hold %v buckets, want %v: %v", len(nodes), held, want, err)
	}
}

func metric(t *testing.T, n *node.Node, name string) float64 {
	t.Helper()
	api := nodetest.NewClient(n.Addr())
	defer api.Close()
	value, err := api.Metric(patient(t), name)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// A node alone holds all buckets of its store.
func TestBucketsHeldAlone(t *testing.T) {
	c := config(t)
	c.Buckets = 8
	n, _ := start(t, c)
	awaitHeld(t, 8, n)
	if all := metric(t, n, "postdate_buckets"); all != 8 {
		t.Errorf("the store has %v buckets, want 8", all)
	}
}

// Nodes share all buckets. When the store's clock jumps they give them up, though they still take messages: the
// metrics show that nobody delivers.
func TestBucketsHeldWhenTheStoresClockJumps(t *testing.T) {
	const buckets = 32
	s := jumps{shared{storetest.NewMem(buckets)}, new(atomic.Int64)}
	m := newTeam(t, func(c *node.Config, p *node.Parts) {
		c.Lease, c.Store, p.Store = 2*time.Second, inMemory, s
	})
	a, b := m.add("a"), m.add("b")
	defer m.remove("a")
	defer m.remove("b")
	m.awaitOwners("a", "b")
	awaitHeld(t, buckets, a, b)
	if all := metric(t, b, "postdate_buckets"); all != buckets {
		t.Errorf("the store has %v buckets, want %d", all, buckets)
	}
	s.ahead.Store(int64(time.Minute))
	awaitHeld(t, 0, a, b)
	api := nodetest.NewClient(a.Addr())
	defer api.Close()
	m.schedule(api, "waits")
	s.ahead.Store(0)
	awaitHeld(t, buckets, a, b)
}
