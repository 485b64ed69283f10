package storetest

import (
	"context"
	"slices"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// Stores with a bug in how they list what has a label.
type (
	labelIsIgnored        struct{ *Mem }
	labelIsPrefix         struct{ *Mem }
	labelFolds            struct{ *Mem }
	labelFirstOnly        struct{ *Mem }
	labelLastOnly         struct{ *Mem }
	labelIgnoresTenants   struct{ *Mem }
	labelOrdersByID       struct{ *Mem }
	labelMissesTies       struct{ *Mem }
	labelRepeatsLast      struct{ *Mem }
	labelIgnoresRange     struct{ *Mem }
	labelAlone            struct{ *Mem }
	labelStaysReplaced    struct{ *Mem }
	labelIsNotReplaced    struct{ *Mem }
	labelLostByMove       struct{ *Mem }
	labelLostByEnd        struct{ *Mem }
	labelOfRefused        struct{ *Mem }
	labelLostByRetry      struct{ *Mem }
	labelLostByTrigger    struct{ *Mem }
	labelOfLaterSeries    struct{ *Mem }
	labelStaysForgotten   struct{ *Mem }
	labelListsBareRecords struct{ *Mem }
)

// listLabelled lists what has the label by another measure.
func (m *Mem) listLabelled(q store.ListQuery, has func(r *postdate.Record, label string) bool) (store.ListPage, error) {
	if q.Label == "" {
		return m.List(context.Background(), q)
	}
	label, limit := q.Label, q.Limit
	q.Label, q.Limit = "", plenty
	all, err := m.List(context.Background(), q)
	all.Records = slices.DeleteFunc(all.Records, func(r postdate.Record) bool { return !has(&r, label) })
	return paged(all.Records, limit), err
}

func paged(all []postdate.Record, limit int) (page store.ListPage) {
	page.Records = all[:min(len(all), limit)]
	if len(all) > limit {
		last := listPosition(&all[limit-1])
		page.Next = &last
	}
	return page
}

func hasLabel(r *postdate.Record, label string) bool { return slices.Contains(r.Labels, label) }

func (s labelIsIgnored) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(*postdate.Record, string) bool { return true })
}

func (s labelIsPrefix) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(r *postdate.Record, label string) bool {
		return slices.ContainsFunc(r.Labels, func(l string) bool { return strings.HasPrefix(l, label) })
	})
}

func (s labelFolds) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(r *postdate.Record, label string) bool {
		return slices.ContainsFunc(r.Labels, func(l string) bool { return strings.EqualFold(l, label) })
	})
}

func (s labelFirstOnly) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(r *postdate.Record, label string) bool { return hasLabel(r, label) && r.Labels[0] == label })
}

func (s labelLastOnly) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(r *postdate.Record, label string) bool {
		return hasLabel(r, label) && r.Labels[len(r.Labels)-1] == label
	})
}

// Another tenant's messages with the label come first.
func (s labelIgnoresTenants) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.Rows {
		if q.Label != "" && r.Tenant != q.Tenant && hasLabel(&r.Record, q.Label) {
			page.Records = append([]postdate.Record{r.Record}, page.Records...)
		}
	}
	return page, err
}

func (s labelOrdersByID) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	if q.Label != "" {
		slices.SortFunc(page.Records, func(a, b postdate.Record) int { return strings.Compare(a.ScheduleID, b.ScheduleID) })
	}
	return page, err
}

// The cursor passes over what else is due at its time.
func (s labelMissesTies) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Label != "" && q.After != nil {
		q.After = &store.ListPosition{ExecutionTime: q.After.ExecutionTime + 1}
	}
	return s.Mem.List(ctx, q)
}

// A page begins with the message at its cursor.
func (s labelRepeatsLast) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	if q.Label == "" || q.After == nil {
		return page, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.Rows {
		if listPosition(&r.Record) == *q.After && r.Tenant == q.Tenant && hasLabel(&r.Record, q.Label) {
			page.Records = slices.Insert(page.Records, 0, r.Record)
		}
	}
	return page, err
}

func (s labelIgnoresRange) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Label != "" && q.After != nil {
		q.From, q.To = 0, 0
	}
	return s.Mem.List(ctx, q)
}

// Beside the label no other filter counts.
func (s labelAlone) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Label != "" {
		q.Status, q.Channel, q.IDPrefix = 0, "", ""
	}
	return s.Mem.List(ctx, q)
}

// relabel replaces, and changes the labels of what is there then.
func (m *Mem) relabel(next, was postdate.Record, labels func(old, next *postdate.Record) []string) (postdate.Record, error) {
	old, _ := m.Get(context.Background(), next.Key)
	answer, err := m.Replace(context.Background(), next, was)
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.amend(next.Key, func(r *postdate.Record) { r.Labels = labels(&old, &next) })
	}
	return answer, err
}

func (s labelStaysReplaced) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.relabel(next, was, func(old, next *postdate.Record) []string {
		return slices.Concat(old.Labels, next.Labels)
	})
}

func (s labelIsNotReplaced) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.relabel(next, was, func(old, _ *postdate.Record) []string { return old.Labels })
}

// What stands in the old place of a label is deleted last.
func (s labelLostByMove) Replace(_ context.Context, next, was postdate.Record) (postdate.Record, error) {
	return s.relabel(next, was, func(old, next *postdate.Record) (kept []string) {
		for _, l := range next.Labels {
			if !hasLabel(old, l) {
				kept = append(kept, l)
			}
		}
		return kept
	})
}

// What has ended is not listed by its label.
func (s labelLostByEnd) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(r *postdate.Record, label string) bool {
		return hasLabel(r, label) && r.Status == postdate.Pending
	})
}

// A message has the labels of a request that was refused.
func (s labelOfRefused) Insert(ctx context.Context, messages []postdate.Message) []store.Inserted {
	results := s.Mem.Insert(ctx, messages)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range results {
		if r.Err != nil {
			s.amend(messages[i].Key, func(r *postdate.Record) { r.Labels = append(slices.Clip(r.Labels), messages[i].Labels...) })
		}
	}
	return results
}

func (s labelLostByRetry) Settle(_ context.Context, settlements []store.Settlement) error {
	return s.amendDetached(settlements, func(_ *Row, r *postdate.Record) { r.Labels = nil })
}

func (s labelLostByTrigger) Trigger(ctx context.Context, series postdate.Key, ifVersion uint64, occurrence postdate.Time) error {
	err := s.Mem.Trigger(ctx, series, ifVersion, occurrence)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.Rows[series]; err == nil {
		s.amend(r.Alone(occurrence).Key, func(r *postdate.Record) { r.Labels = nil })
	}
	return err
}

// An occurrence that is a message of its own follows the labels of its series.
func (s labelOfLaterSeries) List(_ context.Context, q store.ListQuery) (store.ListPage, error) {
	return s.listLabelled(q, func(r *postdate.Record, label string) bool {
		if key, is := r.OfSeries(); is && s.Rows[key] != nil {
			return hasLabel(&s.Rows[key].Record, label)
		}
		return hasLabel(r, label)
	})
}

// A message whose id was forgotten leaves its labels to the next one with the id.
func (s labelStaysForgotten) Forget(ctx context.Context, key postdate.Key, ifVersion uint64) error {
	old, _ := s.Get(ctx, key)
	err := s.Mem.Forget(ctx, key, ifVersion)
	if err == nil && len(old.Labels) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.Put("", nil, old, nil)
	}
	return err
}

func (s labelListsBareRecords) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	for i := range page.Records {
		if q.Label != "" {
			page.Records[i].Payload = nil
		}
	}
	return page, err
}

// These bugs are caught in the area of labels.
var bugsInLabels = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return labelIsIgnored{m} },
	func(m *Mem) store.Store { return labelIsPrefix{m} },
	func(m *Mem) store.Store { return labelFolds{m} },
	func(m *Mem) store.Store { return labelFirstOnly{m} },
	func(m *Mem) store.Store { return labelLastOnly{m} },
	func(m *Mem) store.Store { return labelIgnoresTenants{m} },
	func(m *Mem) store.Store { return labelOrdersByID{m} },
	func(m *Mem) store.Store { return labelMissesTies{m} },
	func(m *Mem) store.Store { return labelRepeatsLast{m} },
	func(m *Mem) store.Store { return labelIgnoresRange{m} },
	func(m *Mem) store.Store { return labelAlone{m} },
	func(m *Mem) store.Store { return labelStaysReplaced{m} },
	func(m *Mem) store.Store { return labelIsNotReplaced{m} },
	func(m *Mem) store.Store { return labelLostByMove{m} },
	func(m *Mem) store.Store { return labelLostByEnd{m} },
	func(m *Mem) store.Store { return labelOfRefused{m} },
	func(m *Mem) store.Store { return labelLostByRetry{m} },
	func(m *Mem) store.Store { return labelLostByTrigger{m} },
	func(m *Mem) store.Store { return labelOfLaterSeries{m} },
	func(m *Mem) store.Store { return labelStaysForgotten{m} },
	func(m *Mem) store.Store { return labelListsBareRecords{m} },
}
