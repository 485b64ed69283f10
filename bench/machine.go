package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// describeMachine says what the figures depend on most: processors, and the time of a sync, which
// tells a disk from one in memory, where a sync costs nothing.
func describeMachine(dir string) string {
	sync := "unknown"
	if d, err := syncTime(dir); err == nil {
		sync = d.Round(time.Microsecond).String()
	}
	return fmt.Sprintf("%s/%s, %d processors, %s, a sync of 4 KiB takes %s",
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), sync)
}

// syncTime returns the median time of a sync after 4 KiB were appended to a file in dir.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	times := make([]time.Duration, 101)
	for i := range times {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return 0, err
		}
		begun := time.Now()
		if err := f.Sync(); err != nil {
			return 0, err
		}
		times[i] = time.Since(begun)
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}
