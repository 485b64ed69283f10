package node

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes the loop. The runtime's own timers may be a millisecond late, because its network
// wait counts in milliseconds. A timerfd is an event of that wait and fires on time.
type alarm struct {
	rings chan struct{}
	file  *os.File
	timer *time.Timer // if there is no timerfd
}

func newAlarm() *alarm {
	a := &alarm{rings: make(chan struct{}, 1)}
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		a.timer = time.AfterFunc(time.Hour, a.ring)
		return a
	}
	a.file = os.NewFile(uintptr(fd), "timerfd")
	go a.listen()
	return a
}

func (a *alarm) ring() {
	select {
	case a.rings <- struct{}{}:
	default: // it is ringing already
	}
}

// listen runs until the file is closed.
func (a *alarm) listen() {
	var expirations [8]byte
	for {
		if _, err := a.file.Read(expirations[:]); err != nil {
			return
		}
		a.ring()
	}
}

// set makes the alarm ring after d, instead of at the time set before. It may still ring for
// that one.
func (a *alarm) set(d time.Duration) {
	if a.timer != nil {
		a.timer.Reset(d)
		return
	}
	if d <= 0 {
		a.ring()
		return
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if raw, err := a.file.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { err = unix.TimerfdSettime(int(fd), 0, &at, nil) })
		if err != nil {
			a.ring() // once too often is better than never
		}
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
		return
	}
	a.file.Close()
}
