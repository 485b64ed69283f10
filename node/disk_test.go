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

func (d *onDisk) schedule(delay time.Duration, payload any) (string, nodetest.Answer) {
	id := fmt.Sprint("m-", d.last.Add(1))
	due := time.Now().Add(delay)
	d.ledger.Sent(id, "inbox:disk", due)
	a, err := d.client.Schedule(nodetest.Message{ScheduleID: id, Channel: "inbox:disk", ExecutionTime: nodetest.At(due), Payload: payload})
	if err != nil {
		d.t.Error(err)
	}
	if a.Code == http.StatusCreated {
		d.ledger.Scheduled(id, account.Done, time.Now())
	}
	return id, a
}

// fillSome schedules some messages, which must be accepted.
func (d *onDisk) fillSome(n int, within time.Duration) {
	d.t.Helper()
	for i := range n {
		if _, a := d.schedule(within*time.Duration(i)/time.Duration(n), i); a.Code != http.StatusCreated {
			d.t.Fatal(a)
		}
	}
}

// awaitCode schedules messages until the answer has the code.
func (d *onDisk) awaitCode(code int) (a nodetest.Answer) {
	d.t.Helper()
	err := nodetest.Poll(patient(d.t), func() (bool, error) {
		_, a = d.schedule(0, 1)
		return a.Code == code, nil
	})
	if err != nil {
		d.t.Fatalf("the last answer is %s, want %d: %v", a, code, err)
	}
	return a
}

// A node whose disk is full refuses new messages, and says that nothing was done; pending
// messages are delivered and can be cancelled. When there is room again everything goes on, and
// nothing acknowledged is lost, even after a time without one free byte.
func TestDiskFull(t *testing.T) {
	disk := smallDisk(t, 160)
	c := config(t)
	c.Store = "pebble:" + filepath.Join(disk, "store")
	n, client := start(t, c)
	defer stop(t, n) // before the disk is unmounted
	d := &onDisk{t: t, client: client, ledger: nodetest.NewLedger()}
	late, a := d.schedule(time.Hour, 1) // it is cancelled before it is due, however busy the machine
	if a.Code != http.StatusCreated {
		t.Fatal(a)
	}
	d.fillSome(300, 6*time.Second)
	followed := follow(t, client, "disk", nodetest.Into(d.ledger))

	// Less than the reserve is free.
	filler := filepath.Join(disk, "filler")
	fill(t, filler, 110)
	if a := d.awaitCode(http.StatusInsufficientStorage); a.Problem().Type != "urn:postdate:problem:full" || a.Header.Get("Retry-After") == "" {
		t.Errorf("a full store says %s", a)
	}
	if a, err := client.Cancel(late); err != nil || a.Code != http.StatusOK {
		t.Fatalf("a cancel on a disk that is almost full: %s, %v", a, err)
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
	d.awaitCode(http.StatusCreated)
	d.fillSome(100, 2*time.Second)
	if !fill(t, filler, 1000) {
		t.Fatal("the disk did not fill up")
	}
	var senders sync.WaitGroup
	for range 10 {
		senders.Go(func() {
			_, a := d.schedule(0, strings.Repeat("x", 200_000))
			switch a.Code {
			case http.StatusCreated, http.StatusInsufficientStorage, http.StatusGatewayTimeout:
			default:
				t.Errorf("on a disk without room a message was answered with %s", a)
			}
		})
	}
	<-time.After(3 * time.Second) // the messages fall due
	empty()
	senders.Wait()
	d.awaitCode(http.StatusCreated)
	if err := client.AwaitNonePending(patient(t)); err != nil {
		t.Fatal(err)
	}
	followed()
	nodetest.Settle(t, d.ledger)
}
