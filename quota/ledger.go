package quota

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// doubtTime is how long a call with an unknown outcome counts as done, or up to a second longer. By
// then MongoDB has counted anew: the call is in the counts if it was done.
const doubtTime = 5 * time.Minute

// ledger is what calls may add to what a tenant has pending, and the store has not counted yet.
type ledger struct {
	coming reservation
	doubts []doubt // in order of time, at most one for each second
}

// reservation is what calls may add. Only where channels have a limit it has any.
type reservation struct {
	messages, bytes int64
	channels        map[postdate.Channel]int // the messages for each
}

// doubt is what calls with an unknown outcome may have added in one second.
type doubt struct {
	reservation
	until time.Time
}

// change is what one message may add.
type change struct {
	messages, bytes int64
	channel         postdate.Channel // "": none that counts
}

func (r *reservation) none() bool { return r.messages == 0 && r.bytes == 0 && len(r.channels) == 0 }

func (r *reservation) add(c *change) {
	r.messages += c.messages
	r.bytes += c.bytes
	r.count(c.channel, 1)
}

// addAll adds o, or with the sign -1 takes it away.
func (r *reservation) addAll(o *reservation, sign int) {
	r.messages += int64(sign) * o.messages
	r.bytes += int64(sign) * o.bytes
	for channel, n := range o.channels {
		r.count(channel, sign*n)
	}
}

func (r *reservation) count(channel postdate.Channel, n int) {
	if channel == "" {
		return
	}
	if r.channels == nil {
		r.channels = map[postdate.Channel]int{}
	}
	if r.channels[channel] += n; r.channels[channel] == 0 {
		delete(r.channels, channel)
	}
}

// usage is what the store has counted of a tenant, and whether a channel is among its channels.
type usage func(channel postdate.Channel) (u store.Usage, uses bool)

// reserve reserves what fits of a call's changes, in their order. refused says why for each that does
// not fit; it is nil if all do.
func (l *ledger) reserve(limits Limits, used usage, changes []change) (r reservation, refused []error) {
	u, _ := used("")
	channels := int64(-1) // not known yet
	for i, c := range changes {
		if limits.ChannelsMax == 0 {
			c.channel = ""
		}
		is := store.Usage{Messages: u.Messages + l.coming.messages, Bytes: u.Bytes + l.coming.bytes}
		more := store.Usage{Messages: c.messages, Bytes: c.bytes}
		if c.channel != "" && l.coming.channels[c.channel] == 0 {
			if _, uses := used(c.channel); !uses {
				if channels < 0 {
					channels = l.channels(used)
				}
				is.Channels, more.Channels = channels, 1
			}
		}
		if err := limits.fits(is, more); err != nil {
			if refused == nil {
				refused = make([]error, len(changes))
			}
			refused[i] = err
			continue
		}
		channels += more.Channels
		r.add(&c)
		l.coming.add(&c)
	}
	return r, refused
}

// channels is how many the tenant has, with those that calls under way may add. The store's number
// is read last: what arrives in between then counts twice, and not never.
func (l *ledger) channels(used usage) int64 {
	coming := int64(0)
	for channel := range l.coming.channels {
		if _, uses := used(channel); !uses {
			coming++
		}
	}
	u, _ := used("")
	return u.Channels + coming
}

// release ends a call: what it did, the store has counted by now. What it may have done, unknown,
// counts on.
func (l *ledger) release(now time.Time, r, unknown *reservation) {
	l.coming.addAll(r, -1)
	if !unknown.none() {
		l.coming.addAll(unknown, 1)
		until := now.Truncate(time.Second).Add(doubtTime + time.Second)
		if n := len(l.doubts); n == 0 || !l.doubts[n-1].until.Equal(until) {
			l.doubts = append(l.doubts, doubt{until: until})
		}
		l.doubts[len(l.doubts)-1].addAll(unknown, 1)
	}
}

// forget ends what was in doubt for long enough.
func (l *ledger) forget(now time.Time) {
	for len(l.doubts) > 0 && !l.doubts[0].until.After(now) {
		l.coming.addAll(&l.doubts[0].reservation, -1)
		l.doubts = l.doubts[1:]
	}
}
