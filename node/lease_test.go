package node_test

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/ring"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// leased counts the calls about locks that one node makes to a shared store.
type leased struct {
	shared
	looks, renewals *atomic.Int64
}

func (s leased) Look(ctx context.Context, buckets []int) ([]bucket.Partition, []bucket.Lease, error) {
	s.looks.Add(1)
	return s.shared.Look(ctx, buckets)
}

func (s leased) Renew(ctx context.Context, lease bucket.Lease) (postdate.Time, error) {
	s.renewals.Add(1)
	return s.shared.Renew(ctx, lease)
}

// tokensOf returns the tokens of the buckets that a node owns, according to the records.
func tokensOf(t *testing.T, s store.Store, owner string) map[int]uint64 {
	t.Helper()
	var buckets []int
	for b := range s.Buckets() {
		buckets = append(buckets, b)
	}
	records, _, err := s.Look(t.Context(), buckets)
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[int]uint64{}
	for _, p := range records {
		if p.Owner == owner {
			tokens[p.Bucket] = p.Token
		}
	}
	return tokens
}

// Two nodes run with different --lease, as while an operator changes it on one after the other:
// in quiet operation no bucket moves.
func TestNodesWithDifferentLeases(t *testing.T) {
	const buckets = 32
	mem := shared{storetest.NewMem(buckets)}
	leases := map[string]time.Duration{"long": 10 * time.Second, "short": time.Second}
	stores := map[string]leased{}
	for name := range leases {
		stores[name] = leased{mem, new(atomic.Int64), new(atomic.Int64)}
	}
	m := newTeam(t, func(c *node.Config, p *node.Parts) {
		c.Lease, c.Store, p.Store = leases[c.NodeID], inMemory, stores[c.NodeID]
	})
	names := []string{"long", "short"}
	for _, name := range names {
		m.add(name)
		defer m.remove(name)
	}
	await := func(what string, yes func() bool) {
		t.Helper()
		if err := nodetest.Poll(patient(t), func() (bool, error) { return yes(), nil }); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	share := len(ring.Share(names, "long", buckets))
	await("each has its share", func() bool {
		return len(tokensOf(t, mem, "long")) == share && len(tokensOf(t, mem, "short")) == buckets-share
	})
	before := tokensOf(t, mem, "long")
	// Between two renewals of one node, 2 s apart, the other looks ten times.
	looks, renewals := stores["short"].looks.Load(), stores["long"].renewals.Load()
	await("they renew and look", func() bool {
		return stores["short"].looks.Load() >= looks+20 && stores["long"].renewals.Load() >= renewals+2
	})
	if after := tokensOf(t, mem, "long"); !maps.Equal(after, before) {
		t.Errorf("buckets of the node with the long lease were taken while it was alive: their tokens were %v and are %v", before, after)
	}
	// A long lease is renewed rarely. Looks stay as frequent as ever, to find free buckets.
	looks, renewals = stores["long"].looks.Load(), stores["long"].renewals.Load()
	await("it looks more often than it renews", func() bool {
		return stores["long"].looks.Load()-looks >= 2*(stores["long"].renewals.Load()-renewals)+4
	})
}
