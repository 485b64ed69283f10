package pebble

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store/storetest"
)

const openBuckets = 8

func openConfig(dir string) Config {
	c := DefaultConfig(dir)
	c.Buckets, c.CacheBytes, c.MemtableSize = openBuckets, 1<<20, 1<<20
	return c
}

// openMessage is the i-th message of the tests in this file.
func openMessage(i int) postdate.Message {
	return postdate.Message{
		Key:     bucket.KeyOf(postdate.DefaultTenant, fmt.Sprint("m-", i), openBuckets),
		Channel: "inbox:a", ExecutionTime: postdate.Time(1_900_000_000_000 + i), CreatedAt: 1,
		Payload: []byte(strings.Repeat(fmt.Sprint(i, "."), 100)),
	}
}

// filled makes a store with n messages in the directory and closes it. Some are
// in tables and some in the log.
func filled(t *testing.T, dir string, n int) {
	t.Helper()
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := s.Insert(t.Context(), []postdate.Message{openMessage(i)})[0].Err; err != nil {
			t.Fatal(err)
		}
		if i > 0 && i%max(n/3, 1) == 0 {
			if err := s.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// whole opens the store and fails if one of its n messages is missing.
func whole(t *testing.T, dir string, n int) {
	t.Helper()
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatalf("the store was damaged: %v", err)
	}
	defer s.Close()
	for i := range n {
		m := openMessage(i)
		r, err := s.Get(t.Context(), m.Key)
		if err != nil || string(r.Payload) != string(m.Payload) {
			t.Fatalf("message %d after the refused start: %v", i, err)
		}
	}
}

// refuse opens the store, and expects to be refused with an error of the kind that contains the
// words.
func refuse(t *testing.T, c Config, kind postdate.Kind, words ...string) {
	t.Helper()
	s, err := Open(c)
	if err == nil {
		s.Close()
	}
	storetest.Refused(t, err, kind, words...)
}

func TestOpenRefusesAnotherNumberOfBuckets(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	filled(t, dir, 10)
	c := openConfig(dir)
	c.Buckets = 16
	refuse(t, c, postdate.KindInvalid, "has 8 buckets", "started with 16", "--buckets 8")
	whole(t, dir, 10)
}

func TestOpenRefusesOtherFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	refuse(t, openConfig(dir), postdate.KindInvalid, dir, "holds other files", "name an empty or a new directory")
	unchanged(t, dir, before)
}

func TestOpenRefusesItsOwnProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	filled(t, dir, 10)
	s, err := Open(openConfig(dir))
	if err != nil {
		t.Fatal(err)
	}
	refuse(t, openConfig(dir), postdate.KindUnavailable, dir, "cannot be opened", "held by current process")
	if err := s.Insert(t.Context(), []postdate.Message{openMessage(10)})[0].Err; err != nil {
		t.Errorf("the first one was disturbed: %v", err)
	}
	s.Close()
	whole(t, dir, 11)
}

func TestOpenBelowAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	refuse(t, openConfig(filepath.Join(file, "store")), postdate.KindInvalid, "is a file, or lies below one", "name an empty or a new directory")
	refuse(t, openConfig(file), postdate.KindInvalid, "is a file, or lies below one", "name an empty or a new directory")
}

// A later version writes another layout number into the birth record.
func TestOpenRefusesANewerVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	filled(t, dir, 10)
	rewrite := func(number byte) {
		t.Helper()
		c := settings{openConfig(dir), Parts{FS: vfs.Default}}
		c.Log = slog.New(slog.DiscardHandler)
		db, err := openLSM(c, &merging{})
		if err != nil {
			t.Fatal(err)
		}
		v, closer, err := db.Get([]byte{spaceBirth})
		if err != nil {
			t.Fatal(err)
		}
		birth := append([]byte{number}, v[1:9]...)
		closer.Close()
		sum := crc32.ChecksumIEEE(birth)
		birth = append(birth, byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum))
		if err := errors.Join(db.Set([]byte{spaceBirth}, birth, lsm.Sync), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	rewrite(layoutNow + 1)
	refuse(t, openConfig(dir), postdate.KindInvalid, "newer version", "use that version or a later one")
	rewrite(layoutOrdered) // nor does one of the earlier ones keep it from opening
	whole(t, dir, 10)
	rewrite(layoutNow)
	whole(t, dir, 10)
}

// contents are the directory's files.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unchanged fails if a file of before is gone or has changed.
func unchanged(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	now := contents(t, dir)
	for path, b := range before {
		if now[path] != b {
			t.Errorf("%s was changed", path)
		}
	}
}

// damage flips the byte at a place, a fraction of the file's length, in the
// newest file that matches.
func damage(t *testing.T, dir, pattern string, place float64) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no file %s: %v", pattern, err)
	}
	slices.Sort(names)
	name := names[len(names)-1]
	b, err := os.ReadFile(name)
	if err != nil || len(b) == 0 {
		t.Fatal(name, len(b), err)
	}
	b[int(place*float64(len(b)-1))] ^= 0xff
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("flipped byte %d of %d in %s", int(place*float64(len(b)-1)), len(b), filepath.Base(name))
}

// Damage is never ignored silently: a store with a flipped byte is refused, or it shows every
// message. Only the very last chunk of a log cannot be told from a write that a power loss cut
// short.
func TestOpenFindsDamage(t *testing.T) {
	const count = 300
	for _, test := range []struct {
		pattern string
		places  []float64
	}{
		{"MANIFEST-*", []float64{0, 0.1, 0.2, 0.4}},
		{"*.log", []float64{0, 0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97}},
	} {
		for _, place := range test.places {
			t.Run(fmt.Sprintf("%s at %v", test.pattern, place), func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "store")
				filled(t, dir, count)
				damage(t, dir, test.pattern, place)
				before := contents(t, dir)
				refuse(t, openConfig(dir), postdate.KindInternal, dir, "is damaged", "none of its messages was changed", "restore the directory from a backup")
				unchanged(t, dir, before)
			})
		}
	}
}

// A copy of a store that lacks files is refused and keeps what it has: Pebble alone would take
// some for a new store, and delete the tables.
func TestOpenRefusesAPartOfAStore(t *testing.T) {
	const count = 300
	for _, missing := range [][]string{
		{"marker.manifest.*"}, {"marker.format-version.*"}, {"marker.*"}, {"MANIFEST-*"}, {"*.sst"}, {"*.log"},
		{"MANIFEST-*", "marker.*"}, {"marker.*", "*.log"}, {"marker.manifest.*", "*.sst"}, {"marker.*", "LOCK"},
		{"marker.*", "*.log", "*.sst"},
	} {
		t.Run(fmt.Sprint(missing), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			filled(t, dir, count)
			for _, pattern := range missing {
				names, err := filepath.Glob(filepath.Join(dir, pattern))
				if err != nil || len(names) == 0 {
					t.Fatalf("no file %s: %v", pattern, err)
				}
				for _, name := range names {
					if err := os.Remove(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			before := contents(t, dir)
			refuse(t, openConfig(dir), postdate.KindInternal, dir, "is missing", "the store was not changed", "copy the whole directory")
			unchanged(t, dir, before)
		})
	}
}

// A table that was cut off, as by a copy onto a full disk, is no reason to look for another disk.
func TestOpenRefusesATableThatIsCutOff(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	filled(t, dir, 300)
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	if err := os.Truncate(tables[0], 1000); err != nil {
		t.Fatal(err)
	}
	before := contents(t, dir)
	refuse(t, openConfig(dir), postdate.KindInternal, dir, "cut off", "the store was not changed", "copy the whole directory")
	unchanged(t, dir, before)
}

// A process that ends while its store is created leaves nothing that keeps the next one from
// starting, whether the disk has what was not synced or not.
func TestOpenAfterEachStepOfACreation(t *testing.T) {
	disk := vfs.NewCrashableMem()
	type left struct {
		op string
		fs *vfs.MemFS
	}
	var mu sync.Mutex // some steps are made in the background
	var all []left
	watched := errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			for _, percent := range []int{0, 100} {
				fs := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, 2))})
				mu.Lock()
				all = append(all, left{fmt.Sprint(op), fs})
				mu.Unlock()
			}
		}
		return nil
	}))
	s, err := OpenWith(openConfig("store"), Parts{FS: watched})
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	created := len(all)
	mu.Unlock()
	s.Close()
	if created == 0 {
		t.Fatal("no step of the creation was seen")
	}
	for i, left := range all[:created] {
		s, err := OpenWith(openConfig("store"), Parts{FS: left.fs})
		if err != nil {
			t.Fatalf("before %s, step %d of %d: %v", left.op, i, created, err)
		}
		s.Close()
	}
	t.Logf("%d crashes", created)
}

// Nor is damage in a table: reading it is an error, each time, and never gives other content.
func TestDamagedTable(t *testing.T) {
	const count = 300
	var failed atomic.Int64
	for _, place := range []float64{0, 0.1, 0.3, 0.5, 0.7, 0.9} {
		t.Run(fmt.Sprint(place), func(t *testing.T) {
			dir := leftOpen(t)
			filled(t, dir, count)
			damage(t, dir, "*.sst", place)
			fatal := make(chan error, 1)
			parts := Parts{Fatal: func(err error) { fatal <- err; select {} }}
			over := make(chan error, 1)
			go func() { over <- openAndRead(openConfig(dir), parts, count, &failed) }()
			select {
			case err := <-over:
				if err != nil {
					t.Error(err)
				}
			case err := <-fatal:
				t.Errorf("it would end the process now: %v", err)
			}
		})
	}
	if failed.Load() == 0 {
		t.Error("no read failed: the damage was elsewhere")
	}
}

// leftOpen is a directory for a store that may still write when the test ends. It is removed as
// far as possible, where [testing.T.TempDir] would fail the test.
func leftOpen(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pebble-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "store")
}

// openAndRead reads every message, unless the store is refused, and fails if one is missing or
// has other content. It reads what fails twice, and counts it.
func openAndRead(c Config, parts Parts, n int, failed *atomic.Int64) error {
	s, err := OpenWith(c, parts)
	if err != nil {
		return nil
	}
	for i := range n {
		m := openMessage(i)
		r, err := s.Get(context.Background(), m.Key)
		if err != nil {
			failed.Add(1)
			if _, again := s.Get(context.Background(), m.Key); again == nil {
				return fmt.Errorf("message %d failed once only: %w", i, err)
			}
		}
		switch {
		case err == nil && string(r.Payload) != string(m.Payload):
			return fmt.Errorf("message %d has other content", i)
		case err != nil && postdate.KindOf(err) != postdate.KindInternal:
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return s.Close()
}

// A torn end, which a power loss leaves of a log, is no damage.
func TestOpenTakesATornEnd(t *testing.T) {
	const count = 120 // of which the last 39 are in the log
	for _, cut := range []int64{1, 12, 100} {
		dir := filepath.Join(t.TempDir(), "store")
		filled(t, dir, count)
		names, err := filepath.Glob(filepath.Join(dir, "*.log"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		name := slices.Max(names)
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, info.Size()-cut); err != nil {
			t.Fatal(err)
		}
		whole(t, dir, count-1) // the last one was on its way to the disk
	}
}

// FuzzBrokenChunk: no bytes make the reader of logs panic, and a log that was cut off anywhere
// does not count as damaged.
func FuzzBrokenChunk(f *testing.F) {
	f.Add([]byte{}, uint32(1))
	f.Add(make([]byte, 2*blockBytes), uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, number uint32) {
		if at, broken := brokenChunk(b, number); broken && at >= len(b) {
			t.Fatalf("broken at %d of %d", at, len(b))
		}
	})
}
