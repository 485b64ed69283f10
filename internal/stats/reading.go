package stats

import (
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/postdate/postdate/internal/series"
)

// ByTenant has the figures since a node started, by the name of the tenant in its series.
type ByTenant map[string]Figures

// of is what is known of a tenant, or of all if it is "".
func (t ByTenant) of(tenant string) Figures {
	if tenant != "" {
		return t[tenant]
	}
	var sum Figures
	for _, figures := range t {
		sum.add(figures)
	}
	return sum
}

// Reading is what a node's metrics say.
type Reading struct {
	ByTenant ByTenant
	pending  map[string]Pending // by tenant: what is stored
	channels map[channel]uint64 // what brokers confirmed
	// mixed has, for each metric in which some tenants share a series, those that do not.
	mixed []map[string]bool
}

// ownSeries reports whether the tenant's figures are in no series of others.
func (r *Reading) ownSeries(tenant string) bool {
	return tenant == "" || !slices.ContainsFunc(r.mixed, func(own map[string]bool) bool { return !own[tenant] })
}

// Pending is what of a tenant, or of all if it is "", is pending in the whole store; nil: not known.
func (r *Reading) Pending(tenant string) *Pending {
	sum, known := r.pending[tenant]
	if tenant == "" {
		for _, p := range r.pending {
			sum.Messages, sum.Bytes = sum.Messages+p.Messages, sum.Bytes+p.Bytes
		}
	} else if _, mixed := r.pending[series.Others]; mixed && !known {
		return nil
	}
	return &sum
}

// Read reads a node's metrics.
func Read(families []*dto.MetricFamily) Reading {
	t, pending := ByTenant{}, map[string]Pending{}
	r := Reading{ByTenant: t, pending: pending, channels: map[channel]uint64{}}
	for _, family := range families {
		own := map[string]bool{}
		for _, m := range family.Metric {
			tenant := label(m, "tenant")
			figures, stored := t[tenant], pending[tenant]
			count := uint64(m.GetCounter().GetValue())
			switch name := family.GetName(); {
			case name == "postdate_scheduled_total",
				name == "postdate_ingest_commands_total" && label(m, "result") == "scheduled":
				figures.Scheduled += count
			case name == "postdate_cancelled_total",
				name == "postdate_ingest_commands_total" && label(m, "result") == "cancelled":
				figures.Cancelled += count
			case name == "postdate_settled_total" && label(m, "how") == "delivered":
				figures.Delivered += count
			case name == "postdate_settled_total" && label(m, "how") == "failed":
				figures.Failed += count
			case name == "postdate_publishes_total" && label(m, "outcome") == "confirmed":
				r.channels[channel{tenant, label(m, "channel")}] = count
				continue
			case name == "postdate_lateness_seconds":
				figures.Lateness = figures.Lateness.plus(latenessOf(m.GetHistogram()))
			case name == "postdate_pending_messages":
				stored.Messages = int64(m.GetGauge().GetValue())
				pending[tenant] = stored
				continue
			case name == "postdate_pending_bytes":
				stored.Bytes = int64(m.GetGauge().GetValue())
				pending[tenant] = stored
				continue
			default:
				continue
			}
			t[tenant], own[tenant] = figures, true
		}
		if own[series.Others] {
			r.mixed = append(r.mixed, own)
		}
	}
	return r
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.Label {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func latenessOf(h *dto.Histogram) Lateness {
	l := make(Lateness, 0, len(Bounds)+1)
	before := uint64(0)
	for _, b := range h.Bucket {
		l = append(l, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
	}
	return append(l, h.GetSampleCount()-before)
}
