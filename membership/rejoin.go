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
	// joinsAtOnce bounds how many addresses are tried beside each other.
	joinsAtOnce = 8

	// twinGrace is how long a second node of a name has to go away again: one
	// that starts refuses itself when it finds the first.
	twinGrace = 2 * time.Second

	// tellFor is how long a node that came back under another address tells all
	// others of it: until they must have missed the old one.
	tellFor = 30 * time.Second

	// pings is how often a twin is asked before it is taken for gone.
	pings = 3
)

// rejoin tries again and again whoever should be a member and is not, for the
// library itself never asks again for somebody who was gone for long.
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
	wait := func() time.Duration { // not all nodes at the same moment
		return m.config.RejoinEvery*3/4 + time.Duration(rand.Int64N(int64(m.config.RejoinEvery)/2+1))
	}
	timer := time.NewTimer(wait())
	defer timer.Stop()
	var tellUntil time.Time // to tell everybody of this node, for they may believe its old address
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

// join tries everybody who is missing, or everybody at all, so that they hear of
// this node.
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
		return // the first node of a cluster is alone for a moment
	}
	if elsewhere := outside(seeds); m.transport.loopback() && elsewhere != "" {
		m.report(problemAlone, postdate.E(postdate.KindUnavailable, "This node is alone: --gossip %s is reached from this machine only, and --join names %s on another one. Write --gossip 0.0.0.0:7946, or an address of the network between them.", m.config.Bind, elsewhere))
	} else {
		m.report(problemAlone, postdate.E(postdate.KindUnavailable, "None of the addresses in --join answers as a node of this cluster: this node is alone, and tries again every %s. Its own address is %s, over TCP and UDP.", m.config.RejoinEvery, m.address))
	}
}

// outside is the first of the addresses that is on another machine.
func outside(addresses []string) string {
	for _, a := range addresses {
		if at, err := netip.ParseAddrPort(a); err == nil && !at.Addr().IsLoopback() {
			return a
		}
	}
	return ""
}

// try exchanges what both sides know with the node at an address.
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
	} else if text := err.Error(); strings.Contains(text, "EOF") || strings.Contains(text, "connection reset") {
		m.report(problemCluster, postdate.E(postdate.KindConflict, "What listens at %s hangs up: it is no node of this cluster, or no node at all. --join must name the --gossip addresses of nodes that share this node's --store.", address))
	}
}

// lookupSeeds finds the addresses that the seeds stand for now: behind a name there
// may be others than a moment ago.
//
// A name whose servers do not answer takes no more than a half of the round.
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
		return nil // it was looked at at the start
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

// clash is that two addresses were heard of under one name.
type clash struct{ name, mine, other string }

// refuseTwin gives up the start where another node of this name is alive. What was
// heard may be this node's own past, under the address that it had before: so that
// address is asked.
func (m *Membership) refuseTwin(ctx context.Context) error {
	for {
		select {
		case c := <-m.clashes:
			if c.name == m.config.Name && m.answers(ctx, c) {
				m.metrics.refused.WithLabelValues(problemName).Inc()
				return postdate.E(postdate.KindConflict, "another node of this cluster is called %q already, and answers at %s: give each node its own --node-id", c.name, c.other)
			} else if c.name == m.config.Name {
				events{m}.clash(c) // the loop will see to it
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

// settle looks into a clash of names. It returns true where everybody is to hear of
// this node again, for they still believe its old address.
func (m *Membership) settle(ctx context.Context, c clash) (everybody bool) {
	if c.name != m.config.Name {
		m.report(problemName, postdate.E(postdate.KindConflict, "Two nodes are called %q, at %s and at %s: give each its own --node-id. Until then only the first is heard.", c.name, c.mine, c.other))
		return false
	}
	if !m.pause(ctx, twinGrace/2) {
		return false
	}
	if !m.answers(ctx, c) {
		return true
	}
	if !m.pause(ctx, twinGrace/2) || !m.answers(ctx, c) {
		return false // it refused itself
	}
	m.report(problemName, postdate.E(postdate.KindConflict, "Another node is called %q too, at %s: give each its own --node-id.", c.name, c.other))
	if m.config.OnConflict != nil {
		m.config.OnConflict(Conflict{Name: c.name, Mine: m.address, Other: c.other, Yield: m.address > c.other})
	}
	return false
}

// pause waits, and takes up what else comes of clashes: they say the same.
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
