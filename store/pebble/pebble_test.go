package pebble_test

import (
	"io"
	"log/slog"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate/store"
	"github.com/postdate/postdate/store/pebble"
	"github.com/postdate/postdate/store/storetest"
)

func config(dir string) pebble.Config {
	c := pebble.DefaultConfig(dir)
	c.Buckets, c.Log = 8, slog.New(slog.NewTextHandler(io.Discard, nil))
	c.CacheBytes, c.MemtableSize = 1<<20, 1<<20 // small, so that flushes and compactions take part
	return c
}

func open(t *testing.T, c pebble.Config) *pebble.Store { return openWith(t, c, pebble.Parts{}) }

func openWith(t *testing.T, c pebble.Config, parts pebble.Parts) *pebble.Store {
	t.Helper()
	s, err := pebble.OpenWith(c, parts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, config(t.TempDir())) })
}

// TestCoalesced is the store as a node uses it.
func TestCoalesced(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return store.Coalesce(open(t, config(t.TempDir()))) })
}

// TestDurable cuts the power: everything that was not synced is gone.
func TestDurable(t *testing.T) {
	open, crash := powerCuts()
	storetest.RunDurable(t, open, crash)
}

// TestDeliverer cuts the power, too.
func TestDeliverer(t *testing.T) {
	open, crash := powerCuts()
	storetest.RunDeliverer(t, open, crash)
}

// powerCuts opens stores on disks that lose what was not synced.
func powerCuts() (open func(t *testing.T) store.Store, crash func(t *testing.T, s store.Store) store.Store) {
	var mu sync.Mutex
	disks := map[store.Store]*vfs.MemFS{}
	start := func(t *testing.T, disk *vfs.MemFS) store.Store {
		s := openWith(t, config("store"), pebble.Parts{FS: disk})
		mu.Lock()
		defer mu.Unlock()
		disks[s] = disk
		return s
	}
	return func(t *testing.T) store.Store { return start(t, vfs.NewCrashableMem()) },
		func(t *testing.T, s store.Store) store.Store {
			mu.Lock()
			disk := disks[s]
			mu.Unlock()
			left := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})
			t.Cleanup(func() { s.Close() })
			return start(t, left)
		}
}
