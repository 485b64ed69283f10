package mongo

import (
	"sync"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// handedMax bounds half of what is remembered of messages that were handed out: about twice
// what a node has in hand.
const handedMax = 32_768

// handed remembers the channel's slot and the payload's size of messages that claims handed
// out, which their settlements do not tell. Of what is never settled here, the oldest is
// forgotten.
type handed struct {
	mu         sync.Mutex
	young, old map[handedKey]store.Change
}

type handedKey struct {
	key     postdate.Key
	version uint64
}

// noteHanded notes what a claim hands out.
func (s *Store) noteHanded(due []postdate.Record) {
	for i := range due {
		r := &due[i]
		s.handed.note(handedKey{r.Key, r.Version}, s.pendingChange(r.Tenant, r.Channel, len(r.Payload), -1))
	}
}

// countSettled counts what settlements ended for ever, which certainly each changed its
// message; series that are to end are not among them.
func (s *Store) countSettled(some []*store.Settlement) {
	var ended []*store.Settlement
	for _, p := range some {
		if final(p) {
			ended = append(ended, p)
		}
	}
	s.countEnded(ended)
}

// countEnded counts settlements that ended their messages. Of a message that this process did not
// hand out, or not lately, only a recount finds that it ended.
func (s *Store) countEnded(some []*store.Settlement) {
	var changes []store.Change
	for _, p := range some {
		if c, known := s.handed.take(handedKey{p.Key, p.Version}); known {
			changes = store.AddChange(changes, c)
		} else {
			s.doubt()
		}
	}
	s.count(changes...)
}

func (h *handed) note(key handedKey, c store.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.young == nil || len(h.young) >= handedMax {
		h.young, h.old = map[handedKey]store.Change{}, h.young
	}
	h.young[key] = c
}

// take forgets a message, and returns what was noted of it.
func (h *handed) take(key handedKey) (c store.Change, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, half := range []map[handedKey]store.Change{h.young, h.old} {
		if c, known = half[key]; known {
			delete(half, key)
			return c, true
		}
	}
	return c, false
}
