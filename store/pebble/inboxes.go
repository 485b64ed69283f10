package pebble

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	lsm "github.com/cockroachdb/pebble/v2"
)

// inboxesMax is how many inboxes are kept in memory, besides those in use. Any other needs a
// seek when it is used.
const inboxesMax = 10_000

// inbox numbers the messages of one inbox.
type inbox struct {
	users int // Store.inboxMu guards it: an inbox in use is not forgotten

	mu     sync.Mutex // held from numbering to applying, so that numbers become visible in order
	last   uint64     // the last number given
	listed bool       // it has messages, and an entry in the order of expiry

	loaded atomic.Bool
	// the last number on disk: readers see no further, or a number could be given twice after a
	// power loss
	durable atomic.Uint64
}

// reached notes that everything up to a number is on disk.
func (b *inbox) reached(number uint64) {
	for old := b.durable.Load(); old < number && !b.durable.CompareAndSwap(old, number); {
		old = b.durable.Load()
	}
}

// useInbox returns a loaded inbox, which is not forgotten before its user leaves it.
func (s *Store) useInbox(tenant, name string) (*inbox, error) {
	box := s.holdInbox(tenant + "\x00" + name)
	if err := s.loadInbox(box, tenant, name); err != nil {
		s.leaveInbox(box)
		return nil, s.readError(err)
	}
	return box, nil
}

func (s *Store) holdInbox(id string) *inbox {
	s.inboxMu.Lock()
	defer s.inboxMu.Unlock()
	box := s.inboxes[id]
	if box == nil {
		if len(s.inboxes) >= inboxesMax {
			s.forgetInbox()
		}
		box = &inbox{}
		s.inboxes[id] = box
	}
	box.users++
	return box
}

func (s *Store) leaveInbox(box *inbox) {
	s.inboxMu.Lock()
	defer s.inboxMu.Unlock()
	box.users--
}

// forgetInbox forgets an inbox that nobody uses. Its messages are all on disk, from where it
// can be loaded again.
func (s *Store) forgetInbox() {
	for id, box := range s.inboxes {
		if box.users == 0 { // a writer uses it until its write is on disk
			delete(s.inboxes, id)
			return
		}
	}
}

// loadInbox reads where an inbox ends. An empty one goes on from the floor, which is no less
// than any number that it gave.
func (s *Store) loadInbox(box *inbox, tenant, name string) error {
	if box.loaded.Load() {
		return nil
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	if box.loaded.Load() {
		return nil
	}
	prefix := inboxPrefix(nil, tenant, name)
	iter, err := s.db.NewIter(&lsm.IterOptions{LowerBound: prefix, UpperBound: after(prefix)})
	if err != nil {
		return err
	}
	defer iter.Close()
	last := s.floor.Load()
	if iter.Last() {
		box.listed, last = true, binary.BigEndian.Uint64(iter.Key()[len(prefix):])
	}
	if err := iter.Error(); err != nil {
		return err
	}
	box.last = last
	box.durable.Store(last)
	box.loaded.Store(true)
	return nil
}
