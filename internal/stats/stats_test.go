package stats

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
)

// noon is the beginning of a slot.
const noon postdate.Time = 1_800_000_000_000

func after(d time.Duration) postdate.Time { return noon.Add(d) }

func scheduled(n uint64) Reading { return Reading{ByTenant: ByTenant{"default": {Scheduled: n}}} }

// What happened between two readings is in the slot in which the first one was, and nothing is counted twice or lost.
func TestRecorder(t *testing.T) {
	var r Recorder
	r.Record(after(3*time.Second), scheduled(5)) // before it, nobody knows when
	r.Record(after(9*time.Second), scheduled(7))
	r.Record(after(10*time.Second), scheduled(8))
	r.Record(after(10*time.Second), scheduled(10)) // at the same instant
	r.Record(after(20*time.Second), scheduled(14))
	r.Record(after(30*time.Second), scheduled(14)) // nothing
	r.Record(after(41*time.Second), scheduled(15))
	got := r.Report("")
	want := []Slot{
		{noon, 7 * time.Second, Figures{Scheduled: 3}},
		{after(10 * time.Second), 10 * time.Second, Figures{Scheduled: 6}},
		{after(30 * time.Second), 11 * time.Second, Figures{Scheduled: 1}},
	}
	if !reflect.DeepEqual(got.Slots, want) || got.Total.Scheduled != 15 {
		t.Errorf("the slots are %v of %d, want %v", got.Slots, got.Total.Scheduled, want)
	}
}

// The clock may be set. What happened is still counted, and no slot lies ahead.
func TestRecorderWhoseClockIsSet(t *testing.T) {
	var r Recorder
	r.Record(after(time.Hour), scheduled(0))
	r.Record(after(time.Hour+time.Second), scheduled(2))
	r.Record(noon, scheduled(5))
	r.Record(after(time.Second), scheduled(9))
	want := []Slot{{noon, time.Second, Figures{Scheduled: 7}}}
	if got := r.Report(""); !reflect.DeepEqual(got.Slots, want) {
		t.Errorf("the slots are %v, want %v", got.Slots, want)
	}
	r.Record(after(time.Hour), scheduled(9))
	if got := r.Report(""); len(got.Slots) > 0 {
		t.Errorf("an hour later, the slots are still %v", got.Slots)
	}
}

// A recorder keeps ten minutes, however long it runs.
func TestRecorderForgets(t *testing.T) {
	var r Recorder
	for i := range 1000 {
		r.Record(after(time.Duration(i)*SlotTime), scheduled(uint64(i)))
	}
	if got := len(r.Report("").Slots); got != slotsMax-1 { // the last one has only begun
		t.Errorf("it has %d slots, want %d", got, slotsMax-1)
	}
}

// Tenants see their own figures. Of one that shares its series with others nobody knows them.
func TestTenants(t *testing.T) {
	var r Recorder
	r.Record(noon, Reading{ByTenant: ByTenant{"acme": {}, "beta": {}}})
	r.Record(after(time.Second), Reading{ByTenant: ByTenant{"acme": {Delivered: 2}, "beta": {Delivered: 3}}})
	for tenant, want := range map[string]uint64{"": 5, "acme": 2, "beta": 3, "gamma": 0} {
		if n := r.Report(tenant); n.Total.Delivered != want || !n.OwnSeries {
			t.Errorf("%q: %+v", tenant, n)
		}
	}
}

// A tenant's figures are known only if no part of them is in a series of others.
func TestTenantsThatShareSeries(t *testing.T) {
	registry := prometheus.NewRegistry()
	gauge := func(name string, labels ...string) {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: name}, []string{"tenant"})
		registry.MustRegister(g)
		for _, tenant := range labels {
			g.WithLabelValues(tenant).Set(3)
		}
	}
	counter := func(name, label string, tenants ...string) {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: name}, []string{"tenant", label})
		registry.MustRegister(c)
		for _, tenant := range tenants {
			c.WithLabelValues(tenant, "delivered").Inc()
		}
	}
	gauge("postdate_pending_messages", "acme", series.Others)
	counter("postdate_scheduled_total", "broker", "acme", "beta")
	counter("postdate_settled_total", "how", "acme", series.Others)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var r Recorder
	read := Read(families)
	r.Record(noon, read)
	for tenant, own := range map[string]bool{"": true, "acme": true, "beta": false, "gamma": false} {
		if n := r.Report(tenant); n.OwnSeries != own {
			t.Errorf("%q has series of its own: %t", tenant, n.OwnSeries)
		}
	}
	for tenant, want := range map[string]*Pending{"": {Messages: 6}, "acme": {Messages: 3}, "beta": nil} {
		if got := read.Pending(tenant); !reflect.DeepEqual(got, want) {
			t.Errorf("pending of %q is %v", tenant, got)
		}
	}
}

// The sums of several nodes: slots side by side, rates of the last minute, and the worst of what is no sum.
func TestMerge(t *testing.T) {
	late := make(Lateness, len(Bounds)+1)
	late[3] = 4
	one := Report{OwnSeries: true, Overdue: time.Second, InHand: 2, ChannelsDown: 1, Total: Figures{Delivered: 9}, Slots: []Slot{
		{after(-time.Hour), SlotTime, Figures{Delivered: 100}}, // long ago
		{after(-70 * time.Second), SlotTime, Figures{Delivered: 50}},
		{after(-10 * time.Second), SlotTime, Figures{Delivered: 3, Lateness: late}},
		{noon, 4 * time.Second, Figures{Delivered: 2}},
	}}
	two := Report{OwnSeries: true, Overdue: 3 * time.Second, InHand: 5, ChannelsDown: 2, Total: Figures{Delivered: 10}, Slots: []Slot{
		{after(-10 * time.Second), SlotTime, Figures{Delivered: 4, Lateness: late}},
		{after(10 * time.Second), 0, Figures{Delivered: 1}}, // its clock is ahead
	}}
	one.Down = []DownChannel{{"acme", "rabbitmq:orders", "refused"}}
	two.Down = []DownChannel{{"acme", "rabbitmq:mails", "gone"}, {"acme", "rabbitmq:orders", "closed"}}
	for i := range DownMax {
		two.Down = append(two.Down, DownChannel{Tenant: "beta", Channel: postdate.Channel(fmt.Sprint("inbox:", i))})
	}
	s := Merge(after(5*time.Second), map[string]Report{"b": two, "a": one})
	if down := s.Sum.Down; len(down) != DownMax || down[0] != two.Down[0] || down[1] != one.Down[0] || down[9].Channel != "inbox:7" {
		t.Errorf("down are %+v", down)
	}
	if s.Sum.ChannelsDown != DownMax {
		t.Errorf("%d channels are down, and %d named", s.Sum.ChannelsDown, len(s.Sum.Down))
	}
	if s.Sum.Total.Delivered != 19 || s.Sum.Overdue != 3*time.Second || s.Sum.InHand != 7 || !s.Sum.OwnSeries ||
		!reflect.DeepEqual(s.Nodes, []string{"a", "b"}) {
		t.Errorf("the sums are %+v", s.Sum)
	}
	if s.LastMinute.From != after(-time.Minute) || s.LastMinute.Lasted != 65*time.Second || s.LastMinute.Figures.Delivered != 10 {
		t.Errorf("the last minute is %+v", s.LastMinute)
	}
	if got := s.LastMinute.Figures.Lateness.Count(); got != 8 {
		t.Errorf("%d are counted by lateness, want 8", got)
	}
	for i, slot := range s.Sum.Slots {
		if want := after(time.Duration(i-(len(s.Sum.Slots)-1)) * SlotTime); slot.From != want {
			t.Errorf("slot %d begins at %s, want %s", i, slot.From, want)
		}
	}
	n := len(s.Sum.Slots)
	if n != slotsMax || s.Sum.Slots[n-1].Figures.Delivered != 3 || s.Sum.Slots[n-1].Lasted != 5*time.Second ||
		s.Sum.Slots[n-2].Figures.Delivered != 7 || s.Sum.Slots[n-8].Figures.Delivered != 50 {
		t.Errorf("the slots are %+v", s.Sum.Slots)
	}
	if two.OwnSeries = false; Merge(noon, map[string]Report{"a": one, "b": two}).Sum.OwnSeries {
		t.Error("on one node the tenant has no series of its own, and in the sum it has")
	}
}

// A cluster that has just started has counted for as long as its first node, and an answer from nowhere does no harm.
func TestMergeAfterAStart(t *testing.T) {
	slots := []Slot{{noon, time.Second, Figures{Delivered: 500}}, {postdate.LatestTime, 0, Figures{}}}
	s := Merge(after(5*time.Second), map[string]Report{
		"a": {Since: after(-15 * time.Second), Slots: slots}, "b": {Since: after(4 * time.Second)},
	})
	if s.LastMinute.Lasted != 20*time.Second || s.LastMinute.Figures.Delivered != 500 || s.Sum.Slots[0].Lasted != 0 {
		t.Errorf("the last minute is %+v", s.LastMinute)
	}
}

// Lateness is estimated as histogram_quantile does, in the same classes.
func TestQuantile(t *testing.T) {
	of := func(counts map[int]uint64) Lateness {
		l := make(Lateness, len(Bounds)+1)
		for class, n := range counts {
			l[class] = n
		}
		return l
	}
	for _, c := range []struct {
		lateness Lateness
		q, want  float64
	}{
		{of(map[int]uint64{0: 100}), .5, .00025},
		{of(map[int]uint64{1: 100}), .99, .000995},
		{of(map[int]uint64{0: 50, 2: 50}), .5, .0005},
		{of(map[int]uint64{0: 50, 2: 50}), .75, .0015},
		{of(map[int]uint64{len(Bounds): 1}), .5, 3600},
		{of(map[int]uint64{0: 99, len(Bounds): 1}), .995, 3600},
	} {
		if got, ok := c.lateness.Quantile(c.q); !ok || math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v of %v is %v, want %v", c.q, c.lateness, got, c.want)
		}
	}
	for _, none := range []Lateness{nil, of(nil)} {
		if got, ok := none.Quantile(.5); ok {
			t.Errorf("nobody was late, by %v", got)
		}
	}
}

// Counts of other classes, as another version may send, do no harm.
func TestLatenessOfAnotherVersion(t *testing.T) {
	ours := make(Lateness, len(Bounds)+1)
	ours[2] = 1
	for _, theirs := range []Lateness{nil, {1}, make(Lateness, len(Bounds)+2)} {
		if sum := ours.plus(theirs); sum.Count() != 1 || len(sum) != len(ours) {
			t.Errorf("with %v it is %v", theirs, sum)
		}
		if got := theirs.since(ours); len(got) != len(theirs) {
			t.Errorf("since ours, %v is %v", theirs, got)
		}
	}
}

func TestRead(t *testing.T) {
	registry := prometheus.NewRegistry()
	counter := func(name string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: name}, labels)
		registry.MustRegister(c)
		return c
	}
	counter("postdate_scheduled_total", "tenant", "broker").WithLabelValues("acme", "inbox").Add(3)
	counter("postdate_cancelled_total", "tenant").WithLabelValues("acme").Add(2)
	ingested := counter("postdate_ingest_commands_total", "tenant", "source", "result")
	for i, result := range []string{"scheduled", "cancelled", "replaced", "repeated", "bad"} {
		ingested.WithLabelValues("acme", "kafka:x", result).Add(float64(10 * (i + 1)))
	}
	settled := counter("postdate_settled_total", "tenant", "how")
	for i, how := range []string{"delivered", "failed", "retry", "parked"} {
		settled.WithLabelValues("beta", how).Add(float64(i + 1))
	}
	counter("postdate_limited_total", "tenant", "limit").WithLabelValues("acme", "pendingMax").Add(1)
	histogram := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "postdate_lateness_seconds", Help: "l", Buckets: Bounds},
		[]string{"tenant", "channel"})
	registry.MustRegister(histogram)
	for i, channel := range []string{"inbox:a", "inbox:b"} {
		histogram.WithLabelValues("beta", channel).Observe(.0015)
		histogram.WithLabelValues("beta", channel).Observe(float64(1000 * 10 * i))
	}
	for _, name := range []string{"postdate_pending_messages", "postdate_pending_bytes"} {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: name}, []string{"tenant"})
		registry.MustRegister(g)
		g.WithLabelValues("acme").Set(float64(len(name)))
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	read := Read(families)
	late := make(Lateness, len(Bounds)+1)
	late[0], late[2], late[len(Bounds)] = 1, 2, 1
	want := ByTenant{"acme": {Scheduled: 13, Cancelled: 22}, "beta": {Delivered: 1, Failed: 2, Lateness: late}}
	if fmt.Sprint(read.ByTenant) != fmt.Sprint(want) {
		t.Errorf("read %v, want %v", read.ByTenant, want)
	}
	for _, tenant := range []string{"", "acme"} {
		if got := read.Pending(tenant); *got != (Pending{25, 22}) {
			t.Errorf("pending of %q is %v", tenant, got)
		}
	}
}
