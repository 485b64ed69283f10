package pebble

import (
	"time"

	"github.com/postdate/postdate"
)

// diskCheckEvery is how often the free space is looked at. A reserve of 64 MiB
// takes far longer to fill than this.
const diskCheckEvery = 250 * time.Millisecond

// watchDisk keeps the flag full up to date. An LSM whose disk is really full
// cannot even deliver and delete, so new messages stop being accepted before.
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
		return // a file system that cannot say is not held against the writer
	}
	full := use.AvailBytes < s.c.ReserveBytes
	if s.full.Swap(full) == full {
		return
	}
	if full {
		s.c.Log.Error("the disk is almost full: new messages are refused, pending ones are still delivered", "availableBytes", use.AvailBytes, "reserveBytes", s.c.ReserveBytes)
	} else {
		s.c.Log.Info("the disk has room again: new messages are accepted", "availableBytes", use.AvailBytes)
	}
}

func (s *Store) errFull() error {
	return postdate.E(postdate.KindFull, "the store's disk is almost full: less than %d MiB are free; make room, or let pending messages be delivered, then try again", s.c.ReserveBytes>>20)
}
