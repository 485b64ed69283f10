package pebble

import (
	"time"

	"github.com/postdate/postdate"
)

// diskCheckEvery is how often the free space is checked. Filling a reserve of 64 MiB takes far
// longer than this.
const diskCheckEvery = 250 * time.Millisecond

// watchDisk keeps the flag full up to date. An LSM whose disk is completely full cannot even
// deliver and delete, so new messages are refused before that.
func (s *Store) watchDisk() {
	tick := time.NewTicker(diskCheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.checkDisk()
		case <-s.stop:
			return
		}
	}
}

func (s *Store) checkDisk() {
	use, err := s.c.FS.GetDiskUsage(s.c.Dir)
	if err != nil {
		return // a file system that cannot tell stops no writes
	}
	full := use.AvailBytes < s.c.ReserveBytes
	if s.full.Swap(full) == full {
		return
	}
	if full {
		s.c.Log.Error("the disk is almost full: new messages are refused, pending ones are still delivered",
			"availableBytes", use.AvailBytes, "reserveBytes", s.c.ReserveBytes)
	} else {
		s.c.Log.Info("the disk has room again: new messages are accepted", "availableBytes", use.AvailBytes)
	}
}

// awaitRoom holds up every write while the disk has no room at all. For Pebble the first failed
// write of its log is fatal, and it retries a failed flush without a pause; so it learns of
// nothing until there is room again. What was acknowledged is on disk; the outcome of what
// waits here is unknown to its caller.
func (s *Store) awaitRoom() {
	s.full.Store(true)
	s.c.Log.Error("the disk is full: every write waits until there is room", "dir", s.c.Dir)
	tick := time.NewTicker(diskCheckEvery)
	defer tick.Stop()
	for {
		use, err := s.c.FS.GetDiskUsage(s.c.Dir)
		if err == nil && use.AvailBytes >= s.c.ReserveBytes/2 {
			s.c.Log.Info("the disk has room again: writes go on", "dir", s.c.Dir)
			return
		}
		select {
		case <-tick.C:
		case <-s.stop:
			return
		}
	}
}

func (s *Store) errFull() error {
	return postdate.E(postdate.KindFull, "the store's disk is almost full: less than %d MiB are free; "+
		"make room, or let pending messages be delivered, then try again", s.c.ReserveBytes>>20)
}
