package pebble_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
)

// No answer shows what did not reach the disk, because a power loss may take it: the store
// fails as a whole first.
func TestNothingIsReadAfterAFailedSync(t *testing.T) {
	t.Run("sync", func(t *testing.T) {
		readAfter(t, errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo)
	})
	t.Run("write", func(t *testing.T) { readAfter(t, errorfs.OpFileWrite) })
}

// readAfter writes and reads while these operations fail on the log.
func readAfter(t *testing.T, failing ...errorfs.OpKind) {
	ctx := context.Background()
	disk := vfs.NewCrashableMem()
	var broken atomic.Bool
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && slices.Contains(failing, op.Kind) && strings.HasSuffix(op.Path, ".log") {
			return errors.New("the disk does not answer")
		}
		return nil
	}))
	fatal := make(chan error)
	s := openWith(t, config("store"), pebble.Parts{FS: fs, Fatal: func(err error) { // ends the process, so nothing answers from here on
		fatal <- err
		select {}
	}}) // it stays open: a process that ended closes nothing
	m := benchMessage(1, 1_900_000_000_000)
	m.Bucket = 0
	setting := store.ChannelSettings{Route: "inbox:a", Paused: true}
	broken.Store(true)

	answers := make(chan string)
	ends := func(what string, call func() string) {
		t.Helper()
		go func() { answers <- call() }()
		select {
		case answer := <-answers:
			t.Errorf("%s answers %s", what, answer)
		case <-fatal:
		}
	}
	ends("a set of a channel that was not synced", func() string { return errText(s.SetChannel(ctx, setting)) })
	ends("an insert that was not synced", func() string { return errText(s.Insert(ctx, []postdate.Message{m})[0].Err) })
	ends("a read of it", func() string {
		r, err := s.Get(ctx, m.Key)
		return r.Status.String() + ", " + errText(err)
	})
	ends("a list with it", func() string {
		page, err := s.List(ctx, store.ListQuery{Tenant: m.Tenant, Limit: 9})
		if len(page.Records) == 0 {
			return "nothing, " + errText(err)
		}
		return page.Records[0].ScheduleID + ", " + errText(err)
	})
	ends("a list of channels", func() string {
		settings, err := s.Channels(ctx)
		if len(settings) == 0 {
			return "nothing, " + errText(err)
		}
		return string(settings[0].Route) + ", " + errText(err)
	})

	left := openWith(t, config("store"), pebble.Parts{FS: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})})
	defer left.Close()
	if _, err := left.Get(ctx, m.Key); postdate.KindOf(err) != postdate.KindNotFound {
		t.Errorf("after the power loss: %v", err)
	}
}

func errText(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
