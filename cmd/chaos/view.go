//go:build linux

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/postdate/postdate/client"
)

// awaitWhole waits until every bucket has an owner.
func (c *campaign) awaitWhole(ctx context.Context) error {
	deadline := time.Now().Add(settleTime)
	for {
		view, err := c.Nodes[0].API().Cluster(ctx)
		if err == nil && whole(view, c.scenario.nodes) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s not every bucket has an owner among %d nodes: %+v (%v)",
				settleTime, c.scenario.nodes, view, err)
		}
		if err := c.pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// whole reports whether that many nodes own all the buckets.
func whole(view client.Cluster, nodes int) bool {
	owners := map[string]int{}
	for _, b := range view.Buckets {
		owners[b.Owner]++
	}
	return len(view.Buckets) > 0 && owners[""] == 0 && len(owners) == nodes
}

// owned counts a node's buckets.
func owned(view client.Cluster, node string) (n int) {
	for _, b := range view.Buckets {
		if b.Owner == node {
			n++
		}
	}
	return n
}

// count formats a number of messages: -1 is unknown, and a full page means that or more.
func count(n int) string {
	switch {
	case n < 0:
		return "an unknown number"
	case n == pageOf:
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

const pageOf = 100

// pending counts the messages that are PENDING, up to a page; -1: unknown.
func (c *campaign) pending(ctx context.Context) (n int) {
	api, err := c.load.api()
	if err != nil {
		return -1
	}
	for _, err := range api.List(ctx, client.Filter{Status: client.Pending, PageSize: pageOf}) {
		if err != nil {
			return -1
		}
		if n++; n == pageOf {
			break
		}
	}
	return n
}

const auditTries = 20

// audit reads everything in the store into the account.
func (c *campaign) audit(ctx context.Context) (err error) {
	for range auditTries {
		if err = c.auditOnce(ctx); err == nil {
			c.ledger.Audited()
			return nil
		}
		if err := c.pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return fmt.Errorf("the store cannot be read to its end: %w", err)
}

func (c *campaign) auditOnce(ctx context.Context) error {
	api, err := c.load.api()
	if err != nil {
		return err
	}
	for m, err := range api.List(ctx, client.Filter{}) {
		if err != nil {
			return err
		}
		occurrences, is := c.load.series[m.ScheduleID]
		if !is {
			c.ledger.Stored(m.ScheduleID, string(m.Status))
			continue
		}
		if m.Series.Fired != int64(len(occurrences)) || m.Series.Failed != 0 || m.Series.Skipped != 0 {
			c.ledger.Odd(fmt.Sprintf("of the %d occurrences of %s, %d were fired, %d failed, %d were skipped",
				len(occurrences), m.ScheduleID, m.Series.Fired, m.Series.Failed, m.Series.Skipped))
		}
		for _, id := range occurrences {
			c.ledger.Stored(id, string(m.Status))
		}
	}
	return nil
}

// stored returns what a node says about a message.
func (c *campaign) stored(id string) string {
	api, err := c.load.api()
	if err != nil {
		return err.Error()
	}
	m, err := api.Get(context.Background(), id)
	if err != nil {
		return err.Error()
	}
	m.Payload = nil
	return fmt.Sprintf("%+v", m)
}
