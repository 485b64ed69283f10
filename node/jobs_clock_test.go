package node

import (
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

// What a job redrives on a node whose clock is ahead is due now, not when that clock says.
func TestAJobRedrivesByATimeThatHasCome(t *testing.T) {
	mem, passed := storetest.NewMem(4), postdate.WallOf(time.Now())
	m := postdate.Message{Key: bucket.KeyOf("default", "a", 4), ExecutionTime: passed - 1000, Channel: "inbox:a"}
	failed := postdate.NewRecord(m, 1)
	failed.Status, failed.SettledAt = postdate.DeliveryFailed, passed-500
	mem.Put("test", nil, failed, nil)
	var told postdate.Time
	r := &jobs{cancelled: func(string, int) {}, store: mem, messages: mem, now: func() postdate.Time { return passed.Add(time.Hour) },
		passed:    func() postdate.Time { return passed },
		scheduled: func(_ int, at postdate.Time) { told = at }}
	r.change(t.Context(), &store.Job{Kind: store.JobRedrive, CreatedAt: passed}, []postdate.Record{failed})
	if got, err := mem.Get(t.Context(), m.Key); err != nil || got.AttemptTime != passed || told != passed {
		t.Errorf("it is due at %s, %v; the owner is told %s, and it was %s", got.AttemptTime, err, told, passed)
	}
}

// A purge deletes what failed before it began: nobody has seen what fails later.
func TestAPurgeLeavesWhatFailsLater(t *testing.T) {
	mem, began := storetest.NewMem(4), postdate.WallOf(time.Now())
	var records []postdate.Record
	for id, failedAt := range map[string]postdate.Time{"before": began - 1, "later": began + 1} {
		m := postdate.Message{Key: bucket.KeyOf("default", id, 4), ExecutionTime: began - 1000, Channel: "inbox:a"}
		failed := postdate.NewRecord(m, 1)
		failed.Status, failed.SettledAt = postdate.DeliveryFailed, failedAt
		mem.Put("test", nil, failed, nil)
		records = append(records, failed)
	}
	r := &jobs{store: mem, messages: mem}
	for i, err := range r.change(t.Context(), &store.Job{Kind: store.JobPurge, CreatedAt: began}, records) {
		id := records[i].ScheduleID
		_, left := mem.Get(t.Context(), records[i].Key)
		if id == "before" && (err != nil || postdate.KindOf(left) != postdate.KindNotFound) {
			t.Errorf("what failed before: %v, and then %v", err, left)
		}
		if id == "later" && (postdate.KindOf(err) != postdate.KindConflict || left != nil) {
			t.Errorf("what failed later: %v, and then %v", err, left)
		}
	}
}
