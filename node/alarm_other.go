//go:build !linux

package node

import "time"

// alarm wakes the loop.
type alarm struct {
	rings chan struct{}
	timer *time.Timer
}

func newAlarm() *alarm {
	a := &alarm{rings: make(chan struct{}, 1)}
	a.timer = time.AfterFunc(time.Hour, func() {
		select {
		case a.rings <- struct{}{}:
		default: // it is ringing already
		}
	})
	return a
}

// set makes the alarm ring after d, instead of at the time set before.
func (a *alarm) set(d time.Duration) { a.timer.Reset(d) }

func (a *alarm) stop() { a.timer.Stop() }
