package node

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/quota"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/storetest"
)

const pageNow = postdate.Time(1_800_000_000_000)

func pageJobs(mem *storetest.Mem, m store.Messages) *jobs {
	return &jobs{cancelled: func(string, int) {}, store: mem, messages: m, now: func() postdate.Time { return pageNow },
		passed:    func() postdate.Time { return pageNow },
		scheduled: func(int, postdate.Time) {}, log: slog.New(slog.DiscardHandler)}
}

func pageJob(t *testing.T, mem *storetest.Mem, kind store.JobKind, f store.JobFilter) postdate.Key {
	key := bucket.KeyOf("default", "job", 1)
	if err := mem.CreateJob(t.Context(), store.Job{Key: key, Kind: kind, Filter: f, CreatedAt: pageNow}); err != nil {
		t.Fatal(err)
	}
	return key
}

func pageMessage(id string, at postdate.Time, labels ...string) postdate.Message {
	return postdate.Message{Key: bucket.KeyOf("default", id, 1), ExecutionTime: at, CreatedAt: pageNow,
		Channel: "inbox:x", Payload: []byte("1"), Labels: labels}
}

type slept struct {
	store.Messages
	meanwhile func()
}

func (s *slept) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	p, err := s.Messages.List(ctx, q)
	if s.meanwhile != nil {
		s.meanwhile()
	}
	return p, err
}

func TestJobLeavesWhatChanged(t *testing.T) {
	mem := storetest.NewMem(1)
	m := pageMessage("a", pageNow+3_600_000, "run")
	r := postdate.NewRecord(m, 100)
	row := mem.Put("test", nil, r, nil)
	key := pageJob(t, mem, store.JobCancel, store.JobFilter{Label: "run"})
	// Meanwhile a client takes the label off.
	s := &slept{Messages: mem, meanwhile: func() {
		next := r
		next.Version, next.Labels = 101, []string{"keep"}
		next.ExecutionTime += 1000
		next.AttemptTime += 1000
		if _, err := mem.Replace(t.Context(), next, row.Record); err != nil {
			t.Fatal(err)
		}
	}}
	pageJobs(mem, s).turn(t.Context(), []int{0})
	got, _ := mem.Get(t.Context(), m.Key)
	if j, _ := mem.Job(t.Context(), key); j.Done != 0 || j.Failed != 0 || j.EndedAt == 0 {
		t.Errorf("the job is %+v", j)
	}
	if got.Status != postdate.Pending {
		t.Errorf("a message that does not have the label is %v", got.Status)
	}
}

func TestJobRedrivesOnceAtALimit(t *testing.T) {
	mem := storetest.NewMem(1)
	fail := func(r postdate.Record) {
		r.Status, r.SettledAt, r.Attempts = postdate.DeliveryFailed, pageNow, 5
		if !r.Redriven {
			r.SettledAt-- // before the job began
		}
		mem.Put("test", mem.Rows[r.Key], r, nil)
	}
	big, small := pageMessage("big", pageNow-2000, "run"), pageMessage("small", pageNow-1000, "run")
	big.Payload = make([]byte, 900)
	wait := pageMessage("wait", pageNow+3_600_000)
	wait.Payload = make([]byte, 500)
	mem.Put("test", nil, postdate.NewRecord(wait, 9), nil)
	fail(postdate.NewRecord(big, 100))
	fail(postdate.NewRecord(small, 200))
	k := quota.NewKeeper(quota.Limits{BytesMax: 1000}, mem, func() int { return 1 }, time.Now)
	key := pageJob(t, mem, store.JobRedrive, store.JobFilter{Label: "run"})
	runner := pageJobs(mem, k.Hold(mem))
	for range 5 {
		runner.turn(t.Context(), []int{0})
		if r := mem.Rows[small.Key]; r.Status == postdate.Pending { // it is tried, and fails again
			fail(r.Record)
		}
	}
	j, _ := mem.Job(t.Context(), key)
	if j.Done > 1 {
		t.Errorf("one message is counted %d times, and was sent again so often", j.Done)
	}
}

type dies struct {
	store.Messages
	fails int
}

func (d *dies) Retried(ctx context.Context, k postdate.Key) ([]postdate.Key, error) {
	if d.fails > 0 {
		d.fails--
		return nil, postdate.E(postdate.KindUnavailable, "the store does not answer")
	}
	return d.Messages.Retried(ctx, k)
}

func TestJobEndsASeriesWhole(t *testing.T) {
	mem := storetest.NewMem(1)
	series := pageMessage("s", pageNow+3_600_000, "run")
	series.Recurrence = &postdate.Recurrence{Every: time.Hour}
	series.First = pageNow
	r := postdate.NewRecord(series, 100)
	r.Occurrence = pageNow + 3_600_000
	old := series
	old.Labels = nil // PATCH gave the series its label after this occurrence failed once
	alone := postdate.NewRecord(old.Alone(pageNow-1000), 100)
	alone.AttemptTime = pageNow + 600_000
	mem.Put("test", nil, r, nil)
	mem.Put("test", nil, alone, nil)
	key := pageJob(t, mem, store.JobCancel, store.JobFilter{Label: "run"})
	runner := pageJobs(mem, &dies{mem, 1})
	for range 3 {
		runner.turn(t.Context(), []int{0})
	}
	j, _ := mem.Job(t.Context(), key)
	if j.EndedAt != 0 && j.Failed == 0 && mem.Rows[alone.Key].Status == postdate.Pending {
		t.Errorf("the job is done, and an occurrence of the series is still PENDING")
	}
}

type lostNote struct {
	store.Jobs
	lost int
}

func (l *lostNote) SetJob(ctx context.Context, j store.Job) (bool, error) {
	if l.lost > 0 {
		l.lost--
		return false, postdate.E(postdate.KindUnavailable, "the node died here")
	}
	return l.Jobs.SetJob(ctx, j)
}

// What a job cancels is counted, also if it is not noted how far the job has come.
func TestJobCountsWhatItCancels(t *testing.T) {
	mem := storetest.NewMem(1)
	for i := range 5 {
		mem.Put("test", nil, postdate.NewRecord(pageMessage(strconv.Itoa(i), pageNow+3_600_000, "run"), 100), nil)
	}
	pageJob(t, mem, store.JobCancel, store.JobFilter{Label: "run"})
	runner, counted := pageJobs(mem, mem), 0
	runner.store = &lostNote{mem, 1}
	runner.cancelled = func(_ string, n int) { counted += n }
	for range 3 {
		runner.turn(t.Context(), []int{0})
	}
	if counted != 5 {
		t.Errorf("5 were cancelled, and %d are counted", counted)
	}
}

// A page that is repeated redrives again what failed again meanwhile.
func TestJobRedrivesOncePageByPage(t *testing.T) {
	mem := storetest.NewMem(1)
	m := pageMessage("a", pageNow-1000, "run")
	fail := func(r postdate.Record) {
		r.Status, r.SettledAt = postdate.DeliveryFailed, pageNow
		if !r.Redriven {
			r.SettledAt-- // before the job began
		}
		mem.Put("test", mem.Rows[r.Key], r, nil)
	}
	fail(postdate.NewRecord(m, 100))
	pageJob(t, mem, store.JobRedrive, store.JobFilter{Label: "run"})
	runner := pageJobs(mem, mem)
	runner.store = &lostNote{mem, 3}
	for range 5 {
		runner.turn(t.Context(), []int{0})
		if r := mem.Rows[m.Key]; r.Status == postdate.Pending {
			fail(r.Record)
		}
	}
	if v := mem.Rows[m.Key].Version; v != 101 {
		t.Errorf("one job redrove a message %d times", v-100)
	}
}

// deaf is a store whose list of a job does not come back by itself.
type deaf struct{ store.Messages }

func (d deaf) List(ctx context.Context, q store.ListQuery) (store.ListPage, error) {
	if q.Label == "slow" {
		<-ctx.Done()
		return store.ListPage{}, ctx.Err()
	}
	return d.Messages.List(ctx, q)
}

// A page that does not come back holds up no other job.
func TestJobPageHasADeadline(t *testing.T) {
	mem := storetest.NewMem(1)
	key := pageJob(t, mem, store.JobCancel, store.JobFilter{Label: "slow"})
	runner := pageJobs(mem, deaf{mem})
	runner.timeout = time.Millisecond
	runner.turn(t.Context(), []int{0})
	if j, err := mem.Job(t.Context(), key); err != nil || j.EndedAt != 0 || j.LastError == "" {
		t.Errorf("the job is %+v, %v", j, err)
	}
}
