//go:build linux

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postdate/postdate/cmd/chaos/internal/cluster"
)

var (
	timing  = regexp.MustCompile(`(?m)^postdate_(store|lateness)_seconds_(sum|count)(?:\{[^}]*?(?:operation|channel)="([^"]*)"[^}]*\})? (\S+)$`)
	failing = regexp.MustCompile(`(?m)^postdate_store_errors_total\{kind="([^"]*)",operation="([^"]*)"\} (\S+)$`)
)

// spent says how often something happened, and how long it took in total.
type spent struct{ count, seconds float64 }

// timings reads a node's metrics: operations of the store, and lateness by channel.
func timings(metrics string, into map[string]spent, errors map[string]float64) {
	for _, m := range timing.FindAllStringSubmatch(metrics, -1) {
		v, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			continue
		}
		name := m[1] + " " + m[3]
		s := into[name]
		if m[2] == "sum" {
			s.seconds += v
		} else {
			s.count += v
		}
		into[name] = s
	}
	for _, m := range failing.FindAllStringSubmatch(metrics, -1) {
		if v, err := strconv.ParseFloat(m[3], 64); err == nil {
			errors[m[2]+": "+m[1]] += v
		}
	}
}

// measured logs where the nodes that are up have spent their time since their start.
func (c *campaign) measured() {
	all, errors := map[string]spent{}, map[string]float64{}
	for _, n := range c.Nodes {
		if n.Up() {
			timings(metrics(n), all, errors)
		}
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(-cmp.Compare(all[a].seconds, all[b].seconds), cmp.Compare(a, b))
	})
	for _, name := range names {
		if s := all[name]; s.count > 0 {
			c.logf("  %-40s %8.0f times, %s on average",
				name, s.count, time.Duration(s.seconds/s.count*float64(time.Second)).Round(10*time.Microsecond))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(errors)) {
		c.logf("  error of the store in %-19s %8.0f times", name, errors[name])
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		c.note("the machine's load is %s", strings.Join(strings.Fields(string(load))[:3], ", "))
	}
}

func metrics(n *cluster.Node) string {
	text, err := n.API().Metrics(context.Background())
	if err != nil {
		return fmt.Sprintf("# %v", err)
	}
	return string(text)
}
