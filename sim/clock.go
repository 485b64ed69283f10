package sim

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// clock is one node's wall clock and monotonic clock. Both run at the same rate,
// which may be wrong; the wall clock may be off, and may jump.
type clock struct {
	w      *world
	ppm    int64         // how much faster than true time, in millionths
	since  time.Duration // true time at the last change of rate
	mono   time.Duration // the reading then
	offset time.Duration // the wall clock's reading less epoch and less mono

	jumps []jump
	seen  time.Duration // the offset that a process has seen
	set   time.Duration // the monotonic reading when a process saw that it had changed
}

func newClock(w *world, c clockPlan) clock {
	return clock{w: w, ppm: c.ppm, mono: c.boot, offset: c.skew - c.boot, seen: c.skew - c.boot}
}

func (c *clock) monoNow() time.Duration {
	d := c.w.now - c.since
	return c.mono + d + time.Duration(int64(d)/1000*c.ppm/1000)
}

func (c *clock) now() postdate.Now {
	mono := c.monoNow()
	return postdate.Now{Wall: epoch + postdate.Time((mono+c.offset)/time.Millisecond), Mono: mono}
}

// trueTime is how long d on this clock takes in truth.
func (c *clock) trueTime(d time.Duration) time.Duration {
	return max(d-time.Duration(int64(d)/1000*c.ppm/1000), 0)
}

// drift changes the rate from now on.
func (c *clock) drift(ppm int64) {
	c.mono, c.since = c.monoNow(), c.w.now
	c.ppm = ppm
}

// hold lets both clocks go on from an earlier reading of the monotonic one.
func (c *clock) hold(mono time.Duration) { c.mono, c.since = mono, c.w.now }

// jump sets the wall clock.
func (c *clock) jump(d time.Duration) {
	c.offset += d
	c.jumps = append(c.jumps, jump{c.w.now, d})
}

// right sets the wall clock right, and lets it run right.
func (c *clock) right() {
	c.drift(0)
	c.jump(c.w.now - c.mono - c.offset)
}

// see notes that the wall clock was set, as soon as a process can see it: for one that stood
// still meanwhile, a clock that is right again was never wrong. Less than
// [poller.Config.JumpMax] it need not see.
func (c *clock) see() {
	off := c.offset - c.seen
	if max(off, -off) > poller.DefaultConfig().JumpMax+5*time.Millisecond {
		c.seen, c.set = c.offset, c.monoNow()
	}
}

// ahead adds up by how much the wall clock was set ahead since a true time.
func (c *clock) ahead(since time.Duration) (sum time.Duration) {
	for _, j := range c.jumps {
		if j.at >= since {
			sum += max(j.by, 0)
		}
	}
	return sum
}

// jump is one setting of the wall clock.
type jump struct {
	at time.Duration // true time
	by time.Duration // ahead; negative: back
}
