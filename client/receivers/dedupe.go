package receivers

import (
	"context"
	"sync"
)

// SeenStore remembers which messages were handled. With one that processes share, one of them knows of another's.
type SeenStore interface {
	// Has says whether a message was handled.
	Has(ctx context.Context, messageID string) (bool, error)
	// Add stores that a message was handled.
	Add(ctx context.Context, messageID string) error
}

// Dedupe handles each message once, as far as its store remembers. An id is stored once its message is handled, so
// one that was not handled to the end is handled again when it comes again: nothing is lost, and after a crash, or
// in two processes at the same time, a message may be handled twice.
type Dedupe struct {
	store  SeenStore
	mu     sync.Mutex
	inHand map[string]chan struct{} // closed when the message is no longer in hand
}

// NewDedupe makes one with a store. nil: in memory, of the last 100,000 ids.
func NewDedupe(store SeenStore) *Dedupe {
	if store == nil {
		store = NewMemoryStore(100_000)
	}
	return &Dedupe{store: store, inHand: map[string]chan struct{}{}}
}

// Once handles a message unless it was handled before, and says whether it was handled now. While another call
// handles the same message, Once waits: if that fails, it is this call's turn. The errors are those of handle, of
// the store, and of ctx. After any of them, let the message come again.
func (d *Dedupe) Once(ctx context.Context, messageID string, handle func() error) (handled bool, err error) {
	if err := d.take(ctx, messageID); err != nil {
		return false, err
	}
	defer d.release(messageID)
	if seen, err := d.store.Has(ctx, messageID); seen || err != nil {
		return false, err
	}
	if err := handle(); err != nil {
		return false, err
	}
	return true, d.store.Add(context.WithoutCancel(ctx), messageID) // what is handled is stored although ctx has ended
}

func (d *Dedupe) take(ctx context.Context, messageID string) error {
	for {
		d.mu.Lock()
		others := d.inHand[messageID]
		if others == nil {
			d.inHand[messageID] = make(chan struct{})
		}
		d.mu.Unlock()
		if others == nil {
			return nil
		}
		select {
		case <-others:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *Dedupe) release(messageID string) {
	d.mu.Lock()
	close(d.inHand[messageID])
	delete(d.inHand, messageID)
	d.mu.Unlock()
}

// MemoryStore is a store in memory, of the last ids.
type MemoryStore struct {
	mu     sync.Mutex
	ids    map[string]bool
	order  []string // the oldest first
	idsMax int
}

// NewMemoryStore makes a store of so many ids.
func NewMemoryStore(idsMax int) *MemoryStore {
	return &MemoryStore{ids: map[string]bool{}, idsMax: idsMax}
}

// Has implements [SeenStore].
func (s *MemoryStore) Has(_ context.Context, messageID string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[messageID], nil
}

// Add implements [SeenStore].
func (s *MemoryStore) Add(_ context.Context, messageID string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ids[messageID] {
		s.ids[messageID], s.order = true, append(s.order, messageID)
	}
	if len(s.order) > s.idsMax {
		delete(s.ids, s.order[0])
		s.order = s.order[1:]
	}
	return nil
}
