package node_test

import (
	"context"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/node"
)

// patience bounds every wait for something that must happen. It does not measure speed: the
// machine may be busy.
const patience = 90 * time.Second

// patient is a context that ends with the test's patience.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// config is a node's configuration with a store of the test's own.
func config(t testing.TB) node.Config {
	t.Helper()
	c := node.DefaultConfig()
	c.HTTP, c.NodeID = "127.0.0.1:0", "test"
	c.Store = "pebble:" + filepath.Join(t.TempDir(), "store")
	c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	return c
}

// start starts a node, which is stopped when the test ends, and a client of it.
func start(t testing.TB, c node.Config) (*node.Node, *nodetest.Client) {
	t.Helper()
	n, err := node.Start(patient(t), c)
	if err != nil {
		t.Fatal(err)
	}
	api := nodetest.NewClient(n.Addr())
	t.Cleanup(func() {
		api.Close()
		stop(t, n)
	})
	return n, api
}

// stop stops a node in an orderly way.
func stop(t testing.TB, n *node.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Errorf("the node did not stop in order: %v", err)
	}
}

// follow passes an inbox's arrivals to take until the returned func is called, which first
// reads the inbox to its end.
func follow(t testing.TB, c *nodetest.Client, inbox string, take func(nodetest.Arrival)) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.FollowInto(ctx, inbox, take) }()
	end = func() {
		t.Helper()
		if ctx.Err() != nil {
			return
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("following inbox:%s: %v", inbox, err)
		}
	}
	t.Cleanup(end)
	return end
}

// The shortest allowed lease leaves time to publish.
func TestShortestLease(t *testing.T) {
	c := config(t)
	c.Lease = 500 * time.Millisecond
	_, api := start(t, c)
	came, times := make(chan struct{}), 0
	defer follow(t, api, "a", func(a nodetest.Arrival) {
		if times++; times == 1 {
			close(came)
			return
		}
		if !a.PossibleDuplicate { // a stall of the machine may outlast this lease, and then some may be marked
			t.Errorf("%s: %s came %d times", testrun.Broken, a.ScheduleID, times)
		}
	})()
	if _, err := api.Schedule(t.Context(), client.Message{ScheduleID: "m", Channel: "inbox:a", ExecutionTime: time.Now(), Payload: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-came:
	case <-time.After(patience):
		t.Error("nothing comes")
	}
}
