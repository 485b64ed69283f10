package stats

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
)

// The rate of a channel is what its series grew by in the last minute. Of those that share one it is not known.
func TestChannelRates(t *testing.T) {
	registry := prometheus.NewRegistry()
	publishes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "postdate_publishes_total"}, []string{"tenant", "channel", "outcome"})
	registry.MustRegister(publishes)
	var r Recorder
	read := func(at postdate.Time) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		r.Record(at, Read(families))
	}
	add := func(tenant, channel, outcome string, n int) {
		publishes.WithLabelValues(tenant, channel, outcome).Add(float64(n))
	}
	add("acme", "inbox:a", "confirmed", 1000) // nobody knows when
	read(noon)
	add("acme", "inbox:a", "confirmed", 500)
	read(after(SlotTime))
	for i := 1; i < 12; i++ { // what was before is more than a minute ago then
		read(after(time.Duration(i) * SlotTime))
	}
	add("acme", "inbox:a", "confirmed", 130)
	add("acme", "inbox:a", "refused", 70)
	add("acme", "inbox:b", "confirmed", 26)
	add("acme", "https://host", "confirmed", 13)
	add("acme", "https://quiet", "confirmed", 0)
	add("beta", "inbox:a", "confirmed", 5)
	add("beta", OtherChannels, "confirmed", 5)
	read(after(12*SlotTime + 5*time.Second))

	type rate struct {
		perSecond float64
		known     bool
	}
	for tenant, of := range map[string]map[postdate.Channel]rate{
		"acme": {"inbox:a": {2, true}, "inbox:b": {.4, true}, "inbox:c": {0, true}, "https://host/x": {0, false}, "https://host": {0, false},
			"https://quiet/x": {0, true}, "https://another": {0, true}},
		"beta":  {"inbox:a": {5. / 65, true}, "inbox:b": {0, false}},
		"gamma": {"inbox:a": {0, true}},
	} {
		rates := r.ChannelRates(tenant)
		for name, want := range of {
			if perSecond, known := rates.Of(name); (rate{perSecond, known}) != want {
				t.Errorf("%s of %s: %v, %t, want %v", name, tenant, perSecond, known, want)
			}
		}
		if rates.OthersRest() != (tenant != "beta") {
			t.Errorf("all that has no rate of %s rests: %t", tenant, rates.OthersRest())
		}
	}
	acme, beta := r.ChannelRates("acme"), r.ChannelRates("beta")
	if got := acme.BusyHosts(); !reflect.DeepEqual(got, []string{"https://host"}) {
		t.Errorf("busy hosts are %v", got)
	}
	if got := beta.Active(); !reflect.DeepEqual(got, []postdate.Channel{"inbox:a"}) {
		t.Errorf("active are %v", got)
	}
	add(series.Others, "inbox:a", "confirmed", 1)
	read(after(13 * SlotTime))
	gamma := r.ChannelRates("gamma")
	if _, known := gamma.Of("inbox:a"); known || gamma.OthersRest() {
		t.Error("the rate of a tenant is known that shares series with others")
	}
}
