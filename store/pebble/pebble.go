// Package pebble keeps messages on one machine, in an LSM tree (Pebble) in a directory of its
// own. It passes store/storetest.
//
// It promises what package store promises, and that every write is synced to disk before it is
// acknowledged; writers that arrive together share one sync. A store directory belongs to one
// process: a second one is refused.
//
// A message is written once, under bucket, execution time and id. Its small state is kept
// separately by id, and again by attempt time while it is PENDING, so that a scan of what is
// due reads neighbours, and settling rewrites no payload.
package pebble

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/bucket"
	"github.com/postdate/postdate/store"
)

var _ store.Store = (*Store)(nil)

// Config says where the store is and how much it may take.
type Config struct {
	Dir          string
	Buckets      int    // N: fixed at the store's birth, and checked from then on
	CacheBytes   int64  // for filters and for blocks that were read
	FilesMax     int    // open files, besides a few; 0: 1,000
	MemtableSize uint64 // bytes; a few of these are in memory at a time
	ReserveBytes uint64 // new messages are refused while less of the disk is free
	Log          *slog.Logger
}

// Parts are what a test puts in place of the machine's own. Both may be nil.
type Parts struct {
	FS vfs.FS // the file system

	// Fatal is called when the disk failed under the store, and must not return. The default
	// logs the error and ends the process: what was acknowledged is on disk, and nothing more
	// must be acknowledged.
	Fatal func(err error)
}

// settings are all that a store is opened with.
type settings struct {
	Config
	Parts
}

// DefaultConfig is a Config for the directory dir.
func DefaultConfig(dir string) Config {
	return Config{
		Dir: dir, Buckets: postdate.BucketsDefault,
		CacheBytes: cacheFor(memoryBytes()), MemtableSize: 32 << 20, ReserveBytes: 64 << 20,
		Log: slog.Default(),
	}
}

// fail calls Fatal, and does not return even if Fatal does.
func (c settings) fail(err error) {
	c.Fatal(err)
	select {}
}

// Validate says what is wrong with c, as a sentence that helps.
func (c Config) Validate() error {
	if c.Dir == "" {
		return postdate.E(postdate.KindInvalid, "the store has no directory: write --store pebble:./data")
	}
	if c.Buckets < 1 || c.Buckets > postdate.BucketsMax {
		return postdate.E(postdate.KindInvalid, "the number of buckets is %d: it must be between 1 and %d",
			c.Buckets, postdate.BucketsMax)
	}
	return nil
}

// Store is an open store.
type Store struct {
	c  settings
	db *lsm.DB

	// locks[b] orders all writes to bucket b: each reads, decides and applies under it, and
	// waits for the disk after it. It also guards low[b] and partitions[b], which mirrors the
	// record on disk: no other process can change that.
	locks      []sync.Mutex
	partitions []bucket.Partition
	low        []lowWater

	leaseMu sync.Mutex // orders writes of leases

	keysMu      sync.Mutex // orders writes of API keys, and guards their version
	keysVersion uint64

	inboxMu sync.Mutex // guards the map, and the number of users of each inbox in it
	inboxes map[string]*inbox
	floorMu sync.Mutex    // held by whoever raises the floor
	floor   atomic.Uint64 // the number after which an empty inbox goes on
	birth   uint32        // names this store in inbox cursors

	pending *store.Tally // by tenant

	pace     *pace
	unsynced atomic.Int64 // writes that can be read and are not on disk yet

	full atomic.Bool // less than the reserve is free
	stop chan struct{}
	idle sync.WaitGroup
}

// Open opens the store in c.Dir, and creates it if there is none. Errors are sentences for the
// operator; if one is returned, no message was changed.
func Open(c Config) (*Store, error) { return OpenWith(c, Parts{}) }

// OpenWith is Open for tests.
func OpenWith(config Config, parts Parts) (*Store, error) {
	c := settings{config, parts}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.Log == nil {
		c.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Fatal == nil {
		c.Fatal = func(err error) {
			c.Log.Error("the store failed: stopping at once; what was acknowledged is on disk", "error", err)
			os.Exit(1)
		}
	}
	if err := checkDir(c); err != nil {
		return nil, err
	}
	if err := checkLogs(c); err != nil {
		return nil, err
	}
	s := &Store{
		c: c, locks: make([]sync.Mutex, c.Buckets), low: make([]lowWater, c.Buckets),
		inboxes: map[string]*inbox{}, pending: store.NewTally(), pace: newPace(c.MemtableSize),
		stop: make(chan struct{}),
	}
	if use, err := c.FS.GetDiskUsage(c.Dir); err == nil && use.AvailBytes < min(c.ReserveBytes/8, 2*c.MemtableSize) {
		return nil, openError(c.Dir, syscall.ENOSPC) // Pebble would try again and again
	}
	var opened atomic.Bool // until then a full disk is an error, not something to wait for
	c.FS = vfs.OnDiskFull(c.FS, func() {
		if opened.Load() {
			s.awaitRoom()
		}
	})
	c.FS = pacedFS{c.FS, s.pace}
	var err error
	merges := &merging{}
	if s.db, err = openLSM(c, merges); err != nil {
		return nil, openError(c.Dir, err)
	}
	merges.begin()
	s.pace.db = s.db
	if err := s.load(); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	opened.Store(true)
	s.checkDisk()
	s.idle.Go(s.watchDisk)
	s.idle.Go(func() { s.pace.watch(s.stop) })
	return s, nil
}

func openLSM(c settings, merges *merging) (*lsm.DB, error) {
	// Pebble takes the room for its memtables out of the cache. As a rule there are two: while
	// one takes writes, the other goes to the disk.
	cache := lsm.NewCache(c.CacheBytes + 2*int64(c.MemtableSize))
	defer cache.Unref()
	o := &lsm.Options{
		FS: c.FS, Cache: cache, MaxOpenFiles: c.FilesMax, Logger: logger{c}, FormatMajorVersion: lsm.FormatNewest,
		Merger:       addCounts,
		MemTableSize: c.MemtableSize, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, L0StopWritesThreshold: stopSublevels,
		// Every seek looks into each level. With Pebble's 64 MiB most large stores have one more.
		LBaseMaxBytes: 512 << 20, BytesPerSync: 1 << 20, WALBytesPerSync: 0,
		EventListener: listener(c),
		// Merging takes at most half of the processors, and rests (pace.go): the others
		// deliver.
		CompactionConcurrencyRange: func() (int, int) { return 1, max(1, runtime.GOMAXPROCS(0)/2) },
	}
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = filterStates
		o.Levels[i].FilterType = lsm.TableFilter
		o.Levels[i].BlockSize = 16 << 10 // with Pebble's 4 KiB a message takes 28 bytes more
	}
	o.Experimental.CompactionScheduler = merges
	return lsm.Open(c.Dir, o)
}

// checkDir refuses a directory that holds something else, or only a part of a store.
func checkDir(c settings) error {
	if err := c.FS.MkdirAll(c.Dir, 0o755); errors.Is(err, os.ErrNotExist) {
		return postdate.E(postdate.KindInvalid, "the store directory %s cannot be made: name another one", c.Dir)
	} else if err != nil {
		return openError(c.Dir, err)
	}
	names, err := c.FS.List(c.Dir)
	if err != nil {
		return openError(c.Dir, err)
	}
	if missing := missingFile(names); missing != "" {
		return errMissing(c.Dir, missing)
	}
	if len(names) > 0 && !has(names, manifestMarker) && !has(names, "LOCK") && !has(names, "lost+found") {
		return postdate.E(postdate.KindInvalid,
			"the store directory %s holds other files and no store: name an empty or a new directory", c.Dir)
	}
	return nil
}

const (
	manifestMarker = "marker.manifest.*"
	formatMarker   = "marker.format-version.*"
	logFiles       = "[0-9]*[0-9].log"
	tableFiles     = "[0-9]*[0-9].sst"
)

// missingFile names a file that a part of a store lacks; "" if there is none. Without it Pebble
// takes the part for a new or an empty store, and deletes the rest. A new store gets the marker
// of its manifest first, then a log, then the marker of its format, then its options, and has
// all from then on.
func missingFile(names []string) string {
	whole := has(names, formatMarker) || has(names, tableFiles) || has(names, "OPTIONS-*")
	switch {
	case !has(names, manifestMarker) && (whole || has(names, logFiles)):
		return manifestMarker
	case whole && !has(names, logFiles):
		return "*.log"
	case whole && !has(names, formatMarker):
		return formatMarker
	}
	return ""
}

// has says whether one of the names matches the pattern.
func has(names []string, pattern string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		ok, _ := filepath.Match(pattern, name)
		return ok
	})
}

func errMissing(dir, what string) error {
	return postdate.E(postdate.KindInternal, "a file of the store in %s is missing, or cut off (%s): the store was "+
		"not changed; copy the whole directory, with its empty files, or restore it from a backup", dir, what)
}

// openError turns what Pebble or the system said into a sentence.
func openError(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EWOULDBLOCK):
		return postdate.E(postdate.KindUnavailable,
			"the store directory %s is in use by another process: stop that one, or name another directory", dir)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return postdate.E(postdate.KindUnavailable, "the store directory %s cannot be written (%w): "+
			"give this user the right to, or name another directory", dir, err)
	case errors.Is(err, syscall.ENOSPC):
		return postdate.E(postdate.KindFull,
			"the disk of the store directory %s is full: make room and start again; nothing is lost", dir)
	case errors.Is(err, os.ErrNotExist), strings.Contains(err.Error(), "object size mismatch"):
		return errMissing(dir, oneLine(err))
	case errors.Is(err, syscall.ENOTDIR):
		return postdate.E(postdate.KindInvalid,
			"the store directory %s is a file, or lies below one: name an empty or a new directory", dir)
	case lsm.IsCorruptionError(err):
		return postdate.E(postdate.KindInternal, "the store in %s is damaged (%s): none of its messages was changed; "+
			"restore the directory from a backup", dir, oneLine(err))
	}
	return postdate.E(postdate.KindUnavailable, "the store in %s cannot be opened: %s", dir, oneLine(err))
}

// load reads or writes the birth record, and reads what is kept in memory.
func (s *Store) load() error {
	written, err := s.loadBirth()
	if err != nil {
		return err
	}
	s.partitions = make([]bucket.Partition, s.c.Buckets)
	for b := range s.partitions {
		v, closer, err := s.db.Get(partitionKey(nil, b))
		if err != nil {
			return openError(s.c.Dir, fmt.Errorf("partition record %d: %w", b, err))
		}
		s.partitions[b], err = readPartition(v, b)
		closer.Close()
		if err != nil {
			return openError(s.c.Dir, fmt.Errorf("partition record %d: %w", b, err))
		}
	}
	if err := cmp.Or(s.convert(written), s.loadFloor(), s.loadCounts()); err != nil {
		return openError(s.c.Dir, err)
	}
	// Whoever held a lease is gone, as the directory's lock shows.
	if err := s.db.DeleteRange([]byte{spaceLease}, []byte{spaceLease + 1}, lsm.Sync); err != nil {
		return openError(s.c.Dir, err)
	}
	return nil
}

// loadBirth reads the birth record, or creates the store, and returns the store's layout.
func (s *Store) loadBirth() (written byte, err error) {
	v, closer, err := s.db.Get([]byte{spaceBirth})
	if errors.Is(err, lsm.ErrNotFound) {
		if err := s.create(); err != nil {
			return 0, openError(s.c.Dir, err)
		}
		return layoutNow, nil
	}
	if err != nil {
		return 0, openError(s.c.Dir, err)
	}
	n, birth, written, err := readBirth(v)
	closer.Close()
	if err != nil {
		return 0, postdate.E(postdate.KindInvalid, "the store in %s was written by a newer version of postdate, "+
			"or its birth record is damaged: use that version or a later one, or a backup", s.c.Dir)
	}
	if n != s.c.Buckets {
		return 0, postdate.E(postdate.KindInvalid, "the store in %s has %d buckets, fixed at its birth, "+
			"and this node was started with %d: start it with --buckets %d", s.c.Dir, n, s.c.Buckets, n)
	}
	s.birth = birth
	return written, nil
}

// create writes the birth record and every partition record, in one batch.
func (s *Store) create() error {
	s.birth = rand.Uint32()
	b := s.db.NewBatch()
	defer b.Close()
	b.Set([]byte{spaceBirth}, appendBirth(nil, s.c.Buckets, s.birth), nil)
	for n := range s.c.Buckets {
		b.Set(partitionKey(nil, n), appendPartition(nil, bucket.Partition{Bucket: n}), nil)
	}
	return b.Commit(lsm.Sync)
}

// loadFloor reads the floor.
func (s *Store) loadFloor() error {
	v, closer, err := s.db.Get([]byte{spaceInboxFloor})
	if errors.Is(err, lsm.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer closer.Close()
	floor, _ := binary.Uvarint(v)
	s.floor.Store(floor)
	return nil
}

// The birth record: layout, N, a random name, and a checksum.
func appendBirth(b []byte, buckets int, birth uint32) []byte {
	b = append(b, layoutNow)
	b = binary.BigEndian.AppendUint32(b, uint32(buckets))
	return sealBirth(binary.BigEndian.AppendUint32(b, birth))
}

func sealBirth(b []byte) []byte { return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b)) }

// readBirth also reads what earlier versions wrote.
func readBirth(v []byte) (buckets int, birth uint32, written byte, err error) {
	if len(v) != 13 || v[0] < layout || v[0] > layoutNow ||
		crc32.ChecksumIEEE(v[:9]) != binary.BigEndian.Uint32(v[9:]) {
		return 0, 0, 0, errLayout
	}
	return int(binary.BigEndian.Uint32(v[1:])), binary.BigEndian.Uint32(v[5:]), v[0], nil
}

// Buckets is N.
func (s *Store) Buckets() int { return s.c.Buckets }

// Exclusive is true: the directory's lock keeps every other process out.
func (s *Store) Exclusive() bool { return true }

// Name implements store.Housekeeping.
func (s *Store) Name() string { return fmt.Sprintf("pebble-%08x", s.birth) }

// Close flushes and closes the store.
func (s *Store) Close() error {
	close(s.stop)
	s.idle.Wait()
	if err := s.db.Close(); err != nil {
		return postdate.E(postdate.KindUnknown, "closing the store: %w", err)
	}
	return nil
}
