package node_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
)

// What a receiver refuses shows in groups by its words. One group is redriven, and arrives; the other one is purged.
func TestGroupsOfFailures(t *testing.T) {
	const each = 30
	var mended atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch gone := strings.Contains(string(body), "gone"); {
		case gone:
			http.Error(w, "this customer has gone", http.StatusUnprocessableEntity)
		case !mended.Load():
			http.Error(w, "this order is not known", http.StatusUnprocessableEntity)
		}
	}))
	defer receiver.Close()
	c := config(t)
	c.Webhook.Allow = []string{"127.0.0.1"}
	_, api := start(t, c)
	var all []client.Message
	for i := range each {
		for _, what := range []string{"gone", "order"} {
			all = append(all, client.Message{ScheduleID: fmt.Sprint(what, "-", i), Channel: receiver.URL, ExecutionTime: time.Now(),
				Payload: []byte(`"` + what + `"`), Retry: &client.Retry{MaxAttempts: 1}})
		}
	}
	results, err := api.ScheduleAll(patient(t), all)
	if err != nil || results[len(all)-1].Err() != nil {
		t.Fatal(err, results)
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	f, err := api.Failures(patient(t), client.FailureFilter{Channel: receiver.URL})
	if err != nil || !f.Exact || len(f.Groups) != 2 {
		t.Fatalf("what failed is %+v, %v", f, err)
	}
	mended.Store(true)
	for _, g := range f.Groups {
		what, start := "gone", api.PurgeWhere
		if strings.HasPrefix(g.Example, "order-") {
			what, start = "order", api.RedriveWhere
		}
		if g.Count != each || !strings.HasPrefix(g.Example, what+"-") || g.LastFailedAt.Before(g.FirstFailedAt) {
			t.Errorf("a group is %+v", g)
		}
		id, err := start(patient(t), client.JobFilter{Channel: g.Channel, LastError: g.LastError})
		if err != nil {
			t.Fatal(err)
		}
		if j, err := api.WaitJob(patient(t), id, nil); err != nil || j.Done != each || j.Failed != 0 || j.Filter.LastError != g.LastError {
			t.Errorf("the job for %s ended as %+v, %v", what, j, err)
		}
	}
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	counts := countByStatus(t, api.Client, client.Filter{})
	if counts[client.Delivered] != each || len(counts) != 1 {
		t.Errorf("in the end there are %v", counts)
	}
}
