package stats

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/postdate/postdate/internal/series"
)

// Totals are the figures since a node started, by the name of the tenant in its series.
type Totals map[string]Figures

// of is what is known of a tenant, or of all if it is "".
func (t Totals) of(tenant string) Figures {
	if tenant != "" {
		return t[tenant]
	}
	var sum Figures
	for _, figures := range t {
		sum.add(figures)
	}
	return sum
}

// apart reports whether the tenant's figures are not among those of others.
func (t Totals) apart(tenant string) bool {
	_, others := t[series.Others]
	_, own := t[tenant]
	return tenant == "" || own || !others
}

// Read reads a node's metrics. Pending, by tenant, is what is stored.
func Read(families []*dto.MetricFamily) (t Totals, pending map[string]Pending) {
	t, pending = Totals{}, map[string]Pending{}
	for _, family := range families {
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
			t[tenant] = figures
		}
	}
	return t, pending
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
