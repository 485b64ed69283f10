package pebble

import (
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A failure that cannot leave a message, because the disk is almost full or what failed is damaged, says so, and
// holds up no other.
func TestAFailureThatCannotLeaveAMessage(t *testing.T) {
	for name, spoil := range map[string]func(s *Store, m *postdate.Message) error{
		"almost full": func(s *Store, _ *postdate.Message) error { s.full.Store(true); return nil },
		"damaged": func(s *Store, m *postdate.Message) error {
			return s.db.Set(messageKey(nil, m.Key, m.ExecutionTime), []byte("rubbish"), nil)
		},
		"is damaged": func(s *Store, m *postdate.Message) error { // it is not there
			return s.db.Delete(messageKey(nil, m.Key, m.ExecutionTime), nil)
		},
	} {
		for _, next := range []store.Next{{}, {Occurrence: 2000, AttemptTime: 2000}} {
			s := ownedBuckets(t, 1)
			m, other := seriesMessage("a", 1), seriesMessage("b", 1)
			if next == (store.Next{}) {
				m.Recurrence, m.First, other.Recurrence, other.First = nil, 0, nil, 0
			}
			if r := s.Insert(t.Context(), []postdate.Message{m, other}); r[0].Err != nil || r[1].Err != nil {
				t.Fatal(r)
			}
			failure, others := settlementOf(t, s, m.Key, store.SettleFailed, next), settlementOf(t, s, other.Key, store.SettleFailed, next)
			failure.FailureChannel, failure.Reason = "inbox:failed", "no such queue"
			if err := spoil(s, &m); err != nil {
				t.Fatal(err)
			}
			if err := s.Settle(t.Context(), []store.Settlement{failure, others}); err != nil {
				t.Fatal(err)
			}
			for _, key := range []postdate.Key{m.Key, other.Key} {
				if st, _, err := s.state(key); err != nil || st.Status != postdate.DeliveryFailed && st.Run != 2 {
					t.Errorf("%s: %s is %+v, %v", name, key.ScheduleID, st, err)
				}
			}
			if st, _, _ := s.state(m.Key); !strings.Contains(st.LastError, name) || !strings.Contains(st.LastError, "no such queue") {
				t.Errorf("%s: it says %q", name, st.LastError)
			}
			if _, uses := s.UsageOf(m.Tenant, failure.FailureChannel); uses {
				t.Errorf("%s: it left something", name)
			}
		}
	}
}
