package machine

import (
	"sync/atomic"
	"time"

	"github.com/postdate/postdate"
)

// readingLasts is for how long a reading may be better than later ones. The two clocks drift apart.
const readingLasts = time.Minute

// reading is the store's clock as a renewal of the lease showed it.
type reading struct {
	store postdate.Time // it was read before mono
	mono  time.Duration
}

// storeClock is the earliest that the store's clock can be. It is unknown if the store has
// none.
type storeClock struct {
	skewMax time.Duration
	latest  atomic.Pointer[reading]
}

// read takes in what a renewal says. An answer that was long on its way says less than the one before.
func (c *storeClock) read(store postdate.Time, mono time.Duration) {
	r := c.latest.Load()
	if r != nil && mono-r.mono < readingLasts && r.store.Add(mono-r.mono) > store {
		return
	}
	c.latest.Store(&reading{store, mono})
}

// at is the earliest that the store's clock can be now.
func (c *storeClock) at(now postdate.Now) (t postdate.Time, known bool) {
	r := c.latest.Load()
	if r == nil {
		return 0, false
	}
	return r.store.Add(now.Mono - r.mono), true
}

// wall is the wall clock, or the store's clock if the wall clock is too far behind it: every
// node deletes messages by the time at which they ended.
func (c *storeClock) wall(now postdate.Now) postdate.Time {
	if t, known := c.at(now); known && c.skewMax > 0 && t.Sub(now.Wall) > c.skewMax {
		return t
	}
	return now.Wall
}

// passed is wall, or skewMax after the store's clock if the wall clock is further ahead.
func (c *storeClock) passed(now postdate.Now) postdate.Time {
	if t, known := c.at(now); known && c.skewMax > 0 {
		return min(c.wall(now), t.Add(c.skewMax))
	}
	return now.Wall
}
