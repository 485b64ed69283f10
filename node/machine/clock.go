package machine

import (
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
)

// reading is the store's clock, as the latest renewal of the lease read it.
type reading struct {
	store postdate.Time // it was read before mono
	mono  time.Duration
}

// storeClock is the earliest time that the store's clock can show. It is unknown if the store
// has no clock.
type storeClock struct {
	skewMax time.Duration
	latest  atomic.Pointer[reading]
}

// at returns the earliest time that the store's clock can show at now.
func (c *storeClock) at(now postdate.Now) (t postdate.Time, known bool) {
	r := c.latest.Load()
	if r == nil {
		return 0, false
	}
	return r.store.Add(now.Mono - r.mono), true
}

// wall returns the wall clock, or the store's clock if the wall clock is too far behind it:
// every node deletes a message by the time written when the message ended.
func (c *storeClock) wall(now postdate.Now) postdate.Time {
	if t, known := c.at(now); known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {
		return t
	}
	return now.Wall
}
