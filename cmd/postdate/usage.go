package main

import (
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/postdate/postdate/cmd/postdate/internal/bench"
)

// usage measures a node's process and its embedded store. It fails on systems without /proc.
func usage(pid int, store string) (u bench.Usage, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return u, err
	}
	stat, err := p.Stat()
	if err != nil {
		return u, err
	}
	u.MemoryBytes, u.Processor = int64(status.RssAnon), time.Duration(stat.CPUTime()*float64(time.Second))
	if dir, embedded := strings.CutPrefix(store, "pebble:"); embedded {
		u.DiskBytes, err = diskBytes(dir)
	}
	return u, err
}

// diskBytes returns the disk space that the files of a folder take. Files may come and go
// meanwhile.
func diskBytes(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		if info, err := entry.Info(); err == nil {
			sum += allocated(info)
		}
		return nil
	})
	return sum, err
}
