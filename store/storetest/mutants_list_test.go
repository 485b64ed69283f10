package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in how they list what has an id that begins so.
type (
	listIgnoresPrefix     struct{ *Mem }
	listPrefixInside      struct{ *Mem }
	listPrefixFolds       struct{ *Mem }
	listPrefixIsPattern   struct{ *Mem }
	listPrefixIsShorter   struct{ *Mem }
	listPrefixMissesWhole struct{ *Mem }
	listPrefixMissesLast  struct{ *Mem }
	listPrefixMissesAlone struct{ *Mem }
	listPrefixEndsEarly   struct{ *Mem }
	listPrefixSkips       struct{ *Mem }
	listPrefixAlone       struct{ *Mem }
	listStatesBare        struct{ *Mem }
)

// listBy lists what has the prefix by another measure.
func (m *Mem) listBy(q store.ListQuery, begins func(id, prefix string) bool) (page store.ListPage, _ error) {
	prefix, limit := q.IDPrefix, q.Limit
	q.IDPrefix, q.Limit = "", plenty
	all, err := m.List(context.Background(), q)
	for _, r := range all.Records {
		if prefix != "" && !begins(r.ScheduleID, prefix) {
			continue
		}
		if len(page.Records) == limit {
			last := listPosition(&page.Records[limit-1])
			page.Next = &last
			break
		}
		page.Records = append(page.Records, r)
	}
	return page, err
}

func (s listIgnoresPrefix) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(_, _ string) bool { return true })
}

func (s listPrefixInside) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, strings.Contains)
}

func (s listPrefixFolds) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(id, prefix string) bool {
		return strings.HasPrefix(strings.ToLower(id), strings.ToLower(prefix))
	})
}

// A dot stands for any character.
func (s listPrefixIsPattern) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(id, prefix string) bool {
		for i := range len(prefix) {
			if i >= len(id) || prefix[i] != '.' && prefix[i] != id[i] {
				return false
			}
		}
		return true
	})
}

func (s listPrefixIsShorter) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(id, prefix string) bool { return strings.HasPrefix(id, prefix[:len(prefix)-1]) })
}

func (s listPrefixMissesWhole) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(id, prefix string) bool { return strings.HasPrefix(id, prefix) && id != prefix })
}

// What follows the prefix with the last of all characters is left out.
func (s listPrefixMissesLast) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(id, prefix string) bool { return strings.HasPrefix(id, prefix) && id < prefix+"~" })
}

func (s listPrefixMissesAlone) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listBy(q, func(id, prefix string) bool { return strings.HasPrefix(id, prefix) && !strings.Contains(id, "/") })
}

// filtered is a page of which the prefix selects afterwards.
func (m *Mem) filtered(q store.ListQuery) (page store.ListPage, err error) {
	prefix := q.IDPrefix
	q.IDPrefix = ""
	page, err = m.List(context.Background(), q)
	page.Records = slices.DeleteFunc(page.Records, func(r postdate.Record) bool { return !strings.HasPrefix(r.ScheduleID, prefix) })
	return page, err
}

// A page of which nothing is left is the last one.
func (s listPrefixEndsEarly) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.filtered(q)
	if len(page.Records) == 0 {
		page.Next = nil
	}
	return page, err
}

// A page that is shorter for the prefix is made up by the next one, which is then passed over.
func (s listPrefixSkips) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.filtered(q)
	if q.IDPrefix != "" && page.Next != nil && len(page.Records) < q.Limit {
		q.After, q.IDPrefix = page.Next, ""
		next, _ := s.Mem.List(context.Background(), q)
		page.Next = next.Next
	}
	return page, err
}

// Beside the prefix no other filter counts.
func (s listPrefixAlone) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.IDPrefix != "" {
		q.Status = 0
	}
	return s.Mem.List(ctx, q)
}

// A record of states only has no state.
func (s listStatesBare) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	for i := range page.Records {
		if q.StatesOnly {
			page.Records[i].State = postdate.State{}
		}
	}
	return page, err
}

// These bugs are caught in the area of lists.
var bugsInPrefixes = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return listIgnoresPrefix{m} },
	func(m *Mem) store.Store { return listPrefixInside{m} },
	func(m *Mem) store.Store { return listPrefixFolds{m} },
	func(m *Mem) store.Store { return listPrefixIsPattern{m} },
	func(m *Mem) store.Store { return listPrefixIsShorter{m} },
	func(m *Mem) store.Store { return listPrefixMissesWhole{m} },
	func(m *Mem) store.Store { return listPrefixMissesLast{m} },
	func(m *Mem) store.Store { return listPrefixMissesAlone{m} },
	func(m *Mem) store.Store { return listPrefixEndsEarly{m} },
	func(m *Mem) store.Store { return listPrefixSkips{m} },
	func(m *Mem) store.Store { return listPrefixAlone{m} },
	func(m *Mem) store.Store { return listStatesBare{m} },
}
