//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/account"
)

const (
	warmUp       = 5 * time.Second  // load before the first fault
	calmDown     = 3 * time.Second  // for copies that arrive after the last message
	drainTimeout = 90 * time.Second // for one more message to arrive, once all is healed
	settleTime   = 60 * time.Second // for the cluster to be whole at the start
	lateShown    = time.Second      // seconds in which messages were later than this are reported
	inbox        = "chaos"
)

var queues = []string{"chaos-1", "chaos-2", "chaos-3", "chaos-4"}

// options are the user's settings for a campaign.
type options struct {
	dir      string
	duration time.Duration
	rate     int
	races    float64
	seed     uint64
	race     bool
	binary   string
	verbose  bool
	out      io.Writer
}

// campaign is one run of a scenario.
type campaign struct {
	options
	*cluster.Cluster
	scenario scenario
	ledger   *account.Ledger
	load     *load
	random   *rand.Rand // the driver's own: the sequence of faults does not depend on the load
	until    time.Time  // no new fault begins after it
	began    time.Time

	mu     sync.Mutex
	kills  []time.Time
	missed []string // limits that were exceeded
	notes  []string // a scenario's results, in addition to the account
}

// outcome is the result of a campaign.
type outcome struct {
	account.Report
	Missed, Notes []string
}

// runCampaign runs a scenario: servers, load, faults, healing, account.
func runCampaign(ctx context.Context, s scenario, o options) (_ outcome, err error) {
	c := &campaign{options: o, scenario: s, ledger: account.NewLedger(margins),
		random: rand.New(rand.NewPCG(o.seed, 2)), began: time.Now()}
	config := s.config
	config.Dir, config.Race, config.Binary = o.dir, o.race, o.binary
	c.logf("%s, seed %d: starting the servers", s.name, o.seed)
	if c.Cluster, err = cluster.Open(config); err != nil {
		return outcome{}, err
	}
	defer c.Cluster.Close()
	if err := declare(c.Rabbit.URL, queues); err != nil {
		return outcome{}, fmt.Errorf("declaring the queues: %w", err)
	}
	for _, n := range c.Nodes[:s.nodes] {
		if err := n.Start(); err != nil {
			return outcome{}, err
		}
	}
	if err := c.awaitWhole(ctx); err != nil {
		return outcome{}, err
	}
	receiving, stopReceiving := context.WithCancel(ctx)
	defer stopReceiving()
	c.load = newLoad(c.ledger, c.Nodes, o.rate, o.seed)
	c.load.races = o.races
	for _, q := range queues {
		c.load.queues = append(c.load.queues, "rabbitmq:"+q)
	}
	c.load.queues = append(c.load.queues, "inbox:"+inbox)
	var receivers sync.WaitGroup
	receivers.Go(func() { consume(receiving, c.Rabbit.URL, queues, c.ledger) })
	receivers.Go(func() { c.load.follow(receiving, inbox) })

	err = c.disturb(ctx)
	if err == nil {
		err = c.drain(ctx)
	}
	stopReceiving()
	receivers.Wait()
	if err == nil {
		err = c.audit(ctx)
	}
	return c.balance(), err
}

// disturb runs the load and the scenario's faults, and then heals everything.
func (c *campaign) disturb(ctx context.Context) error {
	c.until = time.Now().Add(c.duration)
	stop, loaded := make(chan struct{}), make(chan struct{})
	err := c.load.scheduleSeries(c.duration)
	go func() {
		defer close(loaded)
		c.load.run(stop)
	}()
	if err == nil {
		err = c.pause(ctx, warmUp)
	}
	if err == nil {
		err = c.scenario.drive(ctx, c)
	}
	if rest := time.Until(c.until); err == nil && rest > 0 {
		err = c.pause(ctx, rest)
	}
	c.measured()
	close(stop)
	c.logf("healing, with %d open", c.ledger.Open())
	healed := c.heal()
	<-loaded
	return errors.Join(err, healed)
}

// heal ends whatever faults left behind.
func (c *campaign) heal() (err error) {
	for _, n := range c.Nodes {
		for _, g := range []*cluster.Gate{n.Store, n.Broker} {
			if g != nil {
				g.Heal()
			}
		}
	}
	for _, n := range c.Nodes[:c.scenario.nodes] {
		if !n.Running() {
			err = errors.Join(err, n.Start())
		}
	}
	return err
}

// drain waits until everything owed has arrived.
func (c *campaign) drain(ctx context.Context) error {
	deadline, least := time.Now().Add(drainTimeout), c.ledger.Open()
	for {
		open, pending := c.ledger.Open(), c.pending(ctx)
		if open == 0 && pending == 0 {
			break
		}
		if open < least { // progress counts, because a busy machine takes longer
			deadline, least = time.Now().Add(drainTimeout), open
		}
		if time.Now().After(deadline) {
			c.logf("for %s there have been %d messages that do not arrive, and %s PENDING",
				drainTimeout, open, count(pending))
			break // the account says which
		}
		if err := c.pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	c.logf("drained %s after the load", time.Since(c.until).Round(time.Millisecond))
	return c.pause(ctx, calmDown)
}

// balance closes the account, and asks the nodes about violations.
func (c *campaign) balance() outcome {
	for _, n := range c.Nodes {
		if err := n.Crash(); err != nil {
			c.ledger.Crashed(err.Error())
		}
	}
	for _, check := range c.scenario.limits {
		check(c)
	}
	r := c.ledger.Check()
	asked := 0
	for i, v := range r.Violations {
		if v.ID == "" || asked == 10 {
			continue
		}
		asked++
		r.Violations[i].Text += "\n    the store says: " + c.stored(v.ID)
	}
	c.tellLate()
	if left := c.load.left.Load(); left > 0 {
		c.note("%d messages were not sent, because %d calls were in flight already", left, callsMax)
	}
	return outcome{Report: r, Missed: c.missed, Notes: c.notes}
}

// tellLate logs when messages were late, up to ten seconds per line.
func (c *campaign) tellLate() {
	seconds := c.ledger.Seconds(lateShown)
	for len(seconds) > 0 {
		sum, to := seconds[0], seconds[0].From
		rest := seconds[1:]
		for len(rest) > 0 && rest[0].From.Sub(to) == time.Second && to.Sub(sum.From) < 9*time.Second {
			next := rest[0]
			to, rest = next.From, rest[1:]
			sum.Due, sum.Late, sum.Worst = sum.Due+next.Due, sum.Late+next.Late, max(sum.Worst, next.Worst)
		}
		c.logf("  of %d that were due from %s to %s, %d came more than %s late, the last %s",
			sum.Due, sum.From.Format(time.TimeOnly), to.Add(time.Second).Format(time.TimeOnly),
			sum.Late, lateShown, sum.Worst.Round(time.Millisecond))
		seconds = rest
	}
}

// pause waits for d, or until ctx ends.
func (c *campaign) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *campaign) logf(format string, args ...any) {
	if c.verbose {
		fmt.Fprintf(c.out, "%s %7.1f s  %s\n", time.Now().Format("15:04:05.000"), time.Since(c.began).Seconds(),
			fmt.Sprintf(format, args...))
	}
}

// miss records a limit that was exceeded: no promise was broken, but something took too long.
func (c *campaign) miss(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed = append(c.missed, fmt.Sprintf(format, args...))
}

// note records a result.
func (c *campaign) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}
