package pebble

import (
	"sync/atomic"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Merging (compaction) is work of the past: done as fast as it goes, it takes a
// processor from what is due now, for minutes after a large load. So it rests as
// long as it works, up to the point where it would fall behind: then it runs freely
// until it has caught up, since a tree that grows in its first level slows every
// read, and in the end stops every write.

const (
	// paceLook is how often the tree is asked whether merging may rest.
	paceLook = 250 * time.Millisecond
	// paceSublevelsMax is how deep the first level may be while merging rests. A
	// read looks into each sublevel; Pebble stops writes at 40 of them.
	paceSublevelsMax = 8
	// paceRestMax bounds one rest, also where the process slept between two writes.
	paceRestMax = 20 * time.Millisecond
	// paceRestMin is the shortest rest worth a timer.
	paceRestMin = time.Millisecond
)

// pace says whether merging rests.
type pace struct{ free atomic.Bool }

// watch keeps up with the tree until stop is closed.
func (p *pace) watch(db *lsm.DB, stop <-chan struct{}) {
	tick := time.NewTicker(paceLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.free.Store(db.Metrics().Levels[0].Sublevels > paceSublevelsMax)
		case <-stop:
			p.free.Store(true) // closing waits for what is being merged
			return
		}
	}
}

// pacedFS is a file system that paces the files that merging writes, and allocates logs step by
// step.
type pacedFS struct {
	vfs.FS
	pace *pace
}

// mergeCategory is what Pebble calls the files that merging writes.
const mergeCategory vfs.DiskWriteCategory = "pebble-compaction"

func (fs pacedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	return fs.wrap(f, category), nil
}

// ReuseForWrite makes a new file in the place of an old one. In a log that is used again, what
// clients once sent lies behind its end: after a crash Pebble would read that on as its own, if
// it looks like that, and whoever looks for damage would find it (logs.go).
func (fs pacedFS) ReuseForWrite(before, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := fs.FS.Remove(before); err != nil {
		return nil, err
	}
	return fs.Create(name, category)
}

func (fs pacedFS) wrap(f vfs.File, category vfs.DiskWriteCategory) vfs.File {
	switch category {
	case mergeCategory:
		return &pacedFile{File: f, pace: fs.pace, worked: time.Now()}
	case logCategory:
		return &logFile{File: f}
	}
	return f
}

// pacedFile rests before a write as long as it took since the last one.
type pacedFile struct {
	vfs.File
	pace   *pace
	worked time.Time // since then
}

func (f *pacedFile) Write(b []byte) (int, error) {
	if rest := min(time.Since(f.worked), paceRestMax); rest >= paceRestMin {
		if !f.pace.free.Load() {
			time.Sleep(rest)
		}
		f.worked = time.Now()
	}
	return f.File.Write(b)
}
