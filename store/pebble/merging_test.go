package pebble

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// heldFS keeps merging from writing until it is let go.
type heldFS struct {
	vfs.FS
	merging func() // called for each file that merging makes
	let     chan struct{}
}

func (fs *heldFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category == mergeCategory {
		fs.merging()
		<-fs.let
	}
	return fs.FS.Create(name, category)
}

// TestOpenBeforeMerging opens a store in which a crash under load left much to merge: what is overdue does not wait
// for that, and it is merged afterwards.
func TestOpenBeforeMerging(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	filled(t, dir, 10)
	db, err := openLSM(settings{openConfig(dir), Parts{FS: vfs.Default}}, &merging{})
	if err != nil {
		t.Fatal(err)
	}
	for range intakeSublevels { // each lies across the others
		for i := range 10 {
			if err := db.Set([]byte(fmt.Sprint("z", i)), make([]byte, 1000), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if files := db.Metrics().Levels[0].Sublevels; files < intakeSublevels {
		t.Fatalf("the first level has %d sublevels: merging began without being allowed to", files)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	began, opened := make(chan struct{}), make(chan struct{})
	fs := &heldFS{FS: vfs.Default, merging: sync.OnceFunc(func() { close(began) }), let: make(chan struct{})}
	var s *Store
	go func() {
		defer close(opened)
		s, err = OpenWith(openConfig(dir), Parts{FS: fs})
	}()
	select {
	case <-opened:
	case <-time.After(time.Minute):
		t.Error("opening waits for what is merged")
	}
	close(fs.let)
	<-opened
	if err != nil {
		t.Fatal(err)
	}
	<-began
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// mergingDB is what a scheduler sees of Pebble: it may run a number of merges, and wants some.
type mergingDB struct {
	of               lsm.CompactionScheduler
	allowed          int
	wanted, running  int
	waits            bool
	whileItIsOffered func()
}

func (d *mergingDB) GetAllowedWithoutPermission() int { return d.allowed }

func (d *mergingDB) GetWaitingCompaction() (bool, lsm.WaitingCompaction) {
	waits := d.waits
	if then := d.whileItIsOffered; then != nil {
		d.whileItIsOffered = nil
		then()
	}
	return waits, lsm.WaitingCompaction{}
}

func (d *mergingDB) Schedule(lsm.CompactionGrantHandle) bool {
	if d.wanted == 0 {
		d.waits = false
		return false
	}
	d.run()
	return true
}

func (d *mergingDB) run() {
	d.wanted, d.running = d.wanted-1, d.running+1
	d.waits = d.wanted > 0
}

// want is what Pebble does when there is something to merge: while it waits, it does not ask again.
func (d *mergingDB) want(n int) {
	for d.wanted += n; d.wanted > 0 && !d.waits; {
		if granted, _ := d.of.TrySchedule(); !granted {
			d.waits = true
			return
		}
		d.run()
	}
}

// TestMerging checks when merges begin.
func TestMerging(t *testing.T) {
	m := &merging{}
	d := &mergingDB{of: m, allowed: 1}
	m.Register(2, d)
	is := func(running int, when string) {
		t.Helper()
		if d.running != running {
			t.Errorf("%s: %d merges run, want %d", when, d.running, running)
		}
	}
	ends := func() {
		d.running--
		m.Done()
	}
	d.want(3)
	is(0, "before the store is open")
	m.begin()
	is(1, "once it is open")
	ends()
	is(1, "when one has ended")
	d.allowed = 2
	m.offer() // as after a flush
	is(2, "when more are allowed")
	ends()
	ends()
	is(0, "when nothing is wanted")
	d.want(1)
	is(1, "when something is wanted")
	d.want(2)
	is(2, "when more is wanted than allowed")
	m.Unregister()
	ends()
	is(1, "when the store closes")
}

// TestMergingWantedWhileItIsOffered wants a merge just when the scheduler has asked whether Pebble waits for one:
// what is refused then would wait for the next flush.
func TestMergingWantedWhileItIsOffered(t *testing.T) {
	m := &merging{}
	d := &mergingDB{of: m, allowed: 1}
	m.Register(2, d)
	d.whileItIsOffered = func() { d.want(1) }
	m.begin()
	if d.running != 1 {
		t.Errorf("%d merges run", d.running)
	}
}
