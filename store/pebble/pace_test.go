package pebble_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// slowMerges is a disk on which merging stands still until it is told to go on. It stands for a
// disk that is much slower than the inserts.
type slowMerges struct {
	vfs.FS
	goOn chan struct{}
}

func (d slowMerges) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, category)
	if err == nil && category == "pebble-compaction" {
		f = slowMerge{f, d.goOn}
	}
	return f, err
}

type slowMerge struct {
	vfs.File
	goOn chan struct{}
}

func (f slowMerge) Write(b []byte) (int, error) {
	<-f.goOn
	return f.File.Write(b)
}

// onWarning calls on for each line of the log that has the words.
type onWarning struct {
	slog.Handler
	words string
	on    func()
}

func (w onWarning) Enabled(context.Context, slog.Level) bool { return true }

func (w onWarning) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, w.words) {
		w.on()
	}
	return nil
}

// A load that is faster than the disk is slowed down, and in the end refused with nothing done.
// It never stops other writes: pending messages are delivered and cancelled.
func TestALoadThatIsTooFast(t *testing.T) {
	disk := slowMerges{vfs.NewMem(), make(chan struct{})}
	goOn := sync.OnceFunc(func() { close(disk.goOn) })
	c := config("store")
	c.MemtableSize = 256 << 10
	var stopped atomic.Bool
	c.Log = slog.New(onWarning{slog.DiscardHandler, "every write waits", func() {
		t.Error("every write stopped")
		stopped.Store(true)
		goOn()
	}})
	s := openWith(t, c, pebble.Parts{FS: disk})
	defer s.Close()
	message := func(id string) postdate.Message {
		m := postdate.Message{
			Key: bucket.KeyOf(postdate.DefaultTenant, id, c.Buckets), Channel: "inbox:a", ExecutionTime: 1_900_000_000_000,
			ContentType: "application/json", Payload: []byte(`"` + strings.Repeat("x", 2000) + `"`),
		}
		m.Digest = postdate.DigestOf(&m, "")
		return m
	}
	insert := func(id string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return s.Insert(ctx, []postdate.Message{message(id)})[0].Err
	}
	// Callers with little patience load until each was refused.
	var load sync.WaitGroup
	var inserted atomic.Int64
	for caller := range 8 {
		load.Go(func() {
			for i := 0; !stopped.Load(); i++ {
				err := insert(fmt.Sprint(caller, "-", i))
				switch {
				case err == nil:
					inserted.Add(1)
				case postdate.KindOf(err) == postdate.KindUnavailable:
					if _, err := s.Get(context.Background(), message(fmt.Sprint(caller, "-", i)).Key); postdate.KindOf(err) != postdate.KindNotFound {
						t.Errorf("it was refused, and is there: %v", err)
					}
					return
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	load.Wait()
	if n := inserted.Load(); n < 500 {
		t.Errorf("only %d messages were taken", n)
	}
	// The others do not notice.
	for caller := range 8 {
		if r := s.Cancel(t.Context(), []postdate.Key{message(fmt.Sprint(caller, "-0")).Key}, 1)[0]; r.Err != nil {
			t.Error(r.Err)
		}
	}
	if r, err := s.Acquire(t.Context(), []store.Acquisition{{Bucket: 0, Owner: "n", Lease: "l"}}); err != nil || !r[0].OK {
		t.Error(r, err)
	}
	// When merging goes on, so does the load.
	goOn()
	for err := errors.New("not tried yet"); err != nil && t.Context().Err() == nil; {
		err = insert("late")
	}
}
