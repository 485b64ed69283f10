//go:build linux

package main

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/account"
)

// leaseTime is the default of --lease.
const leaseTime = 2500 * time.Millisecond

const (
	// claimAhead is how far a claim may run ahead of a fault, plus a margin for the time between
	// a fault and its record.
	claimAhead = 3 * time.Second
	// aftermath is how long a fault's effects may outlast it: a lease expires, other nodes take
	// over, channels are probed again.
	aftermath = 12 * time.Second
)

// margins are those of a campaign's account.
var margins = account.Margins{Before: claimAhead, After: aftermath}

// splitMin and splitMax bound how long nodes are cut off from each other: long enough for
// gossip to declare them dead.
const splitMin, splitMax = 8 * time.Second, 16 * time.Second

// A fault happens and is healed. It returns when it is over.
type fault func(ctx context.Context, c *campaign) error

// during records f as a fault that may cause marks.
func (c *campaign) during(name string, f func() error) error {
	return c.window(account.Window{Fault: name, Marks: true}, f)
}

// window records f as a fault.
func (c *campaign) window(w account.Window, f func() error) error {
	w.From = time.Now()
	c.logf("%s", w.Fault)
	err := f()
	w.To = time.Now()
	c.ledger.Fault(w)
	c.logf("%s is over; %d open", w.Fault, c.ledger.Open())
	return err
}

// pick chooses a node that is up.
func (c *campaign) pick() *cluster.Node {
	var up []*cluster.Node
	for _, n := range c.Nodes {
		if n.Up() {
			up = append(up, n)
		}
	}
	return up[c.random.IntN(len(up))]
}

// some returns a random duration.
func (c *campaign) some(from, to time.Duration) time.Duration {
	return from + time.Duration(c.random.Int64N(int64(to-from)))
}

// killNode kills a node with SIGKILL and restarts it some seconds later.
func killNode(ctx context.Context, c *campaign) error {
	n, down := c.pick(), c.some(5*time.Second, 9*time.Second)
	return c.during("kill -9 of "+n.Name, func() error {
		c.mu.Lock()
		c.kills = append(c.kills, time.Now())
		c.mu.Unlock()
		if err := n.Kill(); err != nil {
			return err
		}
		return errors.Join(c.pause(ctx, down), n.Start())
	})
}

// crashNode is killNode for a single node, which restarts immediately.
func crashNode(ctx context.Context, c *campaign) error {
	n := c.Nodes[0]
	return c.during("kill -9 of "+n.Name+", back at once", func() error { return errors.Join(n.Kill(), n.Start()) })
}

// stopNode stops an owner for three lease times and then lets it continue.
func stopNode(ctx context.Context, c *campaign) error {
	n := c.pick()
	before, err := n.API().Cluster(ctx)
	if err != nil {
		return err
	}
	return c.window(account.Window{Fault: "SIGSTOP of " + n.Name, Marks: true, HoldsUp: "*"}, func() error {
		if err := n.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		err := c.pause(ctx, 3*leaseTime)
		c.tokensGrew(before, n)
		return errors.Join(err, n.Signal(syscall.SIGCONT), c.pause(ctx, time.Second))
	})
}

// tokensGrew checks, before a node wakes up, that all of its buckets have another owner and a
// higher token, so that none of its claims can be accepted.
func (c *campaign) tokensGrew(before client.Cluster, asleep *cluster.Node) {
	for _, other := range c.Nodes {
		if other == asleep || !other.Up() {
			continue
		}
		now, err := other.API().Cluster(context.Background())
		if err != nil || len(now.Buckets) != len(before.Buckets) {
			c.note("%s did not tell who owns what: %v", other.Name, err)
			return
		}
		kept := 0
		for i, b := range now.Buckets {
			if was := before.Buckets[i]; was.Owner == asleep.Name && (b.Owner == asleep.Name || b.Token <= was.Token) {
				kept++
			}
		}
		c.note("%s slept for three leases: of its %d buckets %d kept their owner or token, "+
			"so that its claims would be accepted", asleep.Name, owned(before, asleep.Name), kept)
		if kept > 0 {
			c.miss("%d buckets of %s were not taken within three lease times", kept, asleep.Name)
		}
		return
	}
}

// splitOne cuts a node off from the others, while all still reach the store and the broker.
func splitOne(ctx context.Context, c *campaign) error {
	n, long := c.pick(), c.some(splitMin, splitMax)
	return c.during(n.Name+" cut off from the other nodes", func() error {
		return errors.Join(c.Plug(n, false), c.pause(ctx, long), c.Plug(n, true))
	})
}

// splitAll cuts every node off from the others.
func splitAll(ctx context.Context, c *campaign) error {
	long := c.some(splitMin, splitMax)
	return c.during("every node cut off from every other", func() error {
		var errs []error
		for _, n := range c.Nodes {
			errs = append(errs, c.Plug(n, false))
		}
		errs = append(errs, c.pause(ctx, long))
		for _, n := range c.Nodes {
			errs = append(errs, c.Plug(n, true))
		}
		return errors.Join(errs...)
	})
}

// splitOneWay loses what one node sends to another, and nothing else.
func splitOneWay(ctx context.Context, c *campaign) error {
	order, long := c.random.Perm(len(c.Nodes)), c.some(splitMin, splitMax)
	from, to := c.Nodes[order[0]], c.Nodes[order[1]]
	return c.during("nothing from "+from.Name+" to "+to.Name, func() error {
		return errors.Join(c.Deafen(from, to, true), c.pause(ctx, long), c.Deafen(from, to, false))
	})
}

// cutStore cuts a node off from MongoDB for 20 s.
func cutStore(ctx context.Context, c *campaign) error {
	n := c.pick()
	return c.window(account.Window{Fault: n.Name + " cut off from MongoDB", Marks: true, HoldsUp: "inbox"},
		func() error {
			n.Store.Cut()
			defer n.Store.Heal()
			return c.pause(ctx, 20*time.Second)
		})
}

// delayStore delays everything between a node and MongoDB by 5 s.
func delayStore(ctx context.Context, c *campaign) error {
	n := c.pick()
	return c.window(account.Window{Fault: "5 s between " + n.Name + " and MongoDB", Marks: true, HoldsUp: "inbox"},
		func() error {
			n.Store.Delay(5 * time.Second)
			defer n.Store.Heal()
			return c.pause(ctx, 12*time.Second)
		})
}

// resetStore loses MongoDB's answers to a node.
func resetStore(ctx context.Context, c *campaign) error {
	n := c.pick()
	return c.during("connections of "+n.Name+" to MongoDB reset after the request", func() error {
		for range 10 {
			n.Store.ResetAfterSend()
			err := c.pause(ctx, c.some(20*time.Millisecond, 200*time.Millisecond))
			n.Store.Heal()
			if err == nil {
				err = c.pause(ctx, c.some(200*time.Millisecond, time.Second))
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// try runs steps that panic if they fail.
func try(steps ...func()) error {
	for _, f := range steps {
		if err := cluster.Try(f); err != nil {
			return err
		}
	}
	return nil
}

// killPrimary kills MongoDB's primary and restarts it.
func killPrimary(ctx context.Context, c *campaign) error {
	return c.during("kill -9 of MongoDB's primary", func() error {
		return try(func() {
			p := c.Mongo.Primary()
			c.Mongo.Kill(p)
			_ = c.pause(ctx, 6*time.Second)
			c.Mongo.Restart(p)
			c.Mongo.Primary()
		})
	})
}

// stepDowns makes the primary step down every 5 s, that many times.
func stepDowns(times int) fault {
	return func(ctx context.Context, c *campaign) error {
		return c.during("MongoDB's primary steps down every 5 s", func() error {
			for range times {
				if err := errors.Join(try(c.Mongo.StepDown), c.pause(ctx, 5*time.Second)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// depose stops the primary for 10 s, so that it is deposed when it continues.
func depose(ctx context.Context, c *campaign) error {
	return c.during("SIGSTOP of MongoDB's primary", func() error {
		return try(func() {
			p := c.Mongo.Primary()
			c.Mongo.Stop(p)
			_ = c.pause(ctx, 10*time.Second)
			c.Mongo.Cont(p)
		})
	})
}

// killBroker kills RabbitMQ and restarts it.
func killBroker(ctx context.Context, c *campaign) error {
	return c.during("kill -9 of RabbitMQ", func() error {
		return try(c.Rabbit.Kill, func() { _ = c.pause(ctx, 2*time.Second) }, c.Rabbit.Restart)
	})
}

// alarmBroker makes RabbitMQ block its publishers.
func alarmBroker(ctx context.Context, c *campaign) error {
	return c.during("memory alarm of RabbitMQ", func() error {
		return try(func() { c.Rabbit.SetMemoryAlarm(true) }, func() { _ = c.pause(ctx, 8*time.Second) },
			func() { c.Rabbit.SetMemoryAlarm(false) })
	})
}

// cutBroker makes RabbitMQ close all connections, three times.
func cutBroker(ctx context.Context, c *campaign) error {
	return c.during("connections to RabbitMQ closed", func() error {
		for range 3 {
			if err := try(c.Rabbit.CloseAllConnections); err != nil {
				return err
			}
		}
		return nil
	})
}
