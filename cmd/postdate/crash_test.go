package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
	"github.com/postdate/postdate/internal/testrun"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// TestCrash repeatedly kills a node with SIGKILL at random moments under a steady load,
// restarts it on the same store, and then accounts for every message that was ever
// acknowledged. POSTDATE_CRASH_ROUNDS sets its length, POSTDATE_CRASH_RATE (schedules per
// second) its load.
func TestCrash(t *testing.T) {
	rounds, rate := fromEnvironment(t, "POSTDATE_CRASH_ROUNDS", 10), fromEnvironment(t, "POSTDATE_CRASH_RATE", 2000)
	dir := filepath.Join(t.TempDir(), "store")
	start := func() *serving {
		return startServe(t, nil, "--store", "pebble:"+dir, "--log-level", "warn")
	}
	node := start()
	random := testrun.Random(t)
	l := &crashLoad{
		t: t, client: nodetest.NewClient(node.ready.HTTP), ledger: nodetest.NewLedger(),
		rate: rate, stop: make(chan struct{}), back: make(chan struct{}),
	}
	l.returned(node)
	defer l.client.Close()
	following, stopFollowing := context.WithCancel(context.Background())
	defer stopFollowing()
	followed := make(chan error, 1)
	into := nodetest.Into(l.ledger)
	go func() {
		followed <- l.client.FollowInto(following, crashInbox, func(a nodetest.Arrival) {
			if strings.HasPrefix(a.ScheduleID, crashSeries) {
				a.ScheduleID = occurrenceID(a.ScheduleID, a.ExecutionTime)
			}
			into(a)
		})
	}()

	l.scheduleSeries()
	l.start(random)
	var up time.Duration
	for round := range rounds {
		alive := time.Duration(3 * random.Float64() * float64(time.Second))
		<-time.After(alive) // the random moment
		up += alive
		l.kill(node)
		node = start()
		l.returned(node)
		t.Logf("kill %d after %v: %d sent so far, %d open", round+1, alive.Round(time.Millisecond), l.sent.Load(), l.ledger.Open())
	}
	close(l.stop)
	l.workers.Wait()
	t.Logf("%.0f schedules/s while the node was up", float64(l.sent.Load())/up.Seconds())

	// The last kill: messages fall due while the node is down, and none come after.
	due := l.scheduleSome(2 * time.Second)
	l.kill(node)
	countsAsListed(t, dir)
	<-time.After(time.Until(due))
	node = start()
	l.returned(node)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := l.client.AwaitNonePending(ctx); err != nil {
		t.Error(err)
	}
	stopFollowing()
	if err := <-followed; err != nil {
		t.Error(err)
	}
	eachOnce(t, nodetest.Settle(t, l.ledger))
	l.seriesHaveRun()
	if err := node.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := node.Wait(); err != nil {
		t.Errorf("after all the crashes it did not stop in order: %v\n%s", err, &node.stderr)
	}
}

// eachOnce expects that no message came twice, and none is marked: the store delivers to its inboxes and settles in
// one step, so no kill leaves anything in doubt.
func eachOnce(t *testing.T, r account.Report) {
	t.Helper()
	if r.Twice > 0 || r.Marked > 0 {
		t.Errorf("of %d copies in the inbox %d are of messages that came twice, and %d are marked", r.Arrived, r.Twice, r.Marked)
	}
}

// countsAsListed opens the store that a killed node left, and expects that it counts as pending
// what a list shows.
func countsAsListed(t *testing.T, dir string) {
	t.Helper()
	s, err := pebble.Open(pebble.DefaultConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var listed store.Usage
	channels := map[postdate.Channel]bool{}
	q := store.ListQuery{Tenant: postdate.DefaultTenant, Status: postdate.Pending, Limit: 1000}
	for more := true; more; more = q.After != nil {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Records {
			listed.Messages, listed.Bytes = listed.Messages+1, listed.Bytes+int64(len(r.Payload))
			channels[r.Channel] = true
		}
		q.After = page.Next
	}
	listed.Channels = int64(len(channels))
	counted, _ := s.UsageOf(postdate.DefaultTenant, "inbox:"+crashInbox)
	if t.Logf("%+v is pending", counted); counted != listed || counted.Messages == 0 {
		t.Errorf("after the kills %+v is counted as pending, and a list shows %+v", counted, listed)
	}
}

const crashInbox = "crash"

func fromEnvironment(t *testing.T, name string, otherwise int) int {
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s is %q: it must be a whole number from 1", name, text)
	}
	return n
}

// crashLoad schedules and cancels messages, whatever happens to the node.
type crashLoad struct {
	t       *testing.T
	client  *nodetest.Client
	ledger  *account.Ledger
	rate    int
	sent    atomic.Int64
	stop    chan struct{}
	workers sync.WaitGroup

	mu   sync.Mutex
	back chan struct{} // closed while the node is up
}

// returned notes that the node is up.
func (l *crashLoad) returned(node *serving) {
	l.client.Move(node.ready.HTTP)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.back)
}

// awaitNode waits until the node is up, as far as is known.
func (l *crashLoad) awaitNode() {
	l.mu.Lock()
	back := l.back
	l.mu.Unlock()
	<-back
}

func (l *crashLoad) kill(node *serving) {
	l.t.Helper()
	l.mu.Lock()
	l.back = make(chan struct{})
	l.mu.Unlock()
	now := time.Now()
	l.ledger.Fault(account.Window{Fault: "kill -9", From: now, To: now, Marks: true})
	if err := node.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	if err := node.Wait(); node.ProcessState.ExitCode() != -1 {
		l.t.Fatalf("the node ended before it was killed: %v\n%s", err, &node.stderr)
	}
}

const (
	crashSingles = 24 // callers that schedule one by one: half of the load
	crashBatches = 4  // callers that schedule the other half in batches
	crashBatch   = 50
)

// start draws a generator for each worker.
func (l *crashLoad) start(random *rand.Rand) {
	own := func() *rand.Rand { return rand.New(rand.NewPCG(random.Uint64(), 0)) }
	for n := range crashSingles {
		random := own()
		l.workers.Go(func() { l.work(fmt.Sprintf("single-%d", n), 1, l.rate/2/crashSingles, random) })
	}
	for n := range crashBatches {
		random := own()
		l.workers.Go(func() { l.work(fmt.Sprintf("batch-%d", n), crashBatch, l.rate/2/crashBatches/crashBatch, random) })
	}
}

// work schedules size messages per call, perSecond calls per second, and cancels some.
func (l *crashLoad) work(name string, size, perSecond int, random *rand.Rand) {
	tick := time.NewTicker(time.Second / time.Duration(max(perSecond, 1)))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		ms := make([]client.Message, size)
		for i := range ms {
			ms[i] = l.message(fmt.Sprintf("%s-%d-%d", name, n, i), time.Duration((0.2+2.8*random.Float64())*float64(time.Second)))
		}
		if !l.schedule(ms) {
			l.awaitNode()
			if n%2 == 0 { // like a client that checks; the outcome of the others stays unknown
				l.schedule(ms)
			}
		}
		if n%10 == 0 {
			l.cancel(ms[0].ScheduleID)
		}
	}
}

func (l *crashLoad) message(id string, in time.Duration) client.Message {
	due := nodetest.In(in)
	l.ledger.Sent(id, "inbox:"+crashInbox, due)
	l.sent.Add(1)
	return client.Message{ScheduleID: id, Channel: "inbox:" + crashInbox, ExecutionTime: due, Payload: fmt.Appendf(nil, "%q", id)}
}

// schedule records what was acknowledged. It returns false if there was no answer: then nothing
// is known about the messages.
func (l *crashLoad) schedule(ms []client.Message) bool {
	results := make([]client.Result, 1)
	var err error
	if len(ms) > 1 {
		results, err = l.client.ScheduleAll(l.t.Context(), ms)
	} else {
		_, err = l.client.Schedule(l.t.Context(), ms[0])
	}
	if nodetest.NoAnswer(err) {
		return false
	}
	if err != nil {
		l.t.Errorf("a schedule of %d was answered with: %v", len(ms), err)
		return true
	}
	for i, r := range results {
		if r.Problem != nil {
			l.t.Errorf("a batch's item was answered with %+v", *r.Problem)
			continue
		}
		l.ledger.Scheduled(ms[i].ScheduleID, account.Done, time.Now())
	}
	return true
}

func (l *crashLoad) cancel(id string) {
	if !l.ledger.Acknowledged(id) {
		return
	}
	err := l.client.Cancel(l.t.Context(), id)
	switch {
	case err == nil:
		l.ledger.Cancelled(id, account.Done)
	case nodetest.NoAnswer(err):
		l.ledger.Cancelled(id, account.Unknown)
	case client.TypeOf(err) != client.TooLate:
		l.t.Errorf("a cancel of an acknowledged message was answered with: %v", err)
	}
}

// scheduleSome schedules messages that are due within d, and returns when the last is due.
func (l *crashLoad) scheduleSome(d time.Duration) time.Time {
	due := nodetest.In(d)
	ms := make([]client.Message, 500)
	for i := range ms {
		id := fmt.Sprintf("meanwhile-%d", i)
		at := due.Add(-time.Duration(i) * d / 1000).Truncate(time.Millisecond)
		l.ledger.Sent(id, "inbox:"+crashInbox, at)
		ms[i] = client.Message{ScheduleID: id, Channel: "inbox:" + crashInbox, ExecutionTime: at, Payload: fmt.Appendf(nil, "%q", id)}
	}
	l.schedule(ms)
	return due
}

const (
	crashSeries     = "series-"
	crashSeriesMany = 100
	crashSeriesRuns = 15
)

// occurrenceID names an occurrence in the ledger.
func occurrenceID(id string, at time.Time) string {
	return id + "/" + at.UTC().Format(time.RFC3339Nano)
}

// scheduleSeries schedules series that fire each second, at the same instants. Each occurrence is in the
// ledger, and none may be skipped: no kill lasts a minute.
func (l *crashLoad) scheduleSeries() {
	l.t.Helper()
	first := nodetest.In(time.Second)
	var all []string
	ms := make([]client.Message, crashSeriesMany)
	for i := range ms {
		ms[i] = client.Message{
			ScheduleID: fmt.Sprint(crashSeries, i), Channel: "inbox:" + crashInbox, Payload: []byte("1"),
			Recurrence: &client.Recurrence{Every: time.Second, Start: first, MaxRuns: crashSeriesRuns},
		}
		for k := range crashSeriesRuns {
			at := first.Add(time.Duration(k) * time.Second)
			all = append(all, occurrenceID(ms[i].ScheduleID, at))
			l.ledger.Sent(all[len(all)-1], "inbox:"+crashInbox, at)
		}
	}
	results, err := l.client.ScheduleAll(l.t.Context(), ms)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range results {
		if r.Problem != nil {
			l.t.Fatal(r.Problem)
		}
	}
	for _, id := range all {
		l.ledger.Scheduled(id, account.Done, time.Now())
	}
}

// seriesHaveRun expects that the series count each occurrence as fired, and have ended with the last one.
func (l *crashLoad) seriesHaveRun() {
	l.t.Helper()
	for i := range crashSeriesMany {
		m, err := l.client.Get(l.t.Context(), fmt.Sprint(crashSeries, i))
		if err != nil {
			l.t.Fatal(err)
		}
		if m.Status != client.Delivered || m.Series.Fired != crashSeriesRuns || m.Series.Failed != 0 || m.Series.Skipped != 0 {
			l.t.Errorf("%s is %s: %+v", m.ScheduleID, m.Status, m.Series)
		}
	}
}
