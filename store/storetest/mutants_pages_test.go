package storetest

import (
	"context"

	"github.com/postdate/postdate/store"
)

// Stores with a bug in how many bytes a page has.
type (
	inboxPagesUnbounded  struct{ *Mem }
	inboxPagesSkip       struct{ *Mem }
	listPagesUnbounded   struct{ *Mem }
	listPagesEndTheList  struct{ *Mem }
	placesUnbounded      struct{ *Mem }
	placesForgetWhatLeft struct{ *Mem }
	placesLeaveTooMuch   struct{ *Mem }
)

func (s inboxPagesUnbounded) ReadInbox(ctx context.Context, tenant, name, after string,
	limit int) (all []store.InboxMessage, next string, err error) {
	for next = after; len(all) < limit; {
		page, to, err := s.Mem.ReadInbox(ctx, tenant, name, next, limit-len(all))
		if err != nil || len(page) == 0 {
			return all, next, err
		}
		all, next = append(all, page...), to
	}
	return all, next, nil
}

// The cursor is after all that the limit allows.
func (s inboxPagesSkip) ReadInbox(ctx context.Context, tenant, name, after string,
	limit int) (all []store.InboxMessage, next string, err error) {
	page, _, err := s.Mem.ReadInbox(ctx, tenant, name, after, limit)
	if err != nil {
		return nil, "", err
	}
	_, next, err = inboxPagesUnbounded(s).ReadInbox(ctx, tenant, name, after, limit)
	return page, next, err
}

func (s listPagesUnbounded) List(ctx context.Context, q store.ListQuery) (all store.ListPage, err error) {
	most := q.Limit
	for {
		q.Limit = most - len(all.Records)
		page, err := s.Mem.List(ctx, q)
		all.Records, all.Next = append(all.Records, page.Records...), page.Next
		if q.After = page.Next; err != nil || q.After == nil || len(all.Records) == most {
			return all, err
		}
	}
}

func (s listPagesEndTheList) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	page, err := s.Mem.List(ctx, q)
	if len(page.Records) < q.Limit {
		page.Next = nil
	}
	return page, err
}

func (s placesUnbounded) ReadPlaces(ctx context.Context, tenant, name string,
	places []store.InboxPlace) (all []store.InboxMessage, left []store.InboxPlace, err error) {
	for left = places; len(left) > 0 && err == nil; {
		var some []store.InboxMessage
		some, left, err = s.Mem.ReadPlaces(ctx, tenant, name, left)
		all = append(all, some...)
	}
	return all, left, err
}

func (s placesForgetWhatLeft) ReadPlaces(ctx context.Context, tenant, name string,
	places []store.InboxPlace) ([]store.InboxMessage, []store.InboxPlace, error) {
	messages, _, err := s.Mem.ReadPlaces(ctx, tenant, name, places)
	return messages, nil, err
}

// What ended the page is left, too.
func (s placesLeaveTooMuch) ReadPlaces(ctx context.Context, tenant, name string,
	places []store.InboxPlace) ([]store.InboxMessage, []store.InboxPlace, error) {
	messages, left, err := s.Mem.ReadPlaces(ctx, tenant, name, places)
	if len(left) > 0 {
		left = places[len(places)-len(left)-1:]
	}
	return messages, left, err
}

var bugsInPages = []func(m *Mem) store.Store{
	func(m *Mem) store.Store { return inboxPagesUnbounded{m} },
	func(m *Mem) store.Store { return inboxPagesSkip{m} },
	func(m *Mem) store.Store { return listPagesUnbounded{m} },
	func(m *Mem) store.Store { return listPagesEndTheList{m} },
	func(m *Mem) store.Store { return placesUnbounded{m} },
	func(m *Mem) store.Store { return placesForgetWhatLeft{m} },
	func(m *Mem) store.Store { return placesLeaveTooMuch{m} },
}
