package pebble

import (
	"fmt"
	"slices"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

// insertOf inserts a message of a tenant at each of these times.
func insertOf(t *testing.T, s *Store, tenant string, times ...postdate.Time) {
	t.Helper()
	all := make([]postdate.Message, len(times))
	for i, at := range times {
		all[i] = postdate.Message{Key: bucket.KeyOf(tenant, fmt.Sprint("m-", at, "-", i), s.Buckets()),
			Channel: "inbox:a", ExecutionTime: at}
	}
	for _, r := range s.Insert(t.Context(), all) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
}

// What other tenants have ends a page too, and the next one goes on, whatever the list's tenant has in between.
func TestListAmongOtherTenants(t *testing.T) {
	s := ownedBuckets(t, 3)
	for _, tenant := range []string{"a", "n", "z"} { // before, in place of, and after the list's tenant
		for at := range postdate.Time(8) {
			if tenant != "n" {
				insertOf(t, s, tenant, 1000+at)
			}
			insertOf(t, s, tenant, slices.Repeat([]postdate.Time{1000 + 2*at}, int(at))...)
		}
	}
	want, err := s.List(t.Context(), store.ListQuery{Tenant: "n", Limit: 1000})
	if err != nil || len(want.Records) != 28 || want.Next != nil {
		t.Fatalf("the whole list has %d messages and goes on after %+v: %v", len(want.Records), want.Next, err)
	}
	for examinedMax := 2; examinedMax < 40; examinedMax++ {
		for _, limit := range []int{1, 2, 1000} {
			q := store.ListQuery{Tenant: "n", Limit: limit}
			var got []postdate.Record
			for pages := 1; ; pages++ {
				page, err := s.list(t.Context(), q, examinedMax)
				if err != nil || pages > 200 {
					t.Fatalf("page %d of lists of %d: %v", pages, examinedMax, err)
				}
				got = append(got, page.Records...)
				if q.After = page.Next; q.After == nil {
					break
				}
				own := func(r postdate.Record) bool { return r.ScheduleID == q.After.ScheduleID }
				if q.After.ScheduleID != "" && !slices.ContainsFunc(want.Records, own) {
					t.Fatalf("a cursor shows another tenant's %+v", q.After)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want.Records) {
				t.Errorf("with %d looked at and %d shown a page, the list is %+v", examinedMax, limit, got)
			}
		}
	}
}

// A tenant with nothing does not wait for all that another one has; what that has at one time costs one look.
func TestListBesideALargeTenant(t *testing.T) {
	for _, tenant := range []string{"a", "z"} {
		s := ownedBuckets(t, 1)
		insertOf(t, s, tenant, slices.Repeat([]postdate.Time{500}, 100)...)
		page, err := s.list(t.Context(), store.ListQuery{Tenant: "n", Limit: 10}, 2)
		if err != nil || page.Next != nil {
			t.Errorf("beside 100 messages of %s at one time the list goes on after %+v: %v", tenant, page.Next, err)
		}
		for i := range 10 {
			insertOf(t, s, tenant, 1000+postdate.Time(i))
		}
		page, err = s.list(t.Context(), store.ListQuery{Tenant: "n", Limit: 10}, 5)
		if err != nil || len(page.Records) != 0 || page.Next == nil || *page.Next != (store.ListPosition{ExecutionTime: 1003}) {
			t.Errorf("beside messages of %s at eleven times a page ends at %+v: %v", tenant, page.Next, err)
		}
	}
}
