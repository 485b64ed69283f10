package api

import (
	"context"
	"testing"
	"time"

	"github.com/postdate/postdate/auth"
	"github.com/postdate/postdate/internal/stats"
)

func withStats(c *Config) {
	c.Stats = func(_ context.Context, tenant string) stats.Stats {
		late := make(stats.Lateness, len(stats.Bounds)+1)
		late[1] = 3
		slots := []stats.Slot{{From: testNow - 10_000, Lasted: stats.SlotTime, Figures: stats.Figures{Delivered: 3, Lateness: late}}}
		s := stats.Merge(testNow, map[string]stats.Report{"a": {OwnSeries: true, Slots: slots, Overdue: 2 * time.Second, ChannelsDown: 1,
			Down:  []stats.DownChannel{{Tenant: "acme", Channel: "rabbitmq:orders", Reason: "refused"}},
			Total: stats.Figures{Scheduled: 9, Delivered: 3, Failed: 1, Cancelled: 2}}})
		if tenant != "" {
			s.Sum.Down = nil
		}
		s.Tenant, s.Missing, s.Sum.Slots = tenant, []string{"b"}, s.Sum.Slots[len(s.Sum.Slots)-2:]
		return s
	}
}

const shownStats = `"total":{"scheduled":9,"delivered":3,"failed":1,"cancelled":2},` +
	`"lastMinute":{"from":"2027-01-30T11:59:00.000Z","seconds":60,"scheduled":0,"delivered":3,"failed":0,"cancelled":0,"latenessMs":{"p50":0.75,"p99":0.995}},` +
	`"perSecond":{"scheduled":0,"delivered":0.05,"failed":0,"cancelled":0},` +
	`"slots":[{"from":"2027-01-30T11:59:50.000Z","seconds":10,"scheduled":0,"delivered":3,"failed":0,"cancelled":0,"latenessMs":{"p50":0.75,"p99":0.995}},` +
	`{"from":"2027-01-30T12:00:00.000Z","seconds":0,"scheduled":0,"delivered":0,"failed":0,"cancelled":0}]}`

const (
	statsOfAll = `{"at":"2027-01-30T12:00:00.000Z","nodes":["a"],"missing":["b"],"ownSeries":true,"overdueMs":2000,"inHand":0,"channelsDown":1,`
	statsDown  = `"down":[{"tenant":"acme","channel":"rabbitmq:orders","reason":"refused"}],`
	statsOf    = `{"at":"2027-01-30T12:00:00.000Z","tenant":"acme","nodes":["a"],"missing":["b"],"ownSeries":true,` + shownStats
)

// Who sees all metrics sees the figures of all, and an administrator which channels are down, and why. With any other
// key they are those of its tenant.
func TestStats(t *testing.T) {
	r := newRig(t, withStats)
	r.send("GET", "/v1/stats", "").want(200, statsOfAll+statsDown+shownStats)

	r = newRig(t, withStats, withKeys)
	key := func(tenant string, scope auth.Scope) string {
		return bearer(r.keyFor(auth.Wish{Tenant: tenant, Scopes: []auth.Scope{scope}}))
	}
	for _, who := range []string{bearer(adminKey), key("beta", auth.Admin)} {
		r.send("GET", "/v1/stats", "", who).want(200, statsOfAll+statsDown+shownStats)
	}
	r.send("GET", "/v1/stats", "", key("default", auth.Operate)).want(200, statsOfAll+shownStats)
	r.send("GET", "/v1/stats", "", bearer(adminKey), "Postdate-Tenant: acme").want(200, statsOf)
	r.send("GET", "/v1/stats", "", key("acme", auth.Operate)).want(200, statsOf)
	r.send("GET", "/v1/stats", "", key("acme", auth.ReadMessages)).problem(403, Forbidden)
}
