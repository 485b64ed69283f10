package storetest

import (
	"fmt"
	"strings"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
)

// halfPage is the payload and the headers of a message of which two fill a page.
func halfPage() (payload []byte, headers []postdate.Header) {
	for i := range postdate.HeadersMax {
		headers = append(headers, postdate.Header{Name: fmt.Sprint("h", i), Value: strings.Repeat("v", 1000)})
	}
	return make([]byte, store.PageBytesMax/2-postdate.HeadersBytes(headers)), headers
}

func largePages() []check {
	return []check{
		{"a page of an inbox ends where it reaches PageBytesMax, and the next one goes on", largeInbox},
		{"so does a page of a list", largeList},
		{"places that do not fit into a page are left, and nothing of them is lost", largePlaces},
	}
}

// largeLetters appends five large messages to an inbox.
func (x *trial) largeLetters() (all []store.InboxMessage) {
	x.Helper()
	for i := range 5 {
		m := letter("news", i)
		m.Payload, m.Headers = halfPage()
		all = append(all, m)
	}
	x.appendInbox(all...)
	return all
}

// readAll reads the inbox page by page.
func (x *trial) readAll() (pages [][]store.InboxMessage) {
	x.Helper()
	cursor := ""
	for range pageMax {
		page, next := x.readInbox(tenant, "news", cursor, plenty)
		if len(page) == 0 {
			return pages
		}
		pages, cursor = append(pages, page), next
	}
	x.Fatalf("the inbox did not end within %d pages", pageMax)
	return nil
}

func largeInbox(x *trial) {
	all := x.largeLetters()
	var got []store.InboxMessage
	for _, page := range x.readAll() {
		x.wantWithinPage(len(page))
		got = append(got, page...)
	}
	x.wantLetters(got, all...)
}

// wantWithinPage checks how many half pages are on a page.
func (x *trial) wantWithinPage(n int) {
	x.Helper()
	if n > 2 {
		x.Errorf("a page holds %d messages, of which two fill it", n)
	}
}

func largeList(x *trial) {
	var all []postdate.Message
	for i := range 5 {
		m := x.messageIn(i, tenant, t0+postdate.Time(i))
		m.Payload, m.Headers = halfPage()
		all = append(all, m)
	}
	x.insert(all...)
	q := store.ListQuery{Tenant: tenant, Limit: plenty}
	var got []postdate.Record
	for range pageMax {
		page, err := x.store.List(x.ctx, q)
		if err != nil {
			x.Fatalf("List: %v", err)
		}
		x.wantWithinPage(len(page.Records))
		got = append(got, page.Records...)
		if q.After = page.Next; q.After == nil {
			break
		}
	}
	x.wantIDs("a list of large messages", idsOf(got), all...)
}

func largePlaces(x *trial) {
	x.largeLetters()
	var left []store.InboxPlace
	for _, page := range x.readAll() {
		for _, m := range page {
			left = append(left, m.Place)
		}
	}
	seen := map[store.InboxPlace]int{}
	wanted := len(left)
	for range pageMax {
		if len(left) == 0 {
			break
		}
		messages, rest, err := x.store.ReadPlaces(x.ctx, tenant, "news", left)
		if err != nil {
			x.Fatalf("ReadPlaces: %v", err)
		}
		x.wantWithinPage(len(messages))
		for _, m := range messages {
			seen[m.Place]++
		}
		left = rest
	}
	if len(left) > 0 || len(seen) != wanted || wanted != 5 {
		x.Errorf("of %d places %d were read, and %d are left", wanted, len(seen), len(left))
	}
	for place, n := range seen {
		if n != 1 {
			x.Errorf("the place %v came %d times", place, n)
		}
	}
}
