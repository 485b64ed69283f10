package poller

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
	"github.com/postdate/postdate/internal/stats"
	"github.com/postdate/postdate/publisher"
	"github.com/postdate/postdate/store"
)

// channelLabelsMax bounds how many channels have series of their own; the others
// share one.
const channelLabelsMax = 200

// Metrics are the poller's series.
type Metrics struct {
	outcomes   *prometheus.CounterVec
	lateness   *prometheus.HistogramVec
	byPriority *prometheus.HistogramVec // of lateness
	ended      *prometheus.CounterVec
	marked     *prometheus.CounterVec
	overdue    prometheus.Gauge
	held       prometheus.Gauge
	hand       prometheus.Gauge
	down       prometheus.Gauge

	mu       sync.Mutex
	names    series.Tenants
	tenants  map[string]*tenantSeries // by these
	channels int                      // with series of their own
}

// tenantSeries are a tenant's series. They are looked up once, not for each message.
type tenantSeries struct {
	name       string
	ended      [len(settlingNames)]prometheus.Counter
	byPriority [postdate.PriorityLow + 1]prometheus.Observer // the lateness of each priority
	marked     prometheus.Counter
	channels   map[string]*channelSeries
}

type channelSeries struct {
	outcomes [publisher.Unknown + 1]prometheus.Counter
	lateness prometheus.Observer
}

// NewMetrics registers the series.
func NewMetrics(r prometheus.Registerer) *Metrics {
	auto := promauto.With(r)
	m := &Metrics{
		outcomes: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_publishes_total",
			Help: "Publishes by tenant, channel and outcome (confirmed, refused, down, unknown).",
		}, []string{"tenant", "channel", "outcome"}),
		lateness: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "postdate_lateness_seconds", Help: "From the execution time to the broker's confirm.",
			Buckets: stats.Bounds,
		}, []string{"tenant", "channel"}),
		ended: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_settled_total",
			Help: "Attempts by tenant and what became of them (delivered, retry, failed, parked).",
		}, []string{"tenant", "how"}),
		marked: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "postdate_possible_duplicates_total",
			Help: "Messages published with the mark of a possible duplicate, by tenant.",
		}, []string{"tenant"}),
		overdue: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_overdue_seconds", Help: "How long the earliest due message that is not settled has been " +
				"due; 0 where none is. Parked messages do not count.",
		}),
		held: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_buckets_held",
			Help: "Buckets that this node holds and may deliver from; none while its lease has ended.",
		}),
		hand: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_messages_in_hand", Help: "Messages in memory: claimed and not settled.",
		}),
		down: auto.NewGauge(prometheus.GaugeOpts{
			Name: "postdate_channels_down",
			Help: "Channels that take nothing at present, though nobody paused them; their messages are parked.",
		}),
		tenants: map[string]*tenantSeries{},
	}
	m.byPriority = auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "postdate_priority_lateness_seconds",
		Help: "From the execution time to the broker's confirm, by tenant and priority.",
		// The service levels ask for 1, 5 and 30.
		Buckets: []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600},
	}, []string{"tenant", "priority"})
	m.tenant(postdate.DefaultTenant)
	return m
}

// tenant returns the series of a tenant. The lock is held.
func (m *Metrics) tenant(name string) *tenantSeries {
	if t := m.tenants[name]; t != nil {
		return t
	}
	name = m.names.Name(name)
	if t := m.tenants[name]; t != nil { // that of the others
		return t
	}
	t := &tenantSeries{name: name, marked: m.marked.WithLabelValues(name), channels: map[string]*channelSeries{}}
	for how := store.SettleDelivered; int(how) < len(settlingNames); how++ {
		t.ended[how] = m.ended.WithLabelValues(name, settlingNames[how])
	}
	for _, p := range postdate.Priorities() {
		t.byPriority[p] = m.byPriority.WithLabelValues(name, p.String())
	}
	m.tenants[name] = t
	return t
}

// of returns the series of a message's tenant and channel.
func (m *Metrics) of(message *postdate.Message) (*tenantSeries, *channelSeries) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, name := m.tenant(message.Tenant), message.Channel.Shown()
	c := t.channels[name]
	if c == nil && m.channels >= channelLabelsMax {
		name = stats.OtherChannels
		c = t.channels[name]
	}
	if c != nil {
		return t, c
	}
	c = &channelSeries{lateness: m.lateness.WithLabelValues(t.name, name)}
	for o := publisher.Confirmed; o <= publisher.Unknown; o++ {
		c.outcomes[o] = m.outcomes.WithLabelValues(t.name, name, o.String())
	}
	t.channels[name] = c
	m.channels++
	return t, c
}

// Published counts the outcomes of a batch of one tenant and channel that ended at a given time.
func (m *Metrics) Published(p Published, at time.Time) {
	tenant, channel := m.of(p.Batch[0].Delivery.Message)
	var counts [publisher.Unknown + 1]int
	marked, settled := 0, 0
	for i, it := range p.Batch {
		outcome := p.Results[i].Outcome
		if outcome < publisher.Confirmed || outcome > publisher.Unknown {
			outcome = publisher.Unknown
		}
		counts[outcome]++
		if outcome == publisher.Confirmed {
			message := it.Delivery.Message
			late := at.Sub(it.Begins.Std()).Seconds()
			channel.lateness.Observe(late)
			tenant.byPriority[message.Priority].Observe(late)
		}
		if it.Delivery.PossibleDuplicate {
			marked++
		}
		if p.Results[i].Settled {
			settled++
		}
	}
	tenant.ended[store.SettleDelivered].Add(float64(settled))
	for outcome, n := range counts {
		if n > 0 {
			channel.outcomes[outcome].Add(float64(n))
		}
	}
	tenant.marked.Add(float64(marked))
}

var settlingNames = [...]string{store.SettleDelivered: "delivered", store.SettleRetry: "retry",
	store.SettleFailed: "failed", store.SettlePark: "parked", store.SettleSkip: "skipped",
	store.SettleRest: "paused"}

// Settled counts the settlements that were written.
func (m *Metrics) Settled(ss []store.Settlement) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var t *tenantSeries
	for i := range ss {
		if i == 0 || ss[i].Key.Tenant != ss[i-1].Key.Tenant {
			t = m.tenant(ss[i].Key.Tenant)
		}
		t.ended[ss[i].How].Inc()
	}
}

// Observe sets the gauges from v.
func (m *Metrics) Observe(v View) {
	m.overdue.Set(v.LongestOverdue().Seconds())
	m.held.Set(float64(v.Held))
	m.hand.Set(float64(v.Hand))
	m.down.Set(float64(v.Down))
}
