// Package node builds a node from store, machine, publishers and API, and runs it. It is the
// only package that knows all the others. Package machine decides which buckets the node owns,
// and what is published when; this package decides only how a node starts and stops, and when
// it is ready.
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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/api"
	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/node/machine"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/pebble"
)

// Node is a running node.
type Node struct {
	c       Config
	parts   Parts
	clock   clock
	metrics *prometheus.Registry // Postdate's own
	traces  *traces              // nil: nothing is traced

	store      store.Store     // measured, and with calls gathered
	deliverer  store.Deliverer // the same store without gathering; nil: it cannot deliver
	channels   *channels
	control    *control
	watch      *watch
	pending    *pendingLooks
	cluster    *cluster // nil if the store serves this node only
	loop       *loop
	quota      *quota.Keeper
	keys       *auth.Keeper // nil if nobody is asked for a key
	tokens     *auth.Tokens // nil if none are accepted
	api        *api.Server
	sources    []source
	listener   net.Listener
	profiles   *profiles      // nil: none are served
	serving    sync.WaitGroup // the HTTP server
	files      files
	background sync.WaitGroup  // the loop, control, watch, looks and cluster
	life       context.Context // ends when the node is closed
	quit       context.CancelFunc

	failOnce sync.Once
	failed   chan struct{}
	failure  error
	stopped  sync.Once
	stopErr  error
}

// clock reads both clocks of one machine. Monotonic time counts from the node's start.
type clock struct{ start time.Time }

func (c clock) now() postdate.Now {
	t := time.Now()
	return postdate.Now{Wall: postdate.WallOf(t), Mono: t.Sub(c.start)}
}

func (c clock) wall() postdate.Time { return postdate.WallOf(time.Now()) }

func (c clock) mono() time.Duration { return time.Since(c.start) }

// wall returns the time to write into the store.
func (n *Node) wall() postdate.Time { return n.loop.board.Wall(n.clock.now()) }

// passed returns a time up to which something may be left out because it is over.
func (n *Node) passed() postdate.Time { return n.loop.board.Passed(n.clock.now()) }

// Start starts a node, and returns when it owns its buckets and answers requests. Errors are
// sentences for the operator; after one, nothing is left running.
func Start(ctx context.Context, c Config) (*Node, error) { return StartWith(ctx, c, Parts{}) }

// Parts are what tests put in place of a node's own parts. All may be nil.
type Parts struct {
	Store     store.Store               // instead of the one that Config names; the node closes it
	CutGossip func(address string) bool // for which addresses gossip is cut, in both directions
}

// StartWith is Start for tests.
func StartWith(ctx context.Context, c Config, parts Parts) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := &Node{c: c, parts: parts, clock: clock{time.Now()}, metrics: prometheus.NewRegistry(),
		failed: make(chan struct{})}
	var err error
	if n.files, err = divide(filesLimit()); err != nil {
		return nil, err
	}
	n.life, n.quit = context.WithCancel(context.Background())
	if err := n.open(ctx); err != nil {
		return nil, errors.Join(err, n.close(ctx))
	}
	n.run()
	if err := n.awaitBuckets(ctx); err != nil {
		return nil, errors.Join(err, n.giveUp(ctx))
	}
	if err := n.openSources(); err != nil {
		return nil, errors.Join(err, n.giveUp(ctx))
	}
	n.serving.Go(func() {
		if err := n.api.Serve(n.listener); err != nil {
			n.fail(fmt.Errorf("serving HTTP: %w", err))
		}
	})
	return n, nil
}

// giveUpTime bounds the stop of a node that failed to start. A call that hangs in its store,
// for example on a full disk, ends only when the store is closed.
const giveUpTime = 5 * time.Second

// giveUp stops a node that failed to start, even if ctx has ended.
func (n *Node) giveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveUpTime)
	defer cancel()
	return n.Stop(ctx)
}

// open makes the parts, and starts no loop.
func (n *Node) open(ctx context.Context) error {
	var err error
	// The port comes first, because a failure costs the least there.
	if n.listener, err = net.Listen("tcp", n.c.HTTP); err != nil {
		return postdate.E(postdate.KindUnavailable, "cannot listen on --http %s: %w; "+
			"name a free address of this machine as HOST:PORT, like 127.0.0.1:8081, or port 0 for any", n.c.HTTP, err)
	}
	if n.c.Pprof != "" {
		if n.profiles, err = serveProfiles(n.c.Pprof, n.c.Log); err != nil {
			return err
		}
	}
	if n.traces, err = openTraces(ctx, n.c); err != nil {
		return err
	}
	secure, err := n.c.TLS.server(n.c.Log)
	if err != nil {
		return err
	}
	if err := n.openStore(ctx); err != nil {
		return err
	}
	if err := n.openLoop(); err != nil {
		return err
	}
	taken := func(bucket int) { n.loop.tell(machine.TakenAtBroker{Bucket: bucket}) }
	if n.channels, err = openChannels(n.c, n.files, n.store, n.deliverer, n.wall, taken, n.metrics); err != nil {
		return err
	}
	n.loop.channels, n.loop.tracer = n.channels, n.traces.tracerOf()
	n.watch = &watch{now: n.wall, metrics: n.metrics, loop: n.loop}
	n.pending = newPendingLooks(n.store, n.wall, n.life, &n.background)
	n.quota = quota.NewKeeper(n.c.Quota, n.store, n.nodes, time.Now)
	n.metrics.MustRegister(n.quota)
	n.loop.jobs = &jobs{store: n.store, messages: n.quota.Hold(n.store), now: n.wall, passed: n.passed,
		scheduled: n.scheduled, log: n.c.Log}
	n.control = newControl(n.store, n.quota, n.loop, n.tellOthers)
	if !n.store.Exclusive() {
		if err := n.openGossip(ctx); err != nil {
			return err
		}
	}
	if err := n.openKeys(ctx); err != nil {
		return err
	}
	n.api, err = api.New(api.Config{
		Buckets: n.store.Buckets(), Now: n.wall, Passed: n.passed, Log: n.c.Log, Registry: n.metrics,
		Metrics: prometheus.Gatherers{n.metrics, processMetrics()}, Tracer: n.traces.tracerOf(),
		Messages: n.quota.Hold(n.store), Requests: n.store, Inbox: n.channels.inbox,
		Jobs: n.store, JobStarted: func() { n.loop.tell(machine.JobStarted{}) },
		Scheduled: n.scheduled, CheckChannel: n.channels.check,
		Kinds: kinds, Cluster: n.view, Stats: n.stats, Channels: clusterChannels{n},
		Tenants: n.control, Quota: n.quota, Ready: n.ready, PayloadBytesMax: n.c.PayloadBytesMax,
		Loopback: !n.c.Insecure && n.keys == nil && n.c.TLS.ClientCA == "", Keys: n.keys,
		Tokens: n.tokens, Console: n.console(),
		MetricsOpen: n.c.MetricsOpen, Origins: n.c.CORSOrigins, TLS: secure, ConnectionsMax: n.files.http,
	})
	if err != nil {
		return err
	}
	n.loop.jobs.cancelled = n.api.CountCancelled
	return nil
}

func (n *Node) openStore(ctx context.Context) error {
	var s store.Store
	var err error
	switch {
	case n.parts.Store != nil:
		s = n.parts.Store
	case n.c.mongoDB():
		s, err = mongo.Open(ctx, n.mongoConfig())
	default:
		s, err = n.openPebble()
	}
	if err != nil {
		return err
	}
	m := measure(s, n.metrics)
	if _, delivers := s.(store.Deliverer); delivers {
		n.deliverer = m
	}
	n.store = store.Coalesce(m)
	return nil
}

func (n *Node) openPebble() (store.Store, error) {
	dir, err := n.c.storeDir()
	if err != nil {
		return nil, err
	}
	config := pebble.DefaultConfig(dir)
	config.Buckets, config.Log, config.FilesMax = n.c.Buckets, n.c.Log, n.files.store
	if n.c.StoreCacheBytes != 0 {
		config.CacheBytes = n.c.StoreCacheBytes
	}
	return pebble.Open(config)
}

func (n *Node) mongoConfig() mongo.Config {
	config := mongo.DefaultConfig(n.c.Store)
	config.Buckets, config.Log = n.c.Buckets, n.c.Log
	return config
}

// InitStore creates the store that c names, or whatever is missing of it, and closes it. A node
// does the same when it starts; InitStore is for operators whose nodes may not create anything
// in the database. It also converts a MongoDB store that an earlier version wrote, or that was
// created on a replica set and is reached through a mongos. No node converts a store.
func InitStore(ctx context.Context, c Config) error {
	n := &Node{c: c, metrics: prometheus.NewRegistry()}
	if c.mongoDB() {
		if err := mongo.Convert(ctx, n.mongoConfig()); err != nil {
			return err
		}
	}
	if err := n.openStore(ctx); err != nil {
		return err
	}
	return n.store.Close()
}

// run starts the loops.
func (n *Node) run() {
	ctx := n.life
	n.background.Go(func() { n.loop.run(ctx) })
	n.background.Go(func() { n.control.run(ctx, n.c.Log) })
	n.background.Go(func() { n.watch.run(ctx) })
	if n.keys != nil {
		n.background.Go(func() { n.keys.Run(ctx) })
	}
	if n.tokens != nil {
		n.background.Go(func() { n.tokens.Run(ctx) })
	}
	if n.cluster != nil {
		n.background.Go(func() { n.cluster.run(ctx) })
	}
}

// ownedEvery is how often a start and a stop check whether they are complete.
const ownedEvery = 2 * time.Millisecond

// awaitBuckets waits until the node can work: on its own, until it owns every bucket; in a
// cluster, until it has a lease and knows who owns which bucket. It can serve requests even
// while other nodes still hold its share.
func (n *Node) awaitBuckets(ctx context.Context) error {
	if n.cluster == nil {
		return n.awaitHeld(ctx, n.store.Buckets())
	}
	return n.await(ctx, n.ready)
}

func (n *Node) awaitHeld(ctx context.Context, want int) error {
	return n.await(ctx, func() error {
		held := n.loop.Status().Held
		switch {
		case held == want:
			return nil
		case want == 0:
			return postdate.E(postdate.KindUnavailable,
				"%d buckets were not handed over in time: other nodes take them when this node's lease has ended", held)
		}
		return postdate.E(postdate.KindUnavailable, "%d of %d buckets were owned when time ran out", held, want)
	})
}

// await waits until inTheWay returns nil, or the node fails.
func (n *Node) await(ctx context.Context, inTheWay func() error) error {
	tick := time.NewTicker(ownedEvery)
	defer tick.Stop()
	for err := inTheWay(); err != nil; err = inTheWay() {
		select {
		case <-tick.C:
		case <-n.failed:
			return n.failure
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// ProfilesAddr returns the address of the profiles, with its real port; "" if none are served.
func (n *Node) ProfilesAddr() string {
	if n.profiles == nil {
		return ""
	}
	return n.profiles.listener.Addr().String()
}

// Addr returns the address of the HTTP API, with its real port.
func (n *Node) Addr() string { return n.listener.Addr().String() }

// GossipAddr returns the address at which other nodes find this one, with its real port; "" if
// there can be no others.
func (n *Node) GossipAddr() string {
	if n.cluster == nil {
		return ""
	}
	return n.cluster.gossip.Address()
}

// Done is closed when the node has failed and must be stopped. Err says why.
func (n *Node) Done() <-chan struct{} { return n.failed }

// Err says why the node failed, once Done is closed.
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

// Stop accepts no more requests, finishes what is in flight, hands the buckets over and closes
// everything. What is unfinished when ctx ends is left in doubt, not lost.
func (n *Node) Stop(ctx context.Context) error {
	n.stopped.Do(func() {
		n.c.Log.Info("stopping")
		err := errors.Join(n.closeSources(ctx), n.api.Shutdown(ctx))
		n.listener.Close()
		n.serving.Wait()
		if n.cluster != nil {
			if err := n.cluster.gossip.Leave(ctx); err != nil { // so that the others take its buckets
				// the store still shows the buckets as released
				n.c.Log.Warn("said goodbye to the other nodes, perhaps unheard", "error", err)
			}
		}
		n.loop.tell(machine.Leave{})
		err = errors.Join(err, n.awaitHeld(ctx, 0))
		if n.stopErr = errors.Join(err, n.close(ctx)); n.stopErr == nil {
			n.c.Log.Info("stopped")
		}
	})
	return n.stopErr
}

// close closes what was opened, even if that is only a part.
func (n *Node) close(ctx context.Context) (err error) {
	if n.quit != nil {
		n.quit()
		ended := make(chan struct{})
		go func() {
			n.background.Wait()
			close(ended)
		}()
		select { // a goroutine may hang in a write to a full disk, which only closing the store ends
		case <-ended:
		case <-ctx.Done():
		}
	}
	if n.profiles != nil {
		n.profiles.close()
	}
	if n.cluster != nil {
		n.cluster.gossip.Shutdown()
	}
	if n.channels != nil {
		err = errors.Join(err, n.channels.close(ctx))
	}
	if n.store != nil {
		err = errors.Join(err, n.store.Close())
	}
	if n.listener != nil {
		n.listener.Close()
	}
	n.traces.close(ctx)
	return err
}

// processMetrics tell of the process and of Go's runtime. They read much of /proc, so they are apart from those that
// [watch] reads again and again.
func processMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
