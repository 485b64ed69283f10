package sim

import (
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/poller"
)

// clock is one node's wall clock and monotonic clock. Both run at the same rate, which may be
// wrong. The wall clock may be off, and may jump.
type clock struct {
	w      *world
	ppm    int64         // how much faster than true time, in millionths
	since  time.Duration // true time at the last change of rate
	mono   time.Duration // the reading then
	offset time.Duration // the wall clock's reading minus epoch and mono

	jumps []jump
	seen  time.Duration // the offset that a process has seen
	set   time.Duration // the monotonic reading when a process saw the offset change
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

// trueTime converts a duration on this clock to true time.
func (c *clock) trueTime(d time.Duration) time.Duration {
	return max(d-time.Duration(int64(d)/1000*c.ppm/1000), 0)
}

// drift changes the rate.
func (c *clock) drift(ppm int64) {
	c.mono, c.since = c.monoNow(), c.w.now
	c.ppm = ppm
}

// hold makes both clocks continue from an earlier reading of the monotonic clock.
func (c *clock) hold(mono time.Duration) { c.mono, c.since = mono, c.w.now }

// jump sets the wall clock.
func (c *clock) jump(d time.Duration) {
	c.offset += d
	c.jumps = append(c.jumps, jump{c.w.now, d})
}

// right sets the wall clock right, and makes it run at the right rate.
func (c *clock) right() {
	c.drift(0)
	c.jump(c.w.now - c.mono - c.offset)
}

// see records that the wall clock was set, once a process can notice it. A process that stood
// still cannot notice a clock that was wrong and is right again. It need not notice less than
// [poller.Config.JumpMax].
func (c *clock) see() {
	off := c.offset - c.seen
	if max(off, -off) > poller.DefaultConfig().JumpMax+5*time.Millisecond {
		c.seen, c.set = c.offset, c.monoNow()
	}
}

// ahead returns how far the wall clock was set ahead, in total, since a true time.
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
