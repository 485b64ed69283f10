package pebble

import (
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// A list of states alone selects by the same filters and does not read messages: that of one of them is damaged.
func TestListOfStatesAlone(t *testing.T) {
	s := ownedBuckets(t, openBuckets)
	for i := range 3 {
		m := openMessage(i)
		m.Labels = []string{"run"}
		if i == 2 {
			m.Channel, m.Labels = "inbox:b", nil
		}
		if r := s.Insert(t.Context(), []postdate.Message{m}); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	damaged := openMessage(1)
	key := messageKey(nil, damaged.Key, damaged.ExecutionTime)
	if err := s.db.Set(key, []byte{layout, 255, 255}, lsm.Sync); err != nil {
		t.Fatal(err)
	}
	s.Cancel(t.Context(), []postdate.Key{openMessage(0).Key}, 5)
	all := store.ListQuery{Tenant: postdate.DefaultTenant, Limit: 10, StatesOnly: true}
	labelled, ofChannel, pending := all, all, all
	labelled.Label, ofChannel.Channel, pending.Status = "run", "inbox:a", postdate.Pending
	for _, c := range []struct {
		q    store.ListQuery
		want []int
	}{{all, []int{0, 1, 2}}, {labelled, []int{0, 1}}, {ofChannel, []int{0, 1}}, {pending, []int{1, 2}}} {
		page, err := s.List(t.Context(), c.q)
		if err != nil || len(page.Records) != len(c.want) {
			t.Errorf("%+v lists %+v: %v", c.q, page.Records, err)
			continue
		}
		for i, r := range page.Records {
			m := openMessage(c.want[i])
			st, _, err := s.state(m.Key)
			if err != nil || r.Key != m.Key || r.ExecutionTime != m.ExecutionTime || r.State != st.State {
				t.Errorf("%+v lists %+v, whose state is %+v: %v", c.q, r, st.State, err)
			}
		}
	}
}
