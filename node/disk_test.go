package node_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postdate/postdate/client"
	"github.com/postdate/postdate/internal/account"
	"github.com/postdate/postdate/internal/nodetest"
)

// smallDisk mounts a file system of that many MiB in memory.
func smallDisk(t *testing.T, mebibytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mebibytes)); err != nil {
		t.Fatalf("this test needs the right to mount a small file system: run it as root, or in a user namespace (unshare -Urm go test ./node -run DiskFull); %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// fill writes a file of that many MiB, and reports whether the disk was full before.
func fill(t *testing.T, name string, mebibytes int) (full bool) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for range mebibytes {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return true
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return false
}

// onDisk schedules messages to a node whose disk the test fills.
type onDisk struct {
	t      *testing.T
	client *nodetest.Client
	ledger *account.Ledger
	last   atomic.Int64
}

func (d *onDisk) schedule(delay time.Duration, payload string) (id string, err error) {
	id = fmt.Sprint("m-", d.last.Add(1))
	due := nodetest.In(delay)
	d.ledger.Sent(id, "inbox:disk", due)
	_, err = d.client.Schedule(d.t.Context(), client.Message{ScheduleID: id, Channel: "inbox:disk", ExecutionTime: due, Payload: fmt.Appendf(nil, "%q", payload)})
	switch {
	case err == nil:
		d.ledger.Scheduled(id, account.Done, time.Now())
	case nodetest.NoAnswer(err):
		d.t.Error(err)
	case !client.MayBeDone(err):
		d.ledger.Scheduled(id, account.NotDone, time.Now())
	}
	return id, err
}

// fillSome schedules some messages, which must be accepted.
func (d *onDisk) fillSome(n int, within time.Duration) {
	d.t.Helper()
	for i := range n {
		if _, err := d.schedule(within*time.Duration(i)/time.Duration(n), "some"); err != nil {
			d.t.Fatal(err)
		}
	}
}

// await schedules messages until one ends with such a problem, or "" for none, and returns that.
func (d *onDisk) await(kind client.ProblemType) (last error) {
	d.t.Helper()
	err := nodetest.Poll(patient(d.t), func() (bool, error) {
		_, last = d.schedule(0, "one")
		return client.TypeOf(last) == kind && (last == nil) == (kind == ""), nil
	})
	if err != nil {
		d.t.Fatalf("the last call ended with %v, want %q: %v", last, kind, err)
	}
	return last
}

// A node whose disk is full refuses new messages, and says that nothing was done; pending
// messages are delivered and can be cancelled. When there is room again everything goes on, and
// nothing acknowledged is lost, even after a time without one free byte.
func TestDiskFull(t *testing.T) {
	disk := smallDisk(t, 160)
	c := config(t)
	c.Store = "pebble:" + filepath.Join(disk, "store")
	n, api := start(t, c)
	defer stop(t, n) // before the disk is unmounted
	d := &onDisk{t: t, client: api, ledger: nodetest.NewLedger()}
	late, err := d.schedule(time.Hour, "late") // it is cancelled before it is due, however busy the machine
	if err != nil {
		t.Fatal(err)
	}
	d.fillSome(300, 6*time.Second)
	followed := follow(t, api, "disk", nodetest.Into(d.ledger))

	// Less than the reserve is free.
	filler := filepath.Join(disk, "filler")
	fill(t, filler, 110)
	var full *client.Problem
	if err := d.await(client.StoreFull); !errors.As(err, &full) || full.Status != http.StatusInsufficientStorage || full.RetryAfter == 0 {
		t.Errorf("a full store says %+v", full)
	}
	if err := api.Cancel(t.Context(), late); err != nil {
		t.Fatalf("a cancel on a disk that is almost full: %v", err)
	}
	d.ledger.Cancelled(late, account.Done)
	if err := nodetest.Poll(patient(t), func() (bool, error) { return d.ledger.Open() == 0, nil }); err != nil {
		t.Errorf("%d pending messages are not delivered on a disk that is almost full: %v", d.ledger.Open(), err)
	}

	// No byte is free while messages fall due and more are sent; then there is room.
	empty := func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
	empty()
	d.await("")
	d.fillSome(100, 2*time.Second)
	if !fill(t, filler, 1000) {
		t.Fatal("the disk did not fill up")
	}
	var senders sync.WaitGroup
	for range 10 {
		senders.Go(func() {
			_, err := d.schedule(0, strings.Repeat("x", 200_000))
			if kind := client.TypeOf(err); err != nil && kind != client.StoreFull && kind != client.UnknownOutcome {
				t.Errorf("on a disk without room a message was answered with %v", err)
			}
		})
	}
	<-time.After(3 * time.Second) // the messages fall due
	if _, err := api.Metrics(patient(t)); err != nil {
		t.Errorf("the metrics on a disk without room: %v", err)
	}
	empty()
	senders.Wait()
	d.await("")
	if err := api.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	followed()
	nodetest.Settle(t, d.ledger)
}
