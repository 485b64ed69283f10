// Package node puts a node together: store, locks, poller, publishers and API. It
// is the only package that knows all of the others, and it decides nothing.
//
// It is importable, so that tests run whole nodes in one process.
package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// Node is a running node.
type Node struct {
	c       Config
	clock   clock
	metrics *prometheus.Registry

	store      store.Store
	channels   *channels
	loop       *poller.Loop
	keeper     *fence.Keeper
	api        *api.Server
	listener   net.Listener
	serving    sync.WaitGroup // the HTTP server
	background sync.WaitGroup // poller, keeper, housekeeping
	quit       context.CancelFunc

	failOnce sync.Once
	failed   chan struct{}
	failure  error
	stopped  sync.Once
	stopErr  error
}

// clock reads both clocks of one machine. Its zero is the node's start.
type clock struct{ start time.Time }

func (c clock) now() postdate.Now {
	t := time.Now()
	return postdate.Now{Wall: postdate.WallOf(t), Mono: t.Sub(c.start)}
}

func (c clock) wall() postdate.Time { return postdate.WallOf(time.Now()) }

func (c clock) mono() time.Duration { return time.Since(c.start) }

// Start starts a node, and returns when it owns its buckets and answers
// requests. Errors are sentences for the operator; nothing is left running then.
func Start(ctx context.Context, c Config) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := &Node{c: c, clock: clock{time.Now()}, metrics: prometheus.NewRegistry(), failed: make(chan struct{})}
	n.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := n.open(); err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	n.run()
	if err := n.awaitBuckets(ctx); err != nil {
		return nil, errors.Join(err, n.Stop(context.WithoutCancel(ctx)))
	}
	n.serving.Go(func() {
		if err := n.api.Serve(n.listener); err != nil {
			n.fail(fmt.Errorf("serving HTTP: %w", err))
		}
	})
	return n, nil
}

// open makes the parts, and starts none.
func (n *Node) open() error {
	var err error
	// The port comes first: it is the cheapest to be refused.
	if n.listener, err = net.Listen("tcp", n.c.HTTP); err != nil {
		return postdate.E(postdate.KindUnavailable, "cannot listen on --http %s: %w; name a free address, like 127.0.0.1:8081, or port 0 for any", n.c.HTTP, err)
	}
	if err := n.openStore(); err != nil {
		return err
	}
	if n.channels, err = openChannels(n.c, n.store, n.clock.wall, n.metrics); err != nil {
		return err
	}
	config := poller.DefaultConfig()
	config.Retry = n.c.Retry
	n.loop = poller.NewLoop(poller.Parts{
		Config: config, Buckets: n.store.Buckets(), Store: n.store, Publish: n.channels.publish,
		Clock: n.clock.now, Metrics: poller.NewMetrics(n.metrics), Log: n.c.Log,
	})
	lease, err := uuid.NewV7()
	if err != nil {
		return fmt.Errorf("naming this run: %w", err)
	}
	locks := fence.DefaultConfig(n.c.NodeID, n.c.NodeID+"/"+lease.String())
	locks.Exclusive = n.store.Exclusive()
	n.keeper = fence.NewKeeper(locks, n.store, n.clock.now, listener{n.loop}, n.c.Log)
	n.loop.Fenced = func(h store.Hold) { go n.keeper.Tell(fence.Fenced{Hold: h}) }
	n.loop.Drained = func(h store.Hold) { go n.keeper.Tell(fence.Drained{Hold: h}) }
	n.api, err = api.New(api.Config{
		Buckets: n.store.Buckets(), Now: n.clock.wall, Log: n.c.Log, Registry: n.metrics,
		Messages: n.store, Inbox: n.channels.inbox, Scheduled: n.loop.Nudge, CheckChannel: n.channels.check,
		Cluster: n.cluster, Ready: n.ready, PayloadBytesMax: n.c.PayloadBytesMax,
	})
	return err
}

func (n *Node) openStore() error {
	dir, err := n.c.storeDir()
	if err != nil {
		return err
	}
	config := pebble.DefaultConfig(dir)
	config.Buckets, config.Log = n.c.Buckets, n.c.Log
	s, err := pebble.Open(config)
	if err != nil {
		return err
	}
	n.store = store.Coalesce(measure(s, n.metrics))
	return nil
}

// listener passes the keeper's decisions on to the poller.
type listener struct{ loop *poller.Loop }

func (l listener) Gained(ps []bucket.Partition)  { l.loop.Tell(poller.Gained{Partitions: ps}) }
func (l listener) Lost(h store.Hold)             { l.loop.Tell(poller.Lost{Hold: h}) }
func (l listener) Drain(h store.Hold)            { l.loop.Tell(poller.Drain{Hold: h}) }
func (l listener) LeaseUntil(mono time.Duration) { l.loop.Tell(poller.LeaseUntil{Mono: mono}) }
func (l listener) Alive([]string)                { /* there are no others */ }
func (l listener) GaveBack([]store.Hold)         { /* nobody waits for them */ }

// run starts the loops.
func (n *Node) run() {
	ctx, quit := context.WithCancel(context.Background())
	n.quit = quit
	n.background.Go(func() { n.loop.Run(ctx) })
	n.background.Go(func() { n.keeper.Run(ctx) })
	n.background.Go(func() { n.expire(ctx) })
	all := make([]int, n.store.Buckets())
	for b := range all {
		all[b] = b
	}
	n.keeper.Tell(fence.Want{Buckets: all})
}

// ownedEvery is how often a start and a stop look whether they are through.
const ownedEvery = 2 * time.Millisecond

func (n *Node) awaitBuckets(ctx context.Context) error {
	return n.awaitHeld(ctx, n.store.Buckets())
}

func (n *Node) awaitHeld(ctx context.Context, want int) error {
	tick := time.NewTicker(ownedEvery)
	defer tick.Stop()
	for n.keeper.Held() != want {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return postdate.E(postdate.KindUnavailable, "%d of %d buckets were owned when time ran out", n.keeper.Held(), want)
		}
	}
	return nil
}

// ready says whether the node does its work.
func (n *Node) ready() error {
	if held, want := n.keeper.Held(), n.store.Buckets(); held != want {
		return postdate.E(postdate.KindUnavailable, "%d of %d buckets are owned", held, want)
	}
	return nil
}

// cluster is what GET /v1/cluster shows.
func (n *Node) cluster() api.Cluster {
	c := api.Cluster{Node: n.c.NodeID, Members: []api.Member{{Node: n.c.NodeID, Address: n.Addr(), State: "alive"}}}
	records, _, err := n.store.Partitions(context.Background())
	if err != nil {
		n.c.Log.Error("the partition records cannot be read", "error", err)
		return c
	}
	view := n.loop.View()
	now := n.clock.wall()
	for _, p := range records {
		b := api.Bucket{Bucket: p.Bucket, Owner: p.Owner, Token: p.Token, Checkpoint: p.Checkpoint, Claimed: p.Claimed}
		if since, overdue := view.Overdue[p.Bucket]; overdue {
			b.Lag = max(now.Sub(since), 0)
		}
		c.Buckets = append(c.Buckets, b)
	}
	return c
}

// Addr is the address of the HTTP API, with its real port.
func (n *Node) Addr() string { return n.listener.Addr().String() }

// Done is closed when the node failed and has to be stopped. Err says why.
func (n *Node) Done() <-chan struct{} { return n.failed }

// Err is why the node failed, once Done is closed.
func (n *Node) Err() error {
	select {
	case <-n.failed:
		return n.failure
	default:
		return nil
	}
}

func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.failure = err
		close(n.failed)
	})
}

// Stop takes no more requests, finishes what is in flight, hands the buckets over
// and closes everything. What ctx cuts short is left in doubt, not lost.
func (n *Node) Stop(ctx context.Context) error {
	n.stopped.Do(func() {
		err := n.api.Shutdown(ctx)
		n.listener.Close()
		n.serving.Wait()
		n.keeper.Tell(fence.Want{})
		err = errors.Join(err, n.awaitHeld(ctx, 0))
		n.stopErr = errors.Join(err, n.close(ctx))
	})
	return n.stopErr
}

// close closes what was opened, also where only a part was.
func (n *Node) close(ctx context.Context) (err error) {
	if n.quit != nil {
		n.quit()
		ended := make(chan struct{})
		go func() {
			n.background.Wait()
			close(ended)
		}()
		select { // one may hang in a write to a full disk, which only closing the store ends
		case <-ended:
		case <-ctx.Done():
		}
	}
	if n.channels != nil {
		err = n.channels.close(ctx)
	}
	if n.store != nil {
		err = errors.Join(err, n.store.Close())
	}
	if n.listener != nil {
		n.listener.Close()
	}
	return err
}

// expireEvery and expirePage say how often and how much at a time is deleted
// after its retention.
const (
	expireEvery = 5 * time.Second
	expirePage  = 1_000
)

// expire deletes what is past its retention, page by page.
func (n *Node) expire(ctx context.Context) {
	tick := time.NewTicker(expireEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for more := true; more && ctx.Err() == nil; {
			now := n.clock.wall()
			count, err := n.store.Expire(ctx, now.Add(-n.c.Retention), now.Add(-n.c.InboxRetention), expirePage)
			if err != nil {
				n.c.Log.Warn("expiring messages failed and is repeated", "error", err)
			}
			more = err == nil && count >= expirePage
		}
	}
}
