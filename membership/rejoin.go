package membership

import (
	"context"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postdate/postdate"
)

const (
	// joinsAtOnce bounds how many addresses are tried at the same time.
	joinsAtOnce = 8

	// twinGrace is how long a second node of a name has to stop: a starting node does
	// so by itself when it finds the first one.
	twinGrace = 2 * time.Second

	// tellFor is how long a node that returned at another address tells all others
	// about itself. By its end they must have declared the old address lost.
	tellFor = 30 * time.Second

	// pings is how often a twin is asked before it counts as gone.
	pings = 3
)

// rejoin periodically tries nodes that should be members and are not, because the library
// itself never tries again a node that was gone for long.
func (m *Membership) rejoin() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-m.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	wait := func() time.Duration { // at random, so that nodes do not try at the same moment
		return m.config.RejoinEvery*3/4 + time.Duration(rand.Int64N(int64(m.config.RejoinEvery)/2+1))
	}
	timer := time.NewTimer(wait())
	defer timer.Stop()
	var tellUntil time.Time // until then it tries all members, which may believe its old address
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-m.clashes:
			if !m.settle(ctx, c) {
				continue
			}
			tellUntil = time.Now().Add(tellFor)
		case <-timer.C:
		}
		if m.left.Load() {
			return
		}
		m.join(ctx, time.Now().Before(tellUntil), false)
		timer.Reset(wait())
	}
}

// join tries the missing nodes. If everybody is true it also tries all members, so that
// they hear from this node.
func (m *Membership) join(ctx context.Context, everybody, first bool) {
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	seeds := m.lookupSeeds(ctx)
	m.mu.Lock()
	m.roster.forget(time.Now(), m.config.ForgetAfter)
	targets := m.roster.missing(seeds)
	if everybody {
		for _, k := range m.roster.list(StateAlive) {
			targets = append(targets, k.Address)
		}
	}
	m.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(joinsAtOnce)
	for _, target := range targets {
		if target == m.address {
			continue
		}
		group.Go(func() error {
			if ctx.Err() == nil {
				m.try(target)
			}
			return nil
		})
	}
	_ = group.Wait()
	if len(m.config.Seeds) == 0 || len(m.Members()) > 1 || ctx.Err() != nil || first {
		return // the first node of a cluster is alone at first
	}
	if elsewhere := outside(seeds); m.transport.loopback() && elsewhere != "" {
		m.report(problemAlone, postdate.E(postdate.KindUnavailable,
			"This node is alone: --gossip %s is reached from this machine only, and --join names %s on another one. "+
				"Write --gossip 0.0.0.0:7946, or an address of the network between them.", m.config.Bind, elsewhere))
	} else {
		m.report(problemAlone, postdate.E(postdate.KindUnavailable,
			"None of the addresses in --join answers as a node of this cluster: this node is alone, "+
				"and tries again every %s. Its own address is %s, over TCP and UDP.", m.config.RejoinEvery, m.address))
	}
}

// outside returns the first of the addresses that is not a loopback address.
func outside(addresses []string) string {
	for _, a := range addresses {
		if at, err := netip.ParseAddrPort(a); err == nil && !at.Addr().IsLoopback() {
			return a
		}
	}
	return ""
}

// try contacts the node at an address, and exchanges what both know about the members.
func (m *Membership) try(address string) {
	_, err := m.list.Join([]string{address})
	if err == nil {
		m.metrics.rejoins.WithLabelValues("answered").Inc()
		return
	}
	m.metrics.rejoins.WithLabelValues("failed").Inc()
	m.log.Debug("gossip: a node does not answer", "address", address, "error", err)
	if reason, sentence := explain(err.Error(), address); sentence != nil {
		m.report(reason, sentence)
	} else if text := err.Error(); (strings.Contains(text, "EOF") || strings.Contains(text, "connection reset")) &&
		!m.knows(address) { // a node that stops hangs up, too
		m.report(problemCluster, postdate.E(postdate.KindConflict,
			"What listens at %s hangs up: it is no node of this cluster, or no node at all. --join must name the "+
				"--gossip addresses of nodes that share this node's --store.", address))
	}
}

// knows says whether a node of this cluster was seen at an address, and is not forgotten.
func (m *Membership) knows(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range m.roster {
		if k.node.Address() == address {
			return true
		}
	}
	return false
}

// lookupSeeds returns the current addresses of the seeds, because those of a name may
// change. A name whose servers do not answer takes no more than half of the round.
func (m *Membership) lookupSeeds(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found := make([][]string, len(m.config.Seeds))
	var group errgroup.Group
	for i, seed := range m.config.Seeds {
		group.Go(func() error {
			found[i] = m.lookupSeed(ctx, seed)
			return nil
		})
	}
	_ = group.Wait()
	return slices.Concat(found...)
}

func (m *Membership) lookupSeed(ctx context.Context, seed string) (addresses []string) {
	host, port, err := split("--join", seed)
	if err != nil {
		return nil // Validate has checked it
	}
	ips, err := lookup(ctx, m.parts.resolver, host)
	if err != nil {
		m.log.Debug("gossip: no address is known for a seed", "seed", seed, "error", err)
	}
	for _, ip := range ips {
		addresses = append(addresses, net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	}
	return addresses
}

// clash says that two addresses use one name.
type clash struct{ name, mine, other string }

// refuseTwin returns an error if another node of this name is alive. The clash may be with
// this node's own earlier address, so refuseTwin asks that address for an answer.
func (m *Membership) refuseTwin(ctx context.Context) error {
	for {
		select {
		case c := <-m.clashes:
			if c.name == m.config.Name && m.answers(ctx, c) {
				m.metrics.refused.WithLabelValues(problemName).Inc()
				return postdate.E(postdate.KindConflict, "another node of this cluster is called %q already, "+
					"and answers at %s: give each node its own --node-id", c.name, c.other)
			} else if c.name == m.config.Name {
				events{m}.clash(c) // for rejoin
				return nil
			}
		default:
			return nil
		}
	}
}

// answers says whether a node of the name is alive at the other address.
func (m *Membership) answers(ctx context.Context, c clash) bool {
	udp, err := net.ResolveUDPAddr("udp", c.other)
	if err != nil {
		return false
	}
	for range pings {
		if ctx.Err() != nil {
			return false
		}
		if _, err := m.list.Ping(c.name, udp); err == nil {
			return true
		}
	}
	return false
}

// settle resolves a clash of names. It returns true if all members must hear from this
// node again, because they still believe its old address.
func (m *Membership) settle(ctx context.Context, c clash) (everybody bool) {
	if c.name != m.config.Name {
		m.report(problemName, postdate.E(postdate.KindConflict, "Two nodes are called %q, at %s and at %s: "+
			"give each its own --node-id. Until then only the first is heard.", c.name, c.mine, c.other))
		return false
	}
	if !m.pause(ctx, twinGrace/2) {
		return false
	}
	if !m.answers(ctx, c) {
		return true
	}
	if !m.pause(ctx, twinGrace/2) || !m.answers(ctx, c) {
		return false // the other node gave up its start
	}
	m.report(problemName, postdate.E(postdate.KindConflict,
		"Another node is called %q too, at %s: give each its own --node-id.", c.name, c.other))
	if m.config.OnConflict != nil {
		m.config.OnConflict(Conflict{Name: c.name, Mine: m.address, Other: c.other, Yield: m.address > c.other})
	}
	return false
}

// pause waits, and drops further clashes: they say the same. It returns false if ctx ends.
func (m *Membership) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-m.clashes:
		}
	}
}
