package node_test

import (
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/mongo/mongotest"
)

// TestClusterOnMongoDB is TestCluster on a real replica set.
func TestClusterOnMongoDB(t *testing.T) {
	uri := mongotest.Fresh(t)
	grows(t, newTeam(t, func(c *node.Config, _ *node.Parts) { c.Store, c.Buckets = uri, 32 }))
}

// A store with another N, or one that cannot be reached, is refused with an error that helps; a
// store that was created beforehand works.
func TestMongoDBThatIsRefused(t *testing.T) {
	c := config(t)
	c.Store, c.Buckets, c.Gossip = mongotest.Fresh(t), 8, "127.0.0.1:0"
	if err := node.InitStore(patient(t), c); err != nil {
		t.Fatal(err)
	}
	other := c
	other.Buckets = 16
	nowhere := c
	nowhere.Store = "mongodb://127.0.0.1:1/postdate?serverSelectionTimeoutMS=300"
	for want, bad := range map[string]node.Config{"--buckets 8": other, "cannot be reached": nowhere} {
		n, err := node.Start(patient(t), bad)
		if err == nil {
			stop(t, n)
			t.Fatalf("a node that should be refused has started")
		}
		if !strings.Contains(err.Error(), want) || postdate.KindOf(err) == postdate.KindInternal {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
	n, _ := start(t, c)
	if n.GossipAddr() == "" {
		t.Error("a node on MongoDB has no gossip")
	}
}
