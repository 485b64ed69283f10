package pebble

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/time/rate"

	"github.com/postdate/postdate"
)

// Merging (compaction) tidies up the past. At full speed it takes a processor from what is due,
// for minutes after a large load. So it rests as long as it works, until it would fall behind:
// then it runs freely until it has caught up, because a tree that grows in its first level
// slows every read, and in the end stops every write.
//
// A load that is faster than free merging would reach that end: Pebble then stops all writes,
// including those of deliveries, for as long as one merge takes, which is half a minute in a
// large store. So inserts are slowed down before that, to the rate at which merging keeps up.

const (
	// paceLook is how often the tree is asked whether merging may rest.
	paceLook = 250 * time.Millisecond
	// paceSublevelsMax is how deep the first level may be while merging rests. A
	// read looks into each sublevel; Pebble stops writes at stopSublevels.
	paceSublevelsMax = 8
	// paceRestMax bounds one rest, even if the process slept between two writes.
	paceRestMax = 20 * time.Millisecond
	// paceRestMin is the shortest rest worth a timer.
	paceRestMin = time.Millisecond

	// intakeSublevels is the depth of the first level from which inserts are slowed down, at
	// first to intakeFirst memtables a second. Each further two sublevels halve that.
	intakeSublevels = 10
	intakeFirst     = 2
	// intakeWaitMax bounds how long an insert waits. One that would wait longer is refused straight away.
	intakeWaitMax = 10 * time.Second
	// stopSublevels is the depth of the first level at which Pebble stops every write.
	stopSublevels = 40
)

// pace holds back merging while it may rest, and inserts while merging falls behind.
type pace struct {
	db       *lsm.DB
	memtable int64 // bytes
	free     atomic.Bool
	intake   *rate.Limiter // in bytes
	taken    atomic.Int64  // bytes, since the tree was looked at
}

func newPace(memtable uint64) *pace {
	return &pace{memtable: int64(memtable), intake: rate.NewLimiter(rate.Inf, int(memtable/4))}
}

// watch keeps up with the tree until stop is closed.
func (p *pace) watch(stop <-chan struct{}) {
	tick := time.NewTicker(paceLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.look()
		case <-stop:
			p.free.Store(true) // closing waits for what is being merged
			return
		}
	}
}

func (p *pace) look() {
	p.taken.Store(0)
	sublevels := p.db.Metrics().Levels[0].Sublevels
	p.free.Store(sublevels > paceSublevelsMax)
	p.intake.SetLimit(intakeOf(int(sublevels), p.memtable))
}

// intakeOf is how many bytes a second may be inserted while the first level has this many
// sublevels.
func intakeOf(sublevels int, memtable int64) rate.Limit {
	if sublevels < intakeSublevels {
		return rate.Inf
	}
	return rate.Limit(intakeFirst * float64(memtable) * math.Exp2(-float64(sublevels-intakeSublevels)/2))
}

// admit waits until this many bytes may be inserted. If it fails, nothing is to be written.
func (p *pace) admit(ctx context.Context, bytes int) error {
	if p.taken.Add(int64(bytes)) > p.memtable/2 {
		p.look()
	}
	if p.intake.Limit() == rate.Inf { // as a rule
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, intakeWaitMax)
	defer cancel()
	if err := p.intake.WaitN(ctx, min(bytes, p.intake.Burst())); err != nil {
		return postdate.E(postdate.KindUnavailable,
			"messages come faster than this disk takes them: send them more slowly (%w)", err)
	}
	return nil
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

// ReuseForWrite makes a new file in place of an old one. In a log that is reused, what clients
// once sent follows the end: after a crash Pebble would read on there, if it looks like
// Pebble's own, and a check for damage would find it (logs.go).
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

// pacedFile rests before a write for as long as it worked since its last rest.
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
