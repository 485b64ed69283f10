package membership

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/proctest"
	"github.com/postdate/postdate/internal/testrun"
)

// patience bounds every wait.
const patience = 60 * time.Second

// quick returns a config on loopback that retries often.
func quick(t *testing.T, name string, seeds ...*Membership) Config {
	t.Helper()
	c := Config{
		Metrics: prometheus.NewRegistry(),
		Name:    name, Bind: "127.0.0.1:0", Label: "test", RejoinEvery: 200 * time.Millisecond,
		Meta: Meta{Lease: name + "/1", HTTP: "http-of-" + name}, Log: slog.New(slog.DiscardHandler),
	}
	for _, s := range seeds {
		c.Seeds = append(c.Seeds, s.Address())
	}
	return c
}

func start(t *testing.T, c Config) *Membership {
	t.Helper()
	return startParts(t, c, parts{})
}

func startParts(t *testing.T, c Config, p parts) *Membership {
	t.Helper()
	m, err := startWith(context.Background(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Shutdown)
	return m
}

// eventually waits until isSo is true, and checks it again at each change.
func (m *Membership) eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	deadline := time.After(patience)
	again := time.NewTicker(20 * time.Millisecond) // for conditions other than the members
	defer again.Stop()
	for !isSo() {
		select {
		case <-m.Changed():
		case <-again.C:
		case <-deadline:
			t.Fatalf("%s: not %s; members %v, gone %v, problem %v", m.config.Name, what, m.Members(), m.Gone(), m.Problem())
		}
	}
}

func (m *Membership) names() (names []string) {
	for _, member := range m.Members() {
		names = append(names, member.Name)
	}
	return names
}

// see waits until m's members have these names.
func (m *Membership) see(t *testing.T, names ...string) {
	t.Helper()
	m.eventually(t, fmt.Sprint("members ", names), func() bool { return slices.Equal(m.names(), names) })
}

func TestJoinBySeeds(t *testing.T) {
	a := start(t, quick(t, "a"))
	b := start(t, quick(t, "b", a))
	c := start(t, quick(t, "c", a, b))
	for _, m := range []*Membership{a, b, c} {
		m.see(t, "a", "b", "c")
		for _, got := range m.Members() {
			want := Member{Name: got.Name, Address: got.Address, HTTP: "http-of-" + got.Name, Lease: got.Name + "/1", State: StateAlive}
			if got != want {
				t.Errorf("%s sees %+v, want %+v", m.config.Name, got, want)
			}
		}
		if err := m.Problem(); err != nil {
			t.Errorf("%s has a problem: %v", m.config.Name, err)
		}
		if got := m.counted(t, "postdate_gossip_members"); got != 3 {
			t.Errorf("%s counts %v members", m.config.Name, got)
		}
	}
	if got := c.Members()[0].Address; got != a.Address() {
		t.Errorf("a's address is %s, want %s", got, a.Address())
	}
}

// All addresses of a seed's name are tried; this node's own may be among them. A name
// server that does not answer for one seed does not delay the others.
func TestSeedByName(t *testing.T) {
	a := start(t, quick(t, "a"))
	_, port, _ := net.SplitHostPort(a.Address())
	c := quick(t, "b")
	c.Seeds = []string{"no-such-host.invalid:7946", "localhost:" + port}
	b := startParts(t, c, parts{resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}})
	a.see(t, "a", "b")
	b.see(t, "a", "b")
}

// A seed that starts later is found once it is there.
func TestLateSeed(t *testing.T) {
	t.Parallel()
	ports, err := proctest.Ports(1)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	c := quick(t, "b")
	c.Seeds = []string{address}
	b := start(t, c)
	b.eventually(t, "alone, in words", func() bool { return b.Problem() != nil && strings.Contains(b.Problem().Error(), "alone") })
	c = quick(t, "a")
	c.Bind = address
	a := start(t, c)
	a.see(t, "a", "b")
	b.see(t, "a", "b")
	b.eventually(t, "without a problem", func() bool { return b.Problem() == nil })
}

// A node that listens on loopback but shall join another machine reports the problem.
func TestLoopbackCannotLeave(t *testing.T) {
	t.Parallel()
	c := quick(t, "a")
	c.Seeds = []string{"192.0.2.1:7946"} // reserved for documentation: no machine has it
	a := startParts(t, c, parts{tune: func(m *memberlist.Config) { m.TCPTimeout = 50 * time.Millisecond }})
	a.eventually(t, "saying why", func() bool { return a.Problem() != nil && strings.Contains(a.Problem().Error(), "this machine only") })
}

// part cuts every connection between the two sides.
func part(left, right []*Membership) {
	cut := func(side, other []*Membership) {
		var addresses []string
		for _, m := range other {
			addresses = append(addresses, m.Address())
		}
		for _, m := range side {
			m.Cut(func(address string) bool { return slices.Contains(addresses, address) })
		}
	}
	cut(left, right)
	cut(right, left)
}

// After a partition the sides find each other, even if the library has meanwhile
// forgotten the other side, and even if one side has no seed left.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]time.Duration{"at once": 30 * time.Second, "forgotten": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probes := map[string]*probed{}
			add := func(name string, seeds ...*Membership) *Membership {
				probes[name] = &probed{}
				return startParts(t, quick(t, name, seeds...), parts{tune: func(m *memberlist.Config) {
					m.GossipToTheDeadTime, m.Ping = forget, probes[name]
				}})
			}
			a := add("a")
			b, c, d := add("b", a), add("c", a), add("d", a)
			all := []*Membership{a, b, c, d}
			for _, m := range all {
				m.see(t, "a", "b", "c", "d")
			}
			part([]*Membership{a, b}, []*Membership{c, d})
			a.see(t, "a", "b")
			b.see(t, "a", "b")
			c.see(t, "c", "d")
			d.see(t, "c", "d")
			if forget < time.Second {
				for _, m := range all {
					n := &probes[m.config.Name].n
					enough := n.Load() + 4
					m.eventually(t, "forgetful", func() bool { return n.Load() >= enough })
				}
			}
			began := time.Now()
			for _, m := range all {
				m.Cut(nil)
			}
			for _, m := range all {
				m.see(t, "a", "b", "c", "d")
			}
			t.Logf("together again %s after the network", time.Since(began).Round(time.Millisecond))
		})
	}
}

// probed counts the answered probes. After each round of probes, the library walks
// through its nodes once and forgets the dead.
type probed struct{ n atomic.Int64 }

func (*probed) AckPayload() []byte { return nil }

func (p *probed) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) { p.n.Add(1) }

// A node that leaves is gone immediately, and known to have left.
func TestLeave(t *testing.T) {
	var in inbox
	config := quick(t, "a")
	config.OnBroadcast = in.read
	a := start(t, config)
	b, c := start(t, quick(t, "b", a)), start(t, quick(t, "c", a))
	for _, m := range []*Membership{a, b, c} {
		m.see(t, "a", "b", "c")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	began := time.Now()
	if err := c.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	a.see(t, "a", "b")
	b.see(t, "a", "b")
	t.Logf("noticed %s after Leave was called", time.Since(began).Round(time.Millisecond))
	for _, m := range []*Membership{a, b} {
		m.eventually(t, "told that c has left", func() bool {
			gone := m.Gone()
			return len(gone) == 1 && gone[0].Name == "c" && gone[0].State == StateLeft
		})
	}
	// It still tells the others what it hands over.
	c.eventually(t, "heard", func() bool {
		c.Broadcast([]byte("take over"))
		in.mu.Lock()
		defer in.mu.Unlock()
		return slices.Contains(in.texts, "take over")
	})
	if err := c.Leave(ctx); err != nil {
		t.Errorf("again: %v", err)
	}
	c.Shutdown()
}

// A node's announcement may arrive after the library's own, which looks like a loss.
func TestLeaveHeardLate(t *testing.T) {
	t.Parallel()
	a := start(t, quick(t, "a"))
	b := start(t, quick(t, "b", a))
	a.see(t, "a", "b")
	b.Shutdown()
	a.see(t, "a")
	if gone := a.Gone(); len(gone) != 1 || gone[0].State != StateLost {
		t.Fatalf("%+v", gone)
	}
	a.receive(append([]byte{packetLeaving}, "b"...))
	if gone := a.Gone(); len(gone) != 1 || gone[0].State != StateLeft {
		t.Errorf("%+v", gone)
	}
	a.receive(append([]byte{packetLeaving}, "nobody"...))
}

// A crashed node is declared lost after a while, and is tried again: it may be a partition.
func TestCrash(t *testing.T) {
	a := start(t, quick(t, "a"))
	b, c := start(t, quick(t, "b", a)), start(t, quick(t, "c", a))
	for _, m := range []*Membership{a, b, c} {
		m.see(t, "a", "b", "c")
	}
	began := time.Now()
	c.Shutdown()
	a.see(t, "a", "b")
	first := time.Since(began)
	b.see(t, "a", "b")
	t.Logf("noticed after %s and %s", first.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	if gone := a.Gone(); len(gone) != 1 || gone[0].Name != "c" || gone[0].State != StateLost {
		t.Errorf("a says %+v", gone)
	}
}

// A node that returns at another address, before the others notice that the old one
// is gone, gets its name back.
func TestNameMovesAfterCrash(t *testing.T) {
	t.Parallel()
	a := start(t, quick(t, "a"))
	b, c := start(t, quick(t, "b", a)), start(t, quick(t, "c", a))
	for _, m := range []*Membership{a, b, c} {
		m.see(t, "a", "b", "c")
	}
	c.Shutdown()
	config := quick(t, "c", a, b)
	config.Meta.Lease = "c/2"
	again := start(t, config)
	for _, m := range []*Membership{a, b, again} {
		m.eventually(t, "seeing the new c", func() bool {
			members := m.Members()
			return len(members) == 3 && members[2].Lease == "c/2" && members[2].Address == again.Address()
		})
	}
}

// A second node of a name does not start, and does not disturb the first.
func TestTwinIsRefused(t *testing.T) {
	t.Parallel()
	a := start(t, quick(t, "a"))
	b := start(t, quick(t, "b", a))
	a.see(t, "a", "b")
	b.see(t, "a", "b")
	twin, err := Start(context.Background(), quick(t, "b", a))
	if err == nil {
		twin.Shutdown()
		t.Fatal("it started")
	}
	if postdate.KindOf(err) != postdate.KindConflict || !strings.Contains(err.Error(), "--node-id") || !strings.Contains(err.Error(), b.Address()) {
		t.Errorf("it says: %v", err)
	}
	for _, m := range []*Membership{a, b} {
		m.see(t, "a", "b")
		if got := m.Members()[1].Address; got != b.Address() {
			t.Errorf("%s sees b at %s, want %s", m.config.Name, got, b.Address())
		}
	}
}

// Two nodes of a name that started apart learn of each other when they meet, and agree
// which one yields.
func TestTwinsThatMeet(t *testing.T) {
	t.Parallel()
	told := make(chan Conflict, 100)
	config := func() Config {
		c := quick(t, "x")
		c.OnConflict = func(c Conflict) { told <- c }
		return c
	}
	one, two := start(t, config()), start(t, config())
	start(t, quick(t, "y", one, two))
	yields := map[string]bool{}
	deadline := time.After(patience)
	for len(yields) < 1 {
		select {
		case c := <-told:
			yields[c.Mine] = c.Yield
			if c.Yield != (c.Mine > c.Other) || c.Mine == c.Other || c.Name != "x" {
				t.Errorf("told %+v", c)
			}
		case <-deadline:
			t.Fatalf("nobody was told; %s and %s", one.Address(), two.Address())
		}
	}
}

// counted returns the value of a metric, summed over its labels.
func (m *Membership) counted(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := m.config.Metrics.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, metric := range f.GetMetric() {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return sum
}

// neverMerge checks that two nodes that keep trying each other do not become members of
// one cluster, and that each can say why.
func neverMerge(t *testing.T, one, two Config, word string) {
	t.Helper()
	a := start(t, one)
	two.Seeds = append(two.Seeds, a.Address())
	b := start(t, two)
	for _, m := range []*Membership{a, b} {
		m.eventually(t, "saying why", func() bool { return m.Problem() != nil && strings.Contains(m.Problem().Error(), word) })
	}
	b.eventually(t, "still trying", func() bool { return b.counted(t, "postdate_gossip_joins_total") >= 5 })
	for _, m := range []*Membership{a, b} {
		if names := m.names(); len(names) != 1 {
			t.Errorf("%s has the members %v", m.config.Name, names)
		}
	}
}

func TestForeignClusterNeverMerges(t *testing.T) {
	for _, labels := range [][2]string{{"one", "two"}, {"one", ""}, {"", "two"}} {
		t.Run(strings.Join(labels[:], "-"), func(t *testing.T) {
			t.Parallel()
			one, two := quick(t, "a"), quick(t, "b")
			one.Label, two.Label = labels[0], labels[1]
			neverMerge(t, one, two, "--store")
		})
	}
}

func TestWrongKeyNeverMerges(t *testing.T) {
	key := func(s string) [][]byte { return [][]byte{bytes.Repeat([]byte(s), 32)} }
	for name, keys := range map[string][2][][]byte{
		"another": {key("1"), key("2")}, "none here": {key("1"), nil}, "none there": {nil, key("2")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := quick(t, "a"), quick(t, "b")
			one.Keys, two.Keys = keys[0], keys[1]
			neverMerge(t, one, two, "--gossip-key")
		})
	}
}

// Nodes with the same key find each other, whether it is given raw or in base64.
func TestSameKey(t *testing.T) {
	t.Parallel()
	one := quick(t, "a")
	one.Keys = [][]byte{[]byte("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=")}
	a := start(t, one)
	two := quick(t, "b", a)
	two.Keys = [][]byte{[]byte("01234567890123456789012345678901")}
	b := start(t, two)
	a.see(t, "a", "b")
	b.see(t, "a", "b")
}

// The key is replaced in three rolling restarts. At no time is there a node that another one
// does not hear, whether each has been restarted or not.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	former, next := bytes.Repeat([]byte("1"), 32), bytes.Repeat([]byte("2"), 16)
	names := []string{"a", "b", "c"}
	nodes, bind := map[string]*Membership{}, ownAddress(t)
	all := func() (all []*Membership) { return slices.Collect(maps.Values(nodes)) }
	for step, keys := range [][][]byte{{former}, {former, next}, {next, former}, {next}} {
		for _, name := range names {
			config := quick(t, name)
			config.Bind, config.Keys, config.Meta.Lease = bind, keys, fmt.Sprint(name, step)
			if before := nodes[name]; before != nil {
				if err := before.Leave(t.Context()); err != nil {
					t.Fatal(err)
				}
				before.Shutdown()
				config.Bind = before.Address()
				delete(nodes, name)
			}
			for _, m := range all() {
				config.Seeds = append(config.Seeds, m.Address())
			}
			nodes[name] = start(t, config)
			for _, m := range all() {
				m.eventually(t, fmt.Sprintf("seeing %s in step %d", name, step), func() bool {
					members := m.Members()
					return len(members) == len(nodes) && slices.ContainsFunc(members, func(m Member) bool {
						return m.Lease == config.Meta.Lease
					})
				})
			}
			for _, m := range all() {
				if refused := m.counted(t, "postdate_gossip_refused_total"); refused != 0 {
					t.Errorf("step %d, %s restarted: %s refused %v packets: %v", step, name, m.config.Name, refused, m.Problem())
				}
				for _, gone := range m.Gone() {
					if gone.State == StateLost {
						t.Errorf("step %d, %s restarted: %s has lost %s", step, name, m.config.Name, gone.Name)
					}
				}
			}
		}
	}
}

// A node that stops hangs up on those that call it just then: they do not take it for a stranger.
func TestANodeThatStopsIsNoStranger(t *testing.T) {
	t.Parallel()
	one, two := quick(t, "a"), quick(t, "b")
	one.Bind, two.Bind = ownAddress(t), ownAddress(t)
	b := start(t, two)
	one.Seeds = []string{b.Address()}
	a := start(t, one)
	a.see(t, "a", "b")
	b.Shutdown()
	l, err := net.Listen("tcp", b.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	called := make(chan struct{}, 100)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
			called <- struct{}{}
		}
	}()
	a.eventually(t, "calling b twice", func() bool { return len(called) >= 2 })
	before := a.counted(t, "postdate_gossip_joins_total")
	a.eventually(t, "knowing what came of it", func() bool {
		return a.counted(t, "postdate_gossip_joins_total") > before
	})
	if refused := a.counted(t, "postdate_gossip_refused_total"); refused != 0 {
		t.Errorf("a refused b %v times: %v", refused, a.Problem())
	}
}

// ownAddress is an address of loopback that no other test uses: on theirs, programs that look for one which
// is gone may come to a port that is taken again, and are refused.
func ownAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.7:0")
	if err != nil {
		return "127.0.0.1:0" // this system has only one
	}
	_ = l.Close()
	return "127.0.0.7:0"
}

// inbox collects what arrives.
type inbox struct {
	mu     sync.Mutex
	nudges map[int]postdate.Time
	texts  []string
}

func (i *inbox) take(nudges []Nudge) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, n := range nudges {
		i.nudges[n.Bucket] = n.At
	}
}

func (i *inbox) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.nudges)
}

func (i *inbox) read(payload []byte) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.texts = append(i.texts, string(payload))
}

func (i *inbox) has(text string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Contains(i.texts, text)
}

func TestNudgesArrive(t *testing.T) {
	for name, keys := range map[string][][]byte{"open": nil, "encrypted": {bytes.Repeat([]byte("k"), 16)}} {
		t.Run(name, func(t *testing.T) {
			in := inbox{nudges: map[int]postdate.Time{}}
			one := quick(t, "a")
			one.OnNudges, one.Keys = in.take, keys
			a := start(t, one)
			two := quick(t, "b", a)
			two.Keys = keys
			b := start(t, two)
			b.see(t, "a", "b")
			const buckets = 5000 // in many packets
			at := func(bucket int) postdate.Time { return postdate.Time(1_800_000_000_000 + bucket*997) }
			b.eventually(t, "heard", func() bool { // packets may be lost
				var nudges []Nudge
				for bucket := range buckets {
					nudges = append(nudges, Nudge{bucket, at(bucket)})
				}
				if err := b.Nudge("a", nudges...); err != nil {
					t.Fatal(err)
				}
				return in.count() == buckets
			})
			in.mu.Lock()
			defer in.mu.Unlock()
			for bucket, got := range in.nudges {
				if got != at(bucket) {
					t.Fatalf("bucket %d is nudged to %s, want %s", bucket, got, at(bucket))
				}
			}
			if sent := b.counted(t, "postdate_gossip_nudges_sent_total"); sent < buckets {
				t.Errorf("%v nudges were counted as sent", sent)
			}
			if received := a.counted(t, "postdate_gossip_nudges_received_total"); received < buckets {
				t.Errorf("%v nudges were counted as received", received)
			}
		})
	}
}

func TestNudgeToNobody(t *testing.T) {
	a := start(t, quick(t, "a"))
	for _, name := range []string{"a", "b"} {
		if err := a.Nudge(name, Nudge{1, 1000}); postdate.KindOf(err) != postdate.KindNotFound {
			t.Errorf("to %s: %v", name, err)
		}
	}
	if got := a.counted(t, "postdate_gossip_nudges_dropped_total"); got != 2 {
		t.Errorf("%v nudges were counted as dropped, want 2", got)
	}
}

func TestBroadcast(t *testing.T) {
	var in inbox
	one := quick(t, "a")
	one.OnBroadcast = in.read
	a := start(t, one)
	b := start(t, quick(t, "b", a))
	b.see(t, "a", "b")
	b.eventually(t, "heard", func() bool {
		if err := b.Broadcast([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		return in.has("hello")
	})
	if err := b.Broadcast(make([]byte, 2000)); postdate.KindOf(err) != postdate.KindTooLarge {
		t.Errorf("a payload that is too large: %v", err)
	}
}

// A Tell to one node reaches no other.
func TestTell(t *testing.T) {
	var in, out inbox
	one := quick(t, "a")
	one.OnBroadcast = in.read
	a := start(t, one)
	other := quick(t, "b", a)
	other.OnBroadcast = out.read
	start(t, other)
	c := start(t, quick(t, "c", a))
	c.see(t, "a", "b", "c")
	for to, its := range map[string]*inbox{"a": &in, "b": &out} {
		c.eventually(t, "heard", func() bool {
			if err := c.Tell(to, []byte("for "+to)); err != nil {
				t.Fatal(err)
			}
			return its.has("for " + to)
		})
	}
	if in.has("for b") || out.has("for a") {
		t.Error("a word came to the wrong node")
	}
	for _, to := range []string{"c", "nobody"} {
		if err := c.Tell(to, nil); postdate.KindOf(err) != postdate.KindNotFound {
			t.Errorf("a word to %s: %v", to, err)
		}
	}
	if err := c.Tell("a", make([]byte, 2000)); postdate.KindOf(err) != postdate.KindTooLarge {
		t.Errorf("a word that is too large: %v", err)
	}
}

// A cut on one side also drops the packets that arrive from the other.
func TestCutDropsWhatArrives(t *testing.T) {
	var in inbox
	one := quick(t, "a")
	one.OnBroadcast = in.read
	a := start(t, one)
	b, c := start(t, quick(t, "b", a)), start(t, quick(t, "c", a))
	b.see(t, "a", "b", "c")
	c.see(t, "a", "b", "c")
	a.Cut(func(address string) bool { return address == b.Address() })
	a.eventually(t, "hearing c", func() bool {
		b.Broadcast([]byte("b"))
		c.Broadcast([]byte("c"))
		return in.has("c")
	})
	if in.has("b") {
		t.Error("what b said came through")
	}
}

// If a third of the packets and connections are lost, nodes still find each other, and
// nudges get through in the end.
func TestLossyNetwork(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	random := testrun.Random(t)
	lossy := func(string) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(3) == 0
	}
	in := inbox{nudges: map[int]postdate.Time{}}
	config := quick(t, "a")
	config.OnNudges = in.take
	a := start(t, config)
	a.Cut(lossy)
	b := start(t, quick(t, "b", a))
	b.Cut(lossy)
	c := start(t, quick(t, "c", a))
	c.Cut(lossy)
	all := []*Membership{a, b, c}
	for _, m := range all {
		m.see(t, "a", "b", "c")
	}
	for bucket := range 50 {
		b.eventually(t, "heard", func() bool {
			_ = b.Nudge("a", Nudge{bucket, 1000}) // a may not be a member for a while
			in.mu.Lock()
			defer in.mu.Unlock()
			return in.nudges[bucket] != 0
		})
	}
	for _, m := range all {
		m.Cut(nil)
	}
	for _, m := range all {
		m.see(t, "a", "b", "c")
	}
}

func TestPortIsTaken(t *testing.T) {
	a := start(t, quick(t, "a"))
	c := quick(t, "b")
	c.Bind = a.Address()
	if m, err := Start(context.Background(), c); err == nil {
		m.Shutdown()
		t.Error("it started")
	} else if postdate.KindOf(err) != postdate.KindUnavailable || !strings.Contains(err.Error(), "--gossip") {
		t.Errorf("it says: %v", err)
	}
}
