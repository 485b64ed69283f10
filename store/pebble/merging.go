package pebble

import (
	"sync"

	lsm "github.com/cockroachdb/pebble/v2"
)

// merging is what Pebble asks before it begins to merge. Pebble's Open waits for each merge that its own flushes
// begin, to list what is obsolete, and what is overdue must not wait for one: so none begins before Open has
// returned. From then on merging allows as many at a time as Pebble wants, as Pebble's own scheduler does.
type merging struct {
	db     lsm.DBForCompaction
	offers sync.Mutex // held while Pebble is offered to begin

	mu      sync.Mutex
	allowed bool // between begin and Unregister
	running int  // -1 for a moment if a merge ends before it is counted
}

var _ lsm.CompactionScheduler = (*merging)(nil)

// Register implements lsm.CompactionScheduler.
func (m *merging) Register(_ int, db lsm.DBForCompaction) { m.db = db }

// Unregister implements lsm.CompactionScheduler.
func (m *merging) Unregister() {
	m.offers.Lock() // one may be under way
	defer m.offers.Unlock()
	m.allow(false)
}

// begin lets merges begin.
func (m *merging) begin() {
	m.allow(true)
	m.offer()
}

func (m *merging) allow(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allowed = on
}

// TrySchedule implements lsm.CompactionScheduler.
func (m *merging) TrySchedule() (bool, lsm.CompactionGrantHandle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.mayBegin() {
		return false, nil
	}
	m.running++
	return true, m
}

func (m *merging) mayBegin() bool { return m.allowed && m.running < m.db.GetAllowedWithoutPermission() }

// offer begins what Pebble waits to merge. Pebble must not be locked. Nothing is counted before Pebble has taken the
// offer: else a TrySchedule that comes meanwhile would be refused, and nothing would end that wakes it.
func (m *merging) offer() {
	m.offers.Lock()
	defer m.offers.Unlock()
	for m.hasRoom() {
		if waits, _ := m.db.GetWaitingCompaction(); !waits || !m.db.Schedule(m) {
			return
		}
		m.count(1)
	}
}

func (m *merging) hasRoom() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mayBegin()
}

func (m *merging) count(by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running += by
}

// UpdateGetAllowedWithoutPermission implements lsm.CompactionScheduler. Pebble is locked.
func (m *merging) UpdateGetAllowedWithoutPermission() { go m.offer() }

// Done implements lsm.CompactionGrantHandle, as do those that follow.
func (m *merging) Done() {
	m.count(-1)
	m.offer()
}

// Started implements lsm.CompactionGrantHandle.
func (m *merging) Started() {}

// MeasureCPU implements lsm.CompactionGrantHandle.
func (m *merging) MeasureCPU(lsm.CompactionGoroutineKind) {}

// CumulativeStats implements lsm.CompactionGrantHandle.
func (m *merging) CumulativeStats(lsm.CompactionGrantHandleStats) {}
