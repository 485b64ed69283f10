package pebble_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// limitedDisk is a file system that can be told that it is full. It stands in
// for a real small disk, which a test cannot make without rights to mount one.
type limitedDisk struct {
	vfs.FS
	available atomic.Uint64
}

func (d *limitedDisk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: d.available.Load(), TotalBytes: 1 << 30}, nil
}

// errorSignal tells when an error is logged.
type errorSignal struct {
	slog.Handler
	onError func()
}

func (e *errorSignal) Enabled(context.Context, slog.Level) bool { return true }

func (e *errorSignal) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelError {
		e.onError()
	}
	return nil
}

// TestDiskWithoutRoom fills the disk to the last byte under a store: writes wait, nothing
// breaks, and once there is room they go through.
func TestDiskWithoutRoom(t *testing.T) {
	disk := &limitedDisk{}
	disk.available.Store(1 << 30)
	disk.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if disk.available.Load() == 0 && op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return syscall.ENOSPC
		}
		return nil
	}))
	c := config("store")
	c.Buckets = postdate.BucketsDefault
	log := &errorSignal{Handler: slog.DiscardHandler, onError: func() {}}
	c.Log = slog.New(log)
	s := openWith(t, c, pebble.Parts{FS: disk, Fatal: func(err error) { t.Errorf("the store gave up: %v", err) }})
	defer s.Close()
	ctx := context.Background()
	insert := func(i int) error {
		return s.Insert(ctx, []postdate.Message{benchMessage(i, 1_900_000_000_000)})[0].Err
	}
	if err := insert(1); err != nil {
		t.Fatal(err)
	}
	full := make(chan struct{})
	log.onError = sync.OnceFunc(func() { close(full) })
	disk.available.Store(0)
	cancelled := make(chan store.Cancelled, 1)
	go func() {
		cancelled <- s.Cancel(ctx, []postdate.Key{benchMessage(1, 0).Key}, 1)[0]
	}()
	<-full // the store has noticed, and said so
	if err := insert(2); postdate.KindOf(err) != postdate.KindFull {
		t.Fatalf("a new message on a full disk: %v, want KindFull", err)
	}
	select {
	case r := <-cancelled:
		t.Fatalf("a cancel was answered on a full disk: %+v", r)
	default:
	}
	disk.available.Store(1 << 30)
	if r := <-cancelled; r.Err != nil || r.State.Status != postdate.Cancelled {
		t.Errorf("the cancel that waited: %+v", r)
	}
	deadline := time.Now().Add(time.Minute)
	for err := insert(3); err != nil; err = insert(3) {
		if time.Now().After(deadline) {
			t.Fatalf("after there is room: %v", err)
		}
	}
}
