package pebble_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/postdate/postdate"
	"github.com/postdate/postdate/store/pebble"
)

// aheadFS counts the bytes that are allocated ahead in logs, and how many logs are made.
type aheadFS struct {
	vfs.FS
	bytes, logs atomic.Int64
}

func (fs *aheadFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	fs.logs.Add(1)
	return &aheadFile{f, fs}, nil
}

type aheadFile struct {
	vfs.File
	fs *aheadFS
}

func (f *aheadFile) Preallocate(offset, length int64) error {
	f.fs.bytes.Add(length)
	return f.File.Preallocate(offset, length)
}

// A small store takes little space: the logs of its first, small memtables are not allocated
// ahead as if the memtables were large.
func TestASmallStoreTakesLittleRoom(t *testing.T) {
	disk := &aheadFS{FS: vfs.Default}
	c := config(t.TempDir())
	c.MemtableSize = 32 << 20
	s := openWith(t, c, pebble.Parts{FS: disk})
	defer s.Close()
	for from := 0; from < 5_000; from += 500 {
		ms := make([]postdate.Message, 500)
		for i := range ms {
			ms[i] = benchMessage(from+i, 1_900_000_000_000)
			ms[i].Bucket %= c.Buckets
		}
		for _, r := range s.Insert(t.Context(), ms) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	if logs, bytes := disk.logs.Load(), disk.bytes.Load(); logs < 2 || bytes == 0 || bytes > logs*(4<<20) {
		t.Errorf("5,000 messages take %d logs of %d MiB", logs, bytes>>20)
	}
}
