package pebble

import "github.com/cockroachdb/pebble/v2/vfs"

const (
	// logCategory is what Pebble calls the files of its write-ahead log.
	logCategory vfs.DiskWriteCategory = "pebble-wal"
	// logStep is how much of a log is allocated at a time.
	logStep = 4 << 20
)

// logFile is a log that is allocated ahead step by step. Pebble asks for all of it at the
// start, a tenth more than a memtable. But the first memtables of a store are small: it would
// hold eight nearly empty files of 36 MiB.
type logFile struct {
	vfs.File
	asked     int64 // up to where Pebble wants it allocated
	allocated int64 // up to where it is
	written   int64
}

// Preallocate notes how much is to be allocated; Write allocates it when it comes near.
func (f *logFile) Preallocate(offset, length int64) error {
	f.asked = offset + length
	return nil
}

func (f *logFile) Write(b []byte) (int, error) {
	for f.allocated < min(f.written+int64(len(b)), f.asked) {
		// This only makes writes quicker: a write that finds no room says so itself.
		_ = f.File.Preallocate(f.allocated, logStep)
		f.allocated += logStep
	}
	n, err := f.File.Write(b)
	f.written += int64(n)
	return n, err
}
