package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
)

// Whatever becomes of each try: every message that can be changed is changed and counted once, each of the others
// is counted once, and the job ends. Some nodes lose what they were to note, and do a page again.
func TestJobComesToItsEnd(t *testing.T) {
	r := testrun.Random(t)
	for range 300 {
		const changed, refused, gone = 1, 2, 3
		n := r.IntN(20)
		became := make([]int, n)
		job := store.Job{Key: postdate.Key{Tenant: "t", ScheduleID: "j"}, Version: 1, Kind: store.JobCancel, CreatedAt: 1}
		list := func(q store.ListQuery) (page store.ListPage) {
			for i := range n {
				at := store.ListPosition{ExecutionTime: postdate.Time(i + 1), ScheduleID: fmt.Sprint(i)}
				if became[i] != 0 && became[i] != refused || q.After != nil && q.After.ExecutionTime >= at.ExecutionTime {
					continue
				}
				if len(page.Records) == 3 {
					page.Next = &store.ListPosition{ExecutionTime: postdate.Time(i), ScheduleID: fmt.Sprint(i - 1)}
					break
				}
				page.Records = append(page.Records, postdate.Record{Message: postdate.Message{
					Key: postdate.Key{Tenant: "t", ScheduleID: at.ScheduleID}, ExecutionTime: at.ExecutionTime}})
			}
			return page
		}
		for tries := 0; job.EndedAt == 0; tries++ {
			if tries > 1000 {
				t.Fatalf("the job does not end: %+v", job)
			}
			page := list(job.Query())
			errs := make([]error, len(page.Records))
			for i, rec := range page.Records {
				m := int(rec.ExecutionTime) - 1
				switch x := r.IntN(10); {
				case became[m] == refused || x == 0:
					became[m], errs[i] = refused, postdate.E([]postdate.Kind{postdate.KindTooLate, postdate.KindInternal}[m%2], "not %d", m)
				case x == 1:
					became[m], errs[i] = gone, postdate.E([]postdate.Kind{postdate.KindNotFound, postdate.KindConflict}[m%2], "gone")
				case x < 4:
					errs[i] = postdate.E([]postdate.Kind{postdate.KindUnavailable, postdate.KindUnknown, postdate.KindLimited,
						postdate.KindFull}[r.IntN(4)], "later")
				default:
					became[m] = changed
				}
			}
			next, again := job.Next(&page, errs, 7)
			if next.Version != job.Version+1 || (again != nil) != (errorsBut(errs) > 0) || again != nil && next.EndedAt != 0 {
				t.Fatalf("of %+v and %v came %+v, %v", job, errs, next, again)
			}
			job = next
		}
		var want [4]int64
		for _, b := range became {
			want[b]++
		}
		if want[0] > 0 || job.Done != want[changed] || job.Failed != want[refused] || (job.LastError != "") != (job.Failed > 0) {
			t.Fatalf("%v became %v, and the job is %+v", n, became, job)
		}
	}
}

// errorsBut counts what is to be tried again.
func errorsBut(errs []error) (n int) {
	for _, err := range errs {
		switch postdate.KindOf(err) {
		case postdate.KindUnavailable, postdate.KindUnknown, postdate.KindLimited, postdate.KindFull:
			n++
		}
	}
	return n
}

// A job that waits says why, once.
func TestJobThatIsHeld(t *testing.T) {
	job := store.Job{Version: 4, After: &store.ListPosition{ExecutionTime: 3}}
	held := job.Held(errors.New(strings.Repeat("ü", postdate.LastErrorBytesMax)))
	if held.Version != 5 || held.Same(&job) || len(held.LastError) > postdate.LastErrorBytesMax || !strings.HasPrefix(held.LastError, "ü") {
		t.Errorf("it is %+v", held)
	}
	again := held.Held(errors.New(strings.Repeat("ü", postdate.LastErrorBytesMax)))
	if !again.Same(&held) {
		t.Errorf("it is told anew: %+v", again)
	}
}
