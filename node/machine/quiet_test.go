package machine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/fence"
	"github.com/postdate/postdate/poller"
	"github.com/postdate/postdate/ring"
	"github.com/postdate/postdate/store/storetest"
)

// party is a cluster of machines that share a store, whose calls take no time. No message is
// ever due in it.
type party struct {
	t     *testing.T
	store *storetest.Mem
	now   postdate.Now
	nodes []*guest
	told  []word // that no machine has taken in yet
	read  int    // partition records and leases that looks have read
}

// guest is one machine of a party.
type guest struct {
	name  string
	m     *Machine
	looks int
}

// word is an event for one machine.
type word struct {
	to *guest
	ev Event
}

func newParty(t *testing.T, nodes, buckets int) *party {
	p := &party{t: t, store: storetest.NewMem(buckets), now: postdate.Now{Wall: 1_900_000_000_000, Mono: time.Minute}}
	for range nodes {
		p.join()
	}
	p.run(10 * time.Second)
	p.settled()
	return p
}

// join adds a node, of which all hear immediately.
func (p *party) join() {
	g := &guest{name: fmt.Sprint("n", len(p.nodes))}
	g.m = New(Config{
		Fence: fence.DefaultConfig(g.name, LeaseID(g.name, "1")), Poller: poller.DefaultConfig(), Buckets: p.store.Buckets(),
		Retention: time.Hour, InboxRetention: time.Hour,
	}, func() float64 { return 0 })
	p.nodes = append(p.nodes, g)
	p.tell(g, fence.Tick{}) // with it comes its lease
	p.gossip()
}

// gossip tells each node about all others. The newest one hears it first, because it asks.
func (p *party) gossip() {
	for _, g := range slices.Backward(p.nodes) {
		var members []Member
		for _, o := range p.nodes {
			if o != g {
				members = append(members, Member{o.name, LeaseID(o.name, "1")})
			}
		}
		p.tell(g, fence.Hint{})
		p.tell(g, Members{members})
	}
}

// tell gives a machine an event, and the others what follows from it.
func (p *party) tell(to *guest, ev Event) {
	for p.told = append(p.told, word{to, ev}); len(p.told) > 0; {
		next := p.told[0]
		p.told = p.told[1:]
		for _, e := range next.to.m.Step(p.now, next.ev) {
			p.do(next.to, e)
		}
	}
}

func (p *party) answer(to *guest, ev Event) { p.told = append(p.told, word{to, ev}) }

// do carries out an effect.
func (p *party) do(g *guest, e Effect) {
	ctx := p.t.Context()
	switch e := e.(type) {
	case fence.Look:
		saw := fence.Saw{Began: p.now.Mono}
		saw.Partitions, saw.Leases, saw.Err = p.store.Look(ctx, e.Buckets)
		p.read += len(saw.Partitions) + len(saw.Leases)
		g.looks++
		p.answer(g, saw)
	case fence.Renew:
		_, err := p.store.Renew(ctx, e.Lease)
		p.answer(g, fence.Renewed{Began: p.now, WallEnded: p.now.Wall, Err: err})
	case fence.Take:
		results, err := p.store.Acquire(ctx, e.Wants)
		p.answer(g, fence.Took{Results: results, Err: err})
	case fence.GiveBack:
		p.answer(g, fence.GaveBack{Holds: e.Holds, Err: p.store.Release(ctx, e.Holds)})
	case poller.Claim:
		p.answer(g, poller.Claimed{Call: e.Call, Results: p.store.Claim(ctx, e.Claims)})
	case poller.FindParked:
		p.answer(g, poller.ParkedFound{Buckets: e.Buckets})
	case Released:
		for _, o := range p.nodes {
			if slices.Contains(e.To, o.name) {
				p.answer(o, fence.Freed{})
			}
		}
	}
}

// run lets time pass.
func (p *party) run(d time.Duration) {
	for end := p.now.Mono + d; p.now.Mono < end; {
		wait := end - p.now.Mono
		for _, g := range p.nodes {
			wait = min(wait, g.m.Wake(p.now))
		}
		p.now = p.now.Later(max(wait, time.Millisecond))
		for _, g := range p.nodes {
			if g.m.Wake(p.now) <= 0 {
				p.tell(g, fence.Tick{})
			}
		}
	}
}

// settled fails the test unless each bucket is owned by the node that the ring names.
func (p *party) settled() {
	p.t.Helper()
	var names []string
	for _, g := range p.nodes {
		names = append(names, g.name)
	}
	want := ring.Assign(names, p.store.Buckets())
	for b, owner := range want {
		records, _, err := p.store.Look(p.t.Context(), []int{b})
		if err != nil || records[0].Owner != owner {
			p.t.Fatalf("bucket %d is %+v, %v; want %q to own it", b, records, err, owner)
		}
	}
}

// In a quiet cluster a look reads one lease per node, and next to no partition records, even if
// all of them are claimed repeatedly.
func TestAQuietClusterReadsLittle(t *testing.T) {
	const nodes, buckets, seconds = 8, 256, 60
	p := newParty(t, nodes, buckets)
	p.read = 0
	p.run(seconds * time.Second)
	looks := nodes * (seconds*2 + 1)
	if most := looks*nodes + buckets*(seconds/10+1); p.read > most {
		t.Errorf("%d documents a second are read, want at most %d", p.read/seconds, most/seconds)
	}
}

// When a node joins, the others give buckets back to it without looking at the records.
func TestAGiveBackConcernsOneNode(t *testing.T) {
	const nodes, buckets = 8, 256
	p := newParty(t, nodes, buckets)
	p.read = 0
	for _, g := range p.nodes {
		g.looks = 0
	}
	begin := p.now.Mono
	p.join()
	p.run(2 * time.Second)
	p.settled()
	usual := int((p.now.Mono-begin)/(500*time.Millisecond)) + 1
	for _, g := range p.nodes[:nodes] {
		if more := g.looks - usual; more > 3 { // on hearing of the node, of its lease, and of the new share
			t.Errorf("%s looks %d times more often than it always does", g.name, more)
		}
	}
	joiner := p.nodes[nodes]
	t.Logf("%d documents are read; the new node looks %d times", p.read, joiner.looks)
	share := len(ring.Share([]string{"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", joiner.name}, joiner.name, buckets))
	before := buckets // the new node wants everything before it hears of the others
	if most := (nodes*(usual+3)+joiner.looks)*(nodes+1) + before + joiner.looks*share; p.read > most {
		t.Errorf("%d documents are read, want at most %d", p.read, most)
	}
}
