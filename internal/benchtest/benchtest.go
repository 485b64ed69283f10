// Package benchtest measures processor time for benchmarks: other programs on the machine
// disturb it less than the time on the clock.
package benchtest

import (
	"syscall"
	"testing"
	"time"
)

// Start begins a measurement. done ends it, and reports what each of so many messages took: the
// processor time of this process, all its threads together (cpu-µs/msg), and msg/s.
func Start(b *testing.B) (done func(messages int)) {
	b.Helper()
	start, used := time.Now(), ProcessorTime(b)
	return func(messages int) {
		used, took := ProcessorTime(b)-used, time.Since(start)
		b.ReportMetric(float64(used.Nanoseconds())/float64(messages)/1e3, "cpu-µs/msg")
		b.ReportMetric(float64(messages)/took.Seconds(), "msg/s")
	}
}

// ProcessorTime is what this process has used so far.
func ProcessorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
