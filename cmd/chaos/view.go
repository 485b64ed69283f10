//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
	"github.com/postdate/postdate/internal/nodetest"
)

// awaitWhole waits until every bucket has an owner.
func (c *campaign) awaitWhole(ctx context.Context) error {
	deadline := time.Now().Add(settleTime)
	for {
		view, err := c.view(c.Nodes[0])
		if err == nil && view.whole(c.scenario.nodes) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %s not every bucket has an owner among %d nodes: %+v (%v)", settleTime, c.scenario.nodes, view, err)
		}
		if err := c.pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// view is the cluster as one node shows it.
type view struct {
	Buckets []struct {
		Bucket int
		Owner  string
		Token  uint64
	}
}

// whole reports whether that many nodes own all the buckets.
func (v view) whole(nodes int) bool {
	owners := map[string]int{}
	for _, b := range v.Buckets {
		owners[b.Owner]++
	}
	return len(v.Buckets) > 0 && owners[""] == 0 && len(owners) == nodes
}

// owned counts a node's buckets.
func (v view) owned(node string) (n int) {
	for _, b := range v.Buckets {
		if b.Owner == node {
			n++
		}
	}
	return n
}

func (c *campaign) view(n *cluster.Node) (v view, err error) {
	a := call(n, http.MethodGet, "/v1/cluster", nil)
	if a.code != http.StatusOK {
		return v, fmt.Errorf("/v1/cluster was answered with %s", a)
	}
	return v, json.Unmarshal(a.body, &v)
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
func (c *campaign) pending() int {
	a := c.load.call(http.MethodGet, fmt.Sprintf("/v1/messages?status=PENDING&limit=%d", pageOf), nil)
	var page struct{ Messages []struct{} }
	if a.code != http.StatusOK || json.Unmarshal(a.body, &page) != nil {
		return -1
	}
	return len(page.Messages)
}

const (
	auditPage    = 1000
	auditRepeats = 20 // of a page without an answer
)

// audit reads everything in the store into the account.
func (c *campaign) audit(ctx context.Context) error {
	query := url.Values{"limit": {fmt.Sprint(auditPage)}}
	for failed := 0; ; {
		a := c.load.call(http.MethodGet, "/v1/messages?"+query.Encode(), nil)
		var page struct {
			Messages   []nodetest.Shown
			NextCursor string
		}
		if a.code != http.StatusOK || json.Unmarshal(a.body, &page) != nil {
			if failed++; failed > auditRepeats {
				return fmt.Errorf("the store cannot be read to its end: %s", a)
			}
			if err := c.pause(ctx, time.Second); err != nil {
				return err
			}
			continue
		}
		for _, m := range page.Messages {
			c.ledger.Stored(m.ScheduleID, m.Status)
		}
		if page.NextCursor == "" {
			c.ledger.Audited()
			return nil
		}
		query.Set("cursor", page.NextCursor)
	}
}
