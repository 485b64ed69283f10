package node_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/node"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/mongo"
	"github.com/postdate/postdate/store/mongo/mongotest"
	"github.com/postdate/postdate/store/storetest"
)

// addLabelled schedules n messages that are due in an hour, of which every k-th has the label run.
func addLabelled(t testing.TB, api *client.Client, n, k int) {
	t.Helper()
	due := nodetest.In(time.Hour)
	for from := 0; from < n; from += postdate.BatchItemsMax {
		var batch []client.Message
		for i := from; i < min(n, from+postdate.BatchItemsMax); i++ {
			m := client.Message{ScheduleID: fmt.Sprint("m-", i), Channel: "inbox:jobs", ExecutionTime: due, Payload: []byte("1")}
			if i%k == 0 {
				m.Labels = []string{"run"}
			}
			batch = append(batch, m)
		}
		results, err := api.ScheduleAll(patient(t), batch)
		if err != nil {
			t.Fatal(err)
		}
		for i := range results {
			if err := results[i].Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// countByStatus counts what a filter lists.
func countByStatus(t testing.TB, api *client.Client, f client.Filter) map[client.Status]int {
	t.Helper()
	counts := map[client.Status]int{}
	for r, err := range api.List(patient(t), f) {
		if err != nil {
			t.Fatal(err)
		}
		counts[r.Status]++
	}
	return counts
}

// A cancel by a label cancels all that has it and nothing else, and says so.
func TestCancelByLabel(t *testing.T) {
	const n, k = 4_500, 3
	_, api := start(t, config(t))
	addLabelled(t, api.Client, n, k)
	id, err := api.CancelWhere(patient(t), client.JobFilter{Label: "run"})
	if err != nil {
		t.Fatal(err)
	}
	j, err := api.WaitJob(patient(t), id, nil)
	if err != nil || j.Done != n/k || j.Total != n/k || j.Failed != 0 || j.LastError != "" || j.EndedAt.IsZero() {
		t.Errorf("the job ended as %+v, %v", j, err)
	}
	if counts := countByStatus(t, api.Client, client.Filter{Label: "run"}); counts[client.Cancelled] != n/k || len(counts) != 1 {
		t.Errorf("with the label there are %v", counts)
	}
	if counts := countByStatus(t, api.Client, client.Filter{}); counts[client.Pending] != n-n/k {
		t.Errorf("in all there are %v", counts)
	}
}

// stuckJobs is a node's store that notes one page of a job. What follows is not noted if it is the first node to
// come so far.
type stuckJobs struct {
	store.Store
	stuck *stuck
	name  string
	noted int
}

// stuck says which node notes no more.
type stuck struct {
	mu   sync.Mutex
	name string
	is   chan struct{} // closed when there is one
}

func (s *stuckJobs) SetJob(ctx context.Context, job store.Job) (bool, error) {
	s.stuck.mu.Lock()
	defer s.stuck.mu.Unlock()
	if s.noted++; s.noted > 1 && s.stuck.name == "" {
		s.stuck.name = s.name
		close(s.stuck.is)
	}
	if s.stuck.name == s.name {
		return false, postdate.E(postdate.KindUnknown, "the test's store hears nothing of it")
	}
	return s.Store.SetJob(ctx, job)
}

// A job whose node stops, after a page that it could not note, goes on at the bucket's next owner, from what was
// noted.
func TestJobGoesOnAtTheNextOwner(t *testing.T) {
	const n = 5_000
	uri := mongotest.Fresh(t)
	stuck := &stuck{is: make(chan struct{})}
	m := newTeam(t, func(c *node.Config, p *node.Parts) {
		c.Store, c.Buckets = uri, 32
		config := mongo.DefaultConfig(uri)
		config.Buckets = 32
		s, err := mongo.Open(patient(t), config)
		if err != nil {
			t.Fatal(err)
		}
		p.Store = &stuckJobs{Store: s, stuck: stuck, name: c.NodeID}
	})
	m.add("a")
	m.add("b")
	m.awaitOwners("a", "b")
	first := nodetest.NewClient(m.address())
	addLabelled(t, first.Client, n, 1)
	id, err := first.CancelWhere(patient(t), client.JobFilter{IDPrefix: "m-"})
	first.Close()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-stuck.is:
	case <-time.After(patience):
		t.Fatal("no node works on the job")
	}
	m.remove(stuck.name)
	api := nodetest.NewClient(m.address())
	defer api.Close()
	j, err := api.WaitJob(patient(t), id, nil)
	if err != nil || j.Done < n-1000 || j.Done > n || j.Failed != 0 {
		t.Errorf("the job ended as %+v, %v", j, err)
	}
	if counts := countByStatus(t, api.Client, client.Filter{Label: "run"}); counts[client.Cancelled] != n {
		t.Errorf("there are %v", counts)
	}
	for _, name := range []string{"a", "b"} {
		if name != stuck.name {
			m.remove(name)
		}
	}
}

// A redrive by a filter sends again what failed, and a purge deletes it; neither touches anything else.
func TestJobsOnWhatFailed(t *testing.T) {
	const n = 2_500
	mem := storetest.NewMem(8)
	now := postdate.WallOf(time.Now())
	mem.Clock = func() postdate.Time { return postdate.WallOf(time.Now()) }
	add := func(id string, status postdate.Status) {
		m := postdate.Message{Key: bucket.KeyOf("default", id, 8), ExecutionTime: now, CreatedAt: now, Channel: "inbox:jobs", Payload: []byte("1")}
		r := postdate.NewRecord(m, 1<<32)
		if status != postdate.Pending {
			r.Status, r.SettledAt, r.Attempts = status, now-1, 5
		}
		mem.Put("test", nil, r, nil)
	}
	for i := range n {
		add(fmt.Sprint("again-", i), postdate.DeliveryFailed)
		add(fmt.Sprint("away-", i), postdate.DeliveryFailed)
	}
	add("again-cancelled", postdate.Cancelled)
	add("away-cancelled", postdate.Cancelled)
	_, api := startOn(t, mem)
	for kind, prefix := range map[store.JobKind]string{store.JobRedrive: "again-", store.JobPurge: "away-"} {
		job := store.Job{Key: bucket.KeyOf("default", kind.String(), 8), Kind: kind, Filter: store.JobFilter{IDPrefix: prefix}, CreatedAt: now}
		if err := mem.CreateJob(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		j, err := api.WaitJob(patient(t), kind.String(), nil)
		if err != nil || j.Done != n || j.Failed != 0 {
			t.Errorf("the %s ended as %+v, %v", kind, j, err)
		}
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	counts := countByStatus(t, api.Client, client.Filter{})
	if counts[client.Delivered] != n || counts[client.Cancelled] != 2 || len(counts) != 2 {
		t.Errorf("in the end there are %v", counts)
	}
}

// startOn starts a node on a store.
func startOn(t *testing.T, s store.Store) (*node.Node, *nodetest.Client) {
	t.Helper()
	n, err := node.StartWith(patient(t), config(t), node.Parts{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	api := nodetest.NewClient(n.Addr())
	t.Cleanup(func() {
		api.Close()
		stop(t, n)
	})
	return n, api
}

// BenchmarkCancelByLabel cancels 100,000 messages by their label among 1,000,000, from the request to the end of
// the job.
func BenchmarkCancelByLabel(b *testing.B) {
	const n, k = 1_000_000, 10
	for b.Loop() {
		_, api := start(b, config(b))
		addLabelled(b, api.Client, n, k)
		begun := time.Now()
		id, err := api.CancelWhere(patient(b), client.JobFilter{Label: "run"})
		if err != nil {
			b.Fatal(err)
		}
		j, err := api.WaitJob(patient(b), id, nil)
		if err != nil || j.Done != n/k || j.Failed != 0 {
			b.Fatalf("the job ended as %+v, %v", j, err)
		}
		b.ReportMetric(time.Since(begun).Seconds(), "s/job")
		for _, operation := range []string{"list", "cancel"} {
			seconds, err := api.Metric(patient(b), `postdate_store_seconds_sum{operation="`+operation+`"}`)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(seconds, operation+"-s/job")
		}
	}
}
