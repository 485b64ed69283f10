package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store/storetest"
)

// shared is a store in memory that several nodes of one process share.
type shared struct{ *storetest.Mem }

func (shared) Exclusive() bool { return false }

// inMemory stands for a shared store in a node's Config. Nothing connects to it.
const inMemory = "mongodb://in.memory.invalid/test"

// team is a cluster in one process, whose nodes come and go.
type team struct {
	t    testing.TB
	open func(c *node.Config, p *node.Parts) // gives a node its store

	mu     sync.Mutex
	nodes  map[string]*node.Node
	cut    map[string]bool // gossip addresses of nodes that are cut off
	ledger *account.Ledger
	all    []string // HTTP addresses of nodes that serve
	next   atomic.Int64
}

func newTeam(t testing.TB, open func(c *node.Config, p *node.Parts)) *team {
	return &team{t: t, open: open, nodes: map[string]*node.Node{}, cut: map[string]bool{}, ledger: nodetest.NewLedger()}
}

// teamInMemory makes a team that shares a store in memory.
func teamInMemory(t testing.TB) *team {
	mem := shared{storetest.NewMem(32)}
	return newTeam(t, func(c *node.Config, p *node.Parts) { c.Store, p.Store = inMemory, mem })
}

// pairInMemory makes such a team of nodes a and b, which both own buckets.
func pairInMemory(t testing.TB) *team {
	t.Helper()
	m := teamInMemory(t)
	m.add("a")
	m.add("b")
	m.awaitOwners("a", "b")
	return m
}

// add starts a node that joins the others.
func (m *team) add(name string) *node.Node {
	m.t.Helper()
	c := config(m.t)
	c.NodeID, c.Gossip = name, "127.0.0.1:0"
	c.Lease = 20 * time.Second // so that a machine that stalls for a second or two does not fail the test
	if os.Getenv("POSTDATE_TEST_LOG") != "" {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("at", name)
	}
	m.mu.Lock()
	for _, n := range m.nodes {
		c.Join = append(c.Join, n.GossipAddr())
	}
	m.mu.Unlock()
	parts := node.Parts{CutGossip: func(address string) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		own := m.nodes[name]
		return m.cut[address] || own != nil && m.cut[own.GossipAddr()]
	}}
	m.open(&c, &parts)
	n, err := node.StartWith(patient(m.t), c, parts)
	if err != nil {
		m.t.Fatal(err)
	}
	m.mu.Lock()
	m.nodes[name] = n
	m.all = append(m.all, n.Addr())
	m.mu.Unlock()
	return n
}

// remove stops a node in an orderly way.
func (m *team) remove(name string) {
	m.t.Helper()
	m.mu.Lock()
	n := m.nodes[name]
	delete(m.nodes, name)
	for i, a := range m.all {
		if a == n.Addr() {
			m.all = append(m.all[:i:i], m.all[i+1:]...)
			break
		}
	}
	m.mu.Unlock()
	stop(m.t, n)
}

// address returns the address of a node that serves, each in turn.
func (m *team) address() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[int(m.next.Add(1))%len(m.all)]
}

// owners returns how many buckets each node owns, according to the records.
func (m *team) owners() map[string]int {
	api := nodetest.NewClient(m.address())
	defer api.Close()
	view, err := api.Cluster(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	owners := map[string]int{}
	for _, b := range view.Buckets {
		owners[b.Owner]++
	}
	return owners
}

// awaitOwners waits until exactly these nodes own buckets.
func (m *team) awaitOwners(names ...string) {
	m.t.Helper()
	var owners map[string]int
	err := nodetest.Poll(patient(m.t), func() (bool, error) {
		owners = m.owners()
		if len(owners) != len(names) {
			return false, nil
		}
		for _, name := range names {
			if owners[name] == 0 {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		m.t.Fatalf("the owners are %v, want %v: %v", owners, names, err)
	}
}

// load schedules messages through all nodes until the returned func is called.
func (m *team) load(callers int) (end func()) {
	over := make(chan struct{})
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			api := nodetest.NewClient(m.address())
			defer api.Close()
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				select {
				case <-over:
					return
				case <-tick.C:
				}
				m.schedule(api, fmt.Sprintf("m-%d-%d", caller, i))
			}
		})
	}
	return func() {
		close(over)
		group.Wait()
	}
}

// schedule asks one node after another until one answers.
func (m *team) schedule(api *nodetest.Client, id string) {
	due := nodetest.In(time.Second + time.Duration(m.next.Load()%1000)*time.Millisecond)
	m.ledger.Sent(id, "inbox:all", due)
	message := client.Message{ScheduleID: id, Channel: "inbox:all", ExecutionTime: due, Payload: []byte("1")}
	err := nodetest.Poll(patient(m.t), func() (bool, error) {
		api.Move(m.address())
		_, err := api.Schedule(m.t.Context(), message)
		if nodetest.NoAnswer(err) || nodetest.NotNow(err) {
			return false, nil
		}
		return true, err
	})
	if err != nil {
		m.t.Errorf("%s: %v", id, err)
		return
	}
	m.ledger.Scheduled(id, account.Done, time.Now())
}

// A cluster grows, shrinks, and has its gossip cut and healed, under load: nothing is lost,
// nothing comes twice, and nothing is even marked.
func TestCluster(t *testing.T) { grows(t, teamInMemory(t)) }

func grows(t *testing.T, m *team) {
	m.add("a")
	follower := nodetest.NewClient(m.address())
	defer follower.Close()
	endFollow := follow(t, follower, "all", nodetest.Into(m.ledger))
	m.awaitOwners("a")
	endLoad := m.load(8)
	m.add("b")
	m.add("c")
	m.awaitOwners("a", "b", "c")
	m.remove("b")
	m.awaitOwners("a", "c")
	m.add("b")
	m.awaitOwners("a", "b", "c")

	m.cutOff("c") // both sides go on; the fence keeps each bucket with its owner
	if err := nodetest.Poll(patient(t), func() (bool, error) { return m.sees("a") == 2 && m.sees("c") == 1, nil }); err != nil {
		t.Fatal(err)
	}
	m.awaitOwners("a", "b", "c")
	m.heal()
	if err := nodetest.Poll(patient(t), func() (bool, error) { return m.sees("a") == 3 && m.sees("c") == 3, nil }); err != nil {
		t.Fatal(err)
	}
	m.remove("c")
	m.remove("b")
	m.awaitOwners("a")
	endLoad()
	if err := nodetest.Poll(patient(t), func() (bool, error) { return m.ledger.Open() == 0, nil }); err != nil {
		t.Error(err)
	}
	endFollow()
	m.remove("a")
	nodetest.Settle(t, m.ledger)
}

func (m *team) cutOff(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut[m.nodes[name].GossipAddr()] = true
}

func (m *team) heal() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.cut)
}

// sees counts the members that a node believes alive.
func (m *team) sees(name string) (alive int) {
	m.mu.Lock()
	api := nodetest.NewClient(m.nodes[name].Addr())
	m.mu.Unlock()
	defer api.Close()
	view, err := api.Cluster(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	for _, member := range view.Members {
		if member.State == "alive" {
			alive++
		}
	}
	return alive
}

// Two nodes have one name: the second is refused, with an error that helps.
func TestTwoNodesOfOneName(t *testing.T) {
	m := teamInMemory(t)
	first := m.add("a")
	defer m.remove("a")
	c := config(t)
	c.NodeID, c.Gossip, c.Join = "a", "127.0.0.1:0", []string{first.GossipAddr()}
	parts := node.Parts{}
	m.open(&c, &parts)
	n, err := node.StartWith(patient(t), c, parts)
	if err == nil {
		stop(t, n)
		t.Fatal("a second node of the same name has started")
	}
	t.Log(err)
}

// A channel paused on one node is paused on all.
func TestPauseReachesAllNodes(t *testing.T) {
	m := pairInMemory(t)
	defer m.remove("a")
	defer m.remove("b")
	clients := map[string]*nodetest.Client{}
	for name, n := range m.nodes {
		clients[name] = nodetest.NewClient(n.Addr())
		defer clients[name].Close()
	}
	if err := clients["a"].Pause(t.Context(), "inbox:held"); err != nil {
		t.Fatal(err)
	}
	paused := func(name string) bool {
		list, err := clients[name].Channels(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Channels) > 0 && list.Channels[0].Channel == "inbox:held" && list.Channels[0].State == "paused"
	}
	if err := nodetest.Poll(patient(t), func() (bool, error) { return paused("a") && paused("b"), nil }); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		id := fmt.Sprintf("held-%d", i)
		if s, err := clients["b"].Schedule(t.Context(), client.Message{ScheduleID: id, Channel: "inbox:held", Delay: 10 * time.Millisecond, Payload: fmt.Append(nil, i)}); err != nil || !s.Created {
			t.Fatal(s, err)
		}
	}
	awaitParked(t, clients["a"], 40)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for i := range 10 {
		if err := clients["a"].Cancel(t.Context(), fmt.Sprintf("held-%d", i)); err != nil {
			t.Errorf("a message of a paused channel cannot be cancelled: %v", err)
		}
	}
	if err := clients["b"].Resume(t.Context(), "inbox:held"); err != nil {
		t.Fatal(err)
	}
	if err := clients["a"].AwaitNonePending(ctx); err != nil {
		t.Error(err)
	}
	delivered := 0
	for _, err := range clients["a"].List(t.Context(), client.Filter{Status: client.Delivered}) {
		if delivered++; err != nil {
			t.Fatal(err)
		}
	}
	if delivered != 30 {
		t.Errorf("%d delivered after the channel was resumed, want 30", delivered)
	}
}
