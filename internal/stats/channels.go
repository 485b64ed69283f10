package stats

import (
	"strings"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/series"
)

// OtherChannels is the channel in the series of a tenant's channels that have none of their own. No channel is named
// so.
const OtherChannels = "other"

// channel is a tenant and a channel, as series name them.
type channel struct{ tenant, name string }

// ChannelRates has how much of a tenant brokers confirmed to one node in the last minute, by channel.
type ChannelRates struct {
	lasted    time.Duration
	confirmed map[string]uint64 // by what series name the channel; one with nothing is missing
	own       map[string]bool   // the channels with series of their own
	others    bool              // others share a series, or may
}

// ChannelRates has the rates of a tenant's channels, as of the last reading.
func (r *Recorder) ChannelRates(tenant string) ChannelRates {
	rates := ChannelRates{confirmed: map[string]uint64{}, own: map[string]bool{}}
	otherTenants := false
	for c := range r.last.channels {
		switch {
		case c.tenant == series.Others:
			otherTenants = true
		case c.tenant == tenant && c.name == OtherChannels:
			rates.others = true
		case c.tenant == tenant:
			rates.own[c.name] = true
		}
	}
	rates.others = rates.others || otherTenants && len(rates.own) == 0
	first := slotOf(r.lastAt).Add(-lastMinuteSlots * SlotTime)
	for _, slot := range r.slots {
		if slot.from < first {
			continue
		}
		rates.lasted += slot.lasted
		for c, n := range slot.confirmed {
			if c.tenant == tenant {
				rates.confirmed[c.name] += n
			}
		}
	}
	return rates
}

// Of is how many messages of a channel brokers confirmed in a second. It is not known of a channel that shares a
// series with others, unless nothing was confirmed of any of them.
func (r *ChannelRates) Of(c postdate.Channel) (perSecond float64, known bool) {
	name := c.Shown()
	switch n := r.confirmed[name]; {
	case !r.own[name] && r.others, n > 0 && named(name) != c:
		return 0, false
	case n == 0:
		return 0, true
	default:
		return float64(n) / max(r.lasted, time.Millisecond).Seconds(), true
	}
}

// Active are the channels of which brokers confirmed something.
func (r *ChannelRates) Active() (channels []postdate.Channel) {
	for name := range r.confirmed {
		if c := named(name); c != "" {
			channels = append(channels, c)
		}
	}
	return channels
}

// BusyHosts are the hosts, as series name them, of whose webhooks something was confirmed. The webhooks at one host
// share a series.
func (r *ChannelRates) BusyHosts() (hosts []string) {
	for name := range r.confirmed {
		if name != OtherChannels && named(name) == "" {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// OthersRest says whether brokers confirmed nothing of channels that have no rate of their own, but for webhooks at
// [ChannelRates.BusyHosts].
func (r *ChannelRates) OthersRest() bool { return !r.others }

// named is the channel whose series this is; "": that of several, as of the webhooks at one host.
func named(name string) postdate.Channel {
	if name == OtherChannels || strings.HasPrefix(name, "http") {
		return ""
	}
	return postdate.Channel(name)
}
