package pebble

import (
	"bytes"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/postdate/postdate"
)

// manifestOf is a manifest of records of these lengths, and where each begins.
func manifestOf(t *testing.T, lengths ...int) (b []byte, begins []int) {
	t.Helper()
	var file bytes.Buffer
	w := record.NewWriter(&file)
	for _, n := range lengths {
		begins = append(begins, int(w.Size()))
		if _, err := w.WriteRecord(bytes.Repeat([]byte{7}, n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), begins
}

// A record that crosses a block's border is written in chunks, of which a power loss may leave
// only the later ones. That is no damage: the record's own chunks prove nothing about it. What
// was written after it does.
func TestATornRecordIsNoDamage(t *testing.T) {
	for _, test := range []struct {
		name    string
		lengths []int
		broken  int // the record whose first chunk is
		refused bool
	}{
		{"the last one, in two chunks", []int{20_000, 10_000, 9_000}, 2, false},
		{"the last one, in many chunks", []int{20_000, 10_000, 300_000}, 2, false},
		{"the last one, in one chunk", []int{20_000, 2_000, 3_000}, 2, false},
		{"two chunks, and a record behind it", []int{20_000, 10_000, 9_000, 100}, 2, true},
		{"two chunks, and a record in chunks behind it", []int{20_000, 10_000, 9_000, 40_000}, 2, true},
		{"many chunks, and a record behind them", []int{20_000, 10_000, 300_000, 100}, 2, true},
		{"one chunk, and a record behind it", []int{20_000, 2_000, 3_000}, 1, true},
	} {
		for what, breakIt := range map[string]func(chunk []byte){
			"zeros":  func(chunk []byte) { clear(chunk) },
			"a flip": func(chunk []byte) { chunk[len(chunk)/2] ^= 1 },
		} {
			t.Run(test.name+", "+what, func(t *testing.T) {
				b, begins := manifestOf(t, test.lengths...)
				at := begins[test.broken]
				if place, broken := brokenChunk(b, 0); broken {
					t.Fatalf("an intact one is broken at %d", place)
				}
				breakIt(b[at:min(blockEnd(b, at), at+chunkHeader+test.lengths[test.broken])])
				if place, broken := brokenChunk(b, 0); broken != test.refused || broken && place != at {
					t.Errorf("broken at %d: it says %v, at %d", at, broken, place)
				}
			})
		}
	}
}

// A power loss during the write of a manifest edit that crosses a block's border may leave the
// edit's second chunk and not its first. The store opens, and everything that was acknowledged
// is there.
func TestOpenTakesATornEdit(t *testing.T) {
	disk := vfs.NewCrashableMem()
	var torn atomic.Pointer[vfs.MemFS]
	synced := map[string]int64{} // how much of a manifest is on disk
	c := openConfig("store")
	fs := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
		if !isSync || !strings.HasPrefix(filepath.Base(op.Path), "MANIFEST-") || torn.Load() != nil {
			return nil
		}
		from, to := synced[op.Path], sizeOf(t, disk, op.Path)
		synced[op.Path] = to
		if border := to / blockBytes * blockBytes; from+chunkHeader < border && border < to {
			clone := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))})
			clearIn(t, clone, op.Path, from, border)
			torn.Store(clone)
		}
		return nil
	}))
	s, err := OpenWith(c, Parts{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	count := 0
	for ; torn.Load() == nil && count < 5_000; count++ {
		if err := s.Insert(t.Context(), []postdate.Message{openMessage(count)})[0].Err; err != nil {
			t.Fatal(err)
		}
		if err := s.db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if torn.Load() == nil {
		t.Fatal("no edit crossed a border")
	}
	left, err := OpenWith(c, Parts{FS: torn.Load()})
	if err != nil {
		t.Fatalf("after %d messages: %v", count, err)
	}
	defer left.Close()
	for i := range count - 1 { // the last one may have come after the power loss
		if _, err := left.Get(t.Context(), openMessage(i).Key); err != nil {
			t.Errorf("message %d of %d: %v", i, count, err)
		}
	}
}

func sizeOf(t *testing.T, disk vfs.FS, name string) int64 {
	t.Helper()
	info, err := disk.Stat(name)
	if err != nil {
		t.Error(err)
		return 0
	}
	return info.Size()
}

// clearIn fills a part of a file with zeros.
func clearIn(t *testing.T, disk vfs.FS, name string, from, to int64) {
	t.Helper()
	f, err := disk.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	b := make([]byte, to-from)
	if _, err := f.ReadAt(b, from); err != nil && err != io.EOF {
		t.Error(err)
	}
	if bytes.Trim(b, "\x00") == nil {
		t.Error("nothing was written there")
	}
	if _, err := f.WriteAt(make([]byte, to-from), from); err != nil {
		t.Error(err)
	}
}
