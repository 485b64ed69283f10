package machine

import (
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
)

// reading is the store's clock as the latest renewal of the lease showed it.
type reading struct {
	store postdate.Time // it was read before mono
	mono  time.Duration
}

// storeClock is what is known of the store's clock, at its earliest. Where the store has
// none, nothing is.
type storeClock struct {
	skewMax time.Duration
	latest  atomic.Pointer[reading]
}

// at is the store's clock by now, at its earliest.
func (c *storeClock) at(now postdate.Now) (t postdate.Time, known bool) {
	r := c.latest.Load()
	if r == nil {
		return 0, false
	}
	return r.store.Add(now.Mono - r.mono), true
}

// wall is the wall clock, or the store's where the wall clock is too far behind it: by the
// time at which a message ended it is deleted, on every node.
func (c *storeClock) wall(now postdate.Now) postdate.Time {
	if t, known := c.at(now); known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {
		return t
	}
	return now.Wall
}
