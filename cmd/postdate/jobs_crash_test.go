package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/nodetest"
)

// TestJobSurvivesKills kills a node with SIGKILL again and again while it cancels by a label. In the end all are
// cancelled, and what it counts is short by at most a page for each kill.
func TestJobSurvivesKills(t *testing.T) {
	const n, kills, page = 30_000, 3, 1_000
	dir := filepath.Join(t.TempDir(), "store")
	start := func() *serving { return startServe(t, nil, "--store", "pebble:"+dir, "--log-level", "warn") }
	node := start()
	api := nodetest.NewClient(node.ready.HTTP)
	defer api.Close()
	due := time.Now().Add(time.Hour)
	for from := 0; from < n; from += 10_000 {
		var batch []client.Message
		for i := from; i < from+10_000; i++ {
			batch = append(batch, client.Message{ScheduleID: fmt.Sprint("m-", i), Channel: "inbox:jobs", ExecutionTime: due,
				Payload: []byte("1"), Labels: []string{"run"}})
		}
		if _, err := api.ScheduleAll(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	id, err := api.CancelWhere(t.Context(), client.JobFilter{Label: "run"})
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for done := int64(0); killed < kills; {
		j, err := api.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if !j.Running() {
			break
		}
		if j.Done == done {
			continue
		}
		done = j.Done
		if err := node.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		node.Wait()
		killed++
		node = start()
		api.Move(node.ready.HTTP)
	}
	j, err := api.WaitJob(t.Context(), id, nil)
	if err != nil || j.Done > n || j.Done < n-int64(killed)*page || j.Failed != 0 || killed == 0 {
		t.Errorf("after %d kills the job ended as %+v, %v", killed, j, err)
	}
	t.Logf("after %d kills it counts %d", killed, j.Done)
	counts := map[client.Status]int{}
	for r, err := range api.List(t.Context(), client.Filter{Label: "run"}) {
		if err != nil {
			t.Fatal(err)
		}
		counts[r.Status]++
	}
	if counts[client.Cancelled] != n {
		t.Errorf("of %d there are %v", n, counts)
	}
}
