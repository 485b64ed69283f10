//go:build linux

package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/account"
)

// scenario is a kind of fault campaign.
type scenario struct {
	name, about string
	nodes       int // how many run at the start and at the end
	config      cluster.Config
	drive       func(ctx context.Context, c *campaign) error // returns when the last fault is over
	limits      []func(c *campaign)
}

var (
	three    = cluster.Config{Nodes: 3}
	apart    = cluster.Config{Nodes: 3, Isolated: true}
	embedded = cluster.Config{Nodes: 1, Embedded: true}
)

var everything = []fault{
	killNode, stopNode, splitOne, splitAll, splitOneWay, cutStore, delayStore, resetStore, killPrimary, stepDowns(3),
	depose, killBroker, alarmBroker, cutBroker,
}

// scenarios lists all scenarios, in the order in which list shows them.
var scenarios = []scenario{
	{"mixed", "a random sequence of all faults of a cluster", 3, apart, shuffled(everything), nil},
	{"kill9", "kill -9 of one of three nodes", 3, three, repeated(killNode),
		[]func(*campaign){backWithin(4 * time.Second)}},
	{"stop", "SIGSTOP of an owner for three lease times", 3, three, repeated(stopNode), nil},
	{"rolling", "all nodes restarted in turn, then 1, 5 and 2 nodes",
		3, cluster.Config{Nodes: 5}, rolling, []func(*campaign){noGapOver(500 * time.Millisecond)}},
	{"netsplit", "nodes cut off from each other, not from their store",
		3, apart, repeated(splitOne, splitAll, splitOneWay), nil},
	{"storecut", "a node cut off from MongoDB, or far from it, or never answered",
		3, apart, repeated(cutStore, delayStore, resetStore), nil},
	{"primary", "MongoDB's primary killed, and stepping down", 3, three, repeated(killPrimary, stepDowns(12)), nil},
	{"deposed", "MongoDB's primary stopped and awake again as a deposed one", 3, three, repeated(depose), nil},
	{"broker", "RabbitMQ killed, alarmed, its connections cut",
		3, three, repeated(killBroker, alarmBroker, cutBroker), nil},
	{"disk", "the embedded store on a disk that fills up",
		1, cluster.Config{Nodes: 1, Embedded: true, DiskMiB: 1024}, repeated(fillDisk), nil},
	{"clock", "MongoDB's clock further from the nodes' than is allowed",
		3, cluster.Config{Nodes: 3, Clock: true}, repeated(shiftClock), nil},
	{"alone", "kill -9 of one node on the embedded store", 1, embedded, repeated(crashNode), nil},
}

func scenarioNamed(name string) (scenario, bool) {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return scenario{}, false
	}
	return scenarios[i], true
}

const (
	quietAfter = aftermath + 3*time.Second // so that there is some load away from faults
	busyPause  = 4 * time.Second           // between the faults of a random sequence, on average
)

// repeated runs the faults in turn, each at least once, with a quiet time after each, until the
// time is over.
func repeated(faults ...fault) func(context.Context, *campaign) error {
	return func(ctx context.Context, c *campaign) error {
		for i := 0; ; i++ {
			if i >= len(faults) && time.Now().Add(quietAfter).After(c.until) {
				return nil
			}
			if err := faults[i%len(faults)](ctx, c); err != nil {
				return err
			}
			if err := c.pause(ctx, min(quietAfter, max(time.Until(c.until), busyPause))); err != nil {
				return err
			}
		}
	}
}

// shuffled runs the faults in random order, repeatedly, and sometimes begins one before the
// effects of the last are over.
func shuffled(faults []fault) func(context.Context, *campaign) error {
	return func(ctx context.Context, c *campaign) error {
		for {
			order := c.random.Perm(len(faults))
			for _, i := range order {
				if time.Now().After(c.until) {
					return nil
				}
				if err := faults[i](ctx, c); err != nil {
					return err
				}
				if err := c.pause(ctx, c.some(0, 2*busyPause)); err != nil {
					return err
				}
			}
		}
	}
}

// rolling restarts all nodes in turn, and then runs 1, 5 and 2 of them. None of this may cause
// a mark.
func rolling(ctx context.Context, c *campaign) error {
	step := func(name string, f func() error) error {
		err := c.window(account.Window{Fault: name}, f)
		return errors.Join(err, c.pause(ctx, 4*time.Second))
	}
	scale := func(nodes int) error {
		for i, n := range c.Nodes {
			var err error
			switch {
			case i < nodes && !n.Running():
				err = step("start of "+n.Name, n.Start)
			case i >= nodes && n.Running():
				err = step("stop of "+n.Name, n.Stop)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	for {
		for _, n := range c.Nodes[:3] {
			if err := step("restart of "+n.Name, func() error { return errors.Join(n.Stop(), n.Start()) }); err != nil {
				return err
			}
		}
		for _, nodes := range []int{1, 5, 2, 3} {
			if err := scale(nodes); err != nil {
				return err
			}
		}
		if time.Now().After(c.until) {
			return nil
		}
	}
}

// fillDisk fills the embedded store's disk, and frees it again.
func fillDisk(ctx context.Context, c *campaign) error {
	return c.during("full disk", func() error {
		err := errors.Join(c.Disk.Fill(), c.pause(ctx, 8*time.Second), c.Disk.Free())
		if err == nil && !c.Nodes[0].Running() {
			c.note("the node ended when its disk was full")
			err = c.Nodes[0].Start()
		}
		return err
	})
}

// shiftClock sets MongoDB's clock 3 s ahead or back for a while: more than --clock-skew-max
// allows, so no node may own anything.
func shiftClock(ctx context.Context, c *campaign) error {
	by := 3 * time.Second
	if c.random.IntN(2) == 0 {
		by = -by
	}
	return c.during("MongoDB's clock off by "+by.String(), func() error {
		if err := errors.Join(c.Clock.Shift(by), c.pause(ctx, 8*time.Second)); err != nil {
			return errors.Join(err, c.Clock.Shift(0))
		}
		for _, n := range c.Nodes {
			ready := n.API().Ready(ctx)
			v, err := n.API().Cluster(ctx)
			c.note("clock off by %s: /readyz of %s says %v, and it owns %d buckets (%v)",
				by, n.Name, ready, owned(v, n.Name), err)
			if ready == nil || owned(v, n.Name) > 0 {
				c.miss("%s takes part though the clocks differ by %s", n.Name, by)
			}
		}
		return c.Clock.Shift(0)
	})
}

// backWithin requires that no message is late for longer than limit after a kill.
func backWithin(limit time.Duration) func(*campaign) {
	const late = time.Second // more than a busy machine alone causes
	return func(c *campaign) {
		for _, kill := range c.kills {
			last := c.ledger.Recovered(kill, kill.Add(limit), late)
			c.note("the last message that was more than %s late came %s after the kill",
				late, last.Round(time.Millisecond))
			if last > limit {
				c.miss("the last late message came %s after a kill, limit %s", last.Round(time.Millisecond), limit)
			}
		}
	}
}

// noGapOver limits the time in which nothing arrives while something is due.
func noGapOver(limit time.Duration) func(*campaign) {
	return func(c *campaign) {
		if gap := c.ledger.Check().Gap; gap.Long > limit {
			c.miss("nothing came for %s from %s, limit %s",
				gap.Long.Round(time.Millisecond), gap.From.Format("15:04:05.000"), limit)
		}
	}
}

// list describes the scenarios.
func list() string {
	var b strings.Builder
	for _, s := range scenarios {
		b.WriteString("  " + s.name + strings.Repeat(" ", 10-len(s.name)) + s.about + "\n")
	}
	return b.String()
}
